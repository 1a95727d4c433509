#include "tessera/plan/machine_profile.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::plan {
namespace {

constexpr Dtype dtypes[] = {Dtype::fp32, Dtype::fp16, Dtype::bf16};

/// Reads members of an object and knows which ones nobody has read.
class Members {
 public:
  /// @param unknown  of all objects of the file
  Members(ConfigTree const& object, std::string source, std::vector<std::string>& unknown)
      : object_(object), source_(std::move(source)), unknown_(unknown) {
    TESSERA_VALIDATE(object.is_object(), ConfigError, source_, " must be an object {...}, found ",
                     object.type_name());
  }
  ConfigTree const* find(char const* key) {
    known_.emplace_back(key);
    return object_.find(key);
  }
  /// A number of at least @p low; 0 where it is missing.
  void read(char const* key, double& out, double low = 0.0,
            double high = std::numeric_limits<double>::max()) {
    auto const* const value = find(key);
    if (!value) return;
    TESSERA_VALIDATE(value->is_number() && value->as_double() >= low && value->as_double() <= high,
                     ConfigError, source_, ": ", key, " is ", value->dump(),
                     high < 2.0 ? (low > 0.0 ? "; use a number above 0 and at most 1"
                                             : "; use a number from 0 to 1")
                                : "; use a number that is not negative");
    out = value->as_double();
  }
  /// A part of something.
  void read_share(char const* key, double& out) {
    read(key, out, std::numeric_limits<double>::min(), 1.0);
  }
  void read_size(char const* key, std::int64_t& out) {
    auto const* const value = find(key);
    if (!value) return;
    try {
      out = value->is_string() ? parse_size(value->as_string()) : value->as_int();
    } catch (Error const& e) {
      throw ConfigError(concat(source_, ": ", key, ": ", e.what()));
    }
    TESSERA_VALIDATE(out >= 0, ConfigError, source_, ": ", key, " is ", out,
                     " bytes; it must not be negative");
  }
  void read_link(char const* key, Link& out) {
    auto const* const value = find(key);
    if (!value) return;
    Members link = member(*value, key);
    link.read("latency", out.latency);
    link.read("bandwidth", out.bandwidth);
    link.note_unknown();
  }
  /// An object in this one.
  Members member(ConfigTree const& value, char const* key) {
    return {value, concat(source_, ": ", key), unknown_};
  }
  /// Adds a sentence on the members that nobody has read.
  void note_unknown() const {
    std::vector<std::string> names;
    for (auto const& [key, value] : object_.as_object())
      if (std::find(known_.begin(), known_.end(), key) == known_.end()) names.push_back(key);
    if (!names.empty())
      unknown_.push_back(concat(source_, names.size() == 1 ? ": unknown key " : ": unknown keys ",
                                join(names), "; known are ", join(known_)));
  }
  std::string const& source() const { return source_; }

 private:
  ConfigTree const& object_;
  std::string source_;
  std::vector<std::string>& unknown_;
  std::vector<std::string> known_;
};

Dtype dtype_of(std::string const& name, std::string const& source) {
  for (auto const dtype : dtypes)
    if (name == name_of(dtype)) return dtype;
  throw ConfigError(concat(source, ": unknown dtype ", name, "; use fp32, fp16 or bf16"));
}

void read_speeds(Members& in, MachineProfile& out) {
  if (auto const* const peak = in.find("peak_flops")) {
    Members members = in.member(*peak, "peak_flops");
    for (auto const dtype : dtypes) {
      double flops = 0.0;
      members.read(std::string(name_of(dtype)).c_str(), flops);
      if (flops > 0.0) out.peak[dtype] = flops;
    }
    members.note_unknown();
  }
  auto const* const products = in.find("products");
  if (!products) return;
  TESSERA_VALIDATE(products->is_array(), ConfigError, in.source(), ": products must be a list");
  for (auto const& entry : products->as_array()) {
    Members members = in.member(entry, "products");
    ProductSpeed speed;
    double m = 0, n = 0, k = 0;
    members.read("m", m, 1);
    members.read("n", n, 1);
    members.read("k", k, 1);
    members.read("flops", speed.flops);
    auto const* const dtype = members.find("dtype");
    TESSERA_VALIDATE(dtype && m > 0 && n > 0 && k > 0 && speed.flops > 0, ConfigError,
                     members.source(), ": an entry needs dtype, m, n, k and flops");
    speed.dtype = dtype_of(dtype->as_string(), members.source());
    speed.m = static_cast<std::int64_t>(m);
    speed.n = static_cast<std::int64_t>(n);
    speed.k = static_cast<std::int64_t>(k);
    members.note_unknown();
    out.products.push_back(speed);
  }
}

void read_protocols(Members& in, MachineProfile& out) {
  auto const* const list = in.find("protocols");
  if (!list) return;
  TESSERA_VALIDATE(list->is_array(), ConfigError, in.source(), ": protocols must be a list");
  for (auto const& entry : list->as_array()) {
    Members members = in.member(entry, "protocols");
    Protocol protocol;
    members.read("intra_node", protocol.intra_latency);
    members.read("inter_node", protocol.inter_latency);
    members.read_share("bandwidth", protocol.bandwidth);
    (void)members.find("name");  // for the reader of the file
    members.note_unknown();
    out.protocols.push_back(protocol);
  }
}

void check(MachineProfile const& p, std::string const& source) {
  TESSERA_VALIDATE(p.ranks_per_node >= 1, ConfigError, source, ": ranks_per_node is ",
                   p.ranks_per_node, "; it must be positive");
  TESSERA_VALIDATE(!p.peak.empty() || !p.products.empty(), ConfigError, source,
                   ": no speed of products; give peak_flops, as {\"bf16\": 989e12}, or products");
  TESSERA_VALIDATE(p.memory_bandwidth > 0.0, ConfigError, source,
                   ": memory_bandwidth is missing; give bytes per second");
}

ConfigTree to_json(Link const& link) {
  return ConfigTree::object().set("latency", link.latency).set("bandwidth", link.bandwidth);
}

}  // namespace

double MachineProfile::product_speed(Dtype dtype, std::int64_t m, std::int64_t n,
                                     std::int64_t k) const {
  auto const logarithm = [](std::int64_t x) { return std::log(static_cast<double>(x)); };
  double nearest = std::numeric_limits<double>::max(), speed = 0.0;
  for (auto const& p : products) {
    if (p.dtype != dtype) continue;
    double const distance = std::abs(logarithm(p.m) - logarithm(m)) +
                            std::abs(logarithm(p.n) - logarithm(n)) +
                            std::abs(logarithm(p.k) - logarithm(k));
    if (distance >= nearest) continue;
    nearest = distance;
    speed = p.flops;
  }
  if (speed > 0.0) return speed;
  auto const found = peak.find(dtype);
  TESSERA_VALIDATE(found != peak.end(), ConfigError, "the machine profile ", name,
                   " has no speed of ", name_of(dtype), " products; add it to peak_flops");
  return found->second * product_efficiency;
}

double MachineProfile::attention_speed(Dtype dtype) const {
  double best = 0.0;
  if (auto const found = peak.find(dtype); found != peak.end()) best = found->second;
  for (auto const& p : products)
    if (p.dtype == dtype && peak.empty()) best = std::max(best, p.flops);
  TESSERA_VALIDATE(best > 0.0, ConfigError, "the machine profile ", name, " has no speed of ",
                   name_of(dtype), " products; add it to peak_flops");
  return best * attention_efficiency;
}

MachineProfile read_profile(ConfigTree const& document, std::string const& source) {
  std::vector<std::string> unknown;
  Members in(document, source, unknown);
  MachineProfile p;
  auto const text = [&](char const* key) {
    auto const* const value = in.find(key);
    return value ? value->as_string() : std::string();
  };
  auto const flag = [&](char const* key) {
    auto const* const value = in.find(key);
    return value && value->as_bool();
  };
  p.name = text("name");
  p.source = text("source");
  p.measured = flag("measured");
  p.has_device = flag("has_device");
  double ranks = 1;
  in.read("ranks_per_node", ranks);
  p.ranks_per_node = static_cast<int>(ranks);
  in.read_size("device_memory", p.device_memory);
  in.read_size("host_memory", p.host_memory);
  in.read_size("nvme", p.nvme);
  in.read_size("reserved_memory", p.reserved_memory);
  read_speeds(in, p);
  in.read_share("product_efficiency", p.product_efficiency);
  in.read_share("attention_efficiency", p.attention_efficiency);
  in.read_share("pass_efficiency", p.pass_efficiency);
  in.read("pass_traffic", p.pass_traffic);
  in.read("collective_share", p.collective_share, 0.0, 1.0);
  in.read("memory_bandwidth", p.memory_bandwidth);
  in.read("host_memory_bandwidth", p.host_memory_bandwidth);
  in.read_link("host_link", p.host_link);
  in.read_link("intra_node", p.intra_node);
  in.read_link("inter_node", p.inter_node);
  read_protocols(in, p);
  in.read("drive_read", p.drive_read);
  in.read("drive_write", p.drive_write);
  in.read("save_bandwidth", p.save_bandwidth);
  in.read("node_failure_hours", p.node_failure_hours);
  in.note_unknown();
  TESSERA_VALIDATE(unknown.empty(), ConfigError, join(unknown, "; "));
  check(p, source);
  return p;
}

ConfigTree to_json(MachineProfile const& p) {
  auto peak = ConfigTree::object();
  for (auto const& [dtype, flops] : p.peak) peak.set(std::string(name_of(dtype)), flops);
  ConfigTree::Array products;
  for (auto const& x : p.products)
    products.push_back(ConfigTree::object()
                           .set("dtype", std::string(name_of(x.dtype)))
                           .set("m", x.m)
                           .set("n", x.n)
                           .set("k", x.k)
                           .set("flops", x.flops));
  ConfigTree::Array protocols;
  for (auto const& x : p.protocols)
    protocols.push_back(ConfigTree::object()
                            .set("intra_node", x.intra_latency)
                            .set("inter_node", x.inter_latency)
                            .set("bandwidth", x.bandwidth));
  return ConfigTree::object()
      .set("name", p.name)
      .set("source", p.source)
      .set("measured", p.measured)
      .set("has_device", p.has_device)
      .set("ranks_per_node", p.ranks_per_node)
      .set("device_memory", p.device_memory)
      .set("host_memory", p.host_memory)
      .set("nvme", p.nvme)
      .set("reserved_memory", p.reserved_memory)
      .set("peak_flops", std::move(peak))
      .set("products", std::move(products))
      .set("product_efficiency", p.product_efficiency)
      .set("attention_efficiency", p.attention_efficiency)
      .set("pass_efficiency", p.pass_efficiency)
      .set("pass_traffic", p.pass_traffic)
      .set("collective_share", p.collective_share)
      .set("memory_bandwidth", p.memory_bandwidth)
      .set("host_memory_bandwidth", p.host_memory_bandwidth)
      .set("host_link", to_json(p.host_link))
      .set("intra_node", to_json(p.intra_node))
      .set("inter_node", to_json(p.inter_node))
      .set("protocols", std::move(protocols))
      .set("drive_read", p.drive_read)
      .set("drive_write", p.drive_write)
      .set("save_bandwidth", p.save_bandwidth)
      .set("node_failure_hours", p.node_failure_hours);
}

}  // namespace tessera::plan
