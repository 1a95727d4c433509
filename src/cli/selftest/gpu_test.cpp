#include "selftest/gpu_test.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <random>

#include "tessera/comm/base/traffic.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/median.hpp"
#include "tessera/core/text.hpp"
#include "tessera/kernels/gemm/gemm.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::cli {
namespace {

using memory::Buffer;
using memory::MemorySpace;
using memory::Purpose;

constexpr std::chrono::minutes gpu_test_deadline{5};
constexpr std::size_t most_tested = std::size_t{16} << 30, piece_bytes = std::size_t{64} << 20;
constexpr int rounds = 3;

/// Random words, others for each seed.
void fill_random(void* data, std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  auto* const words = static_cast<std::uint32_t*>(data);
  for (std::size_t i = 0; i < bytes / sizeof(std::uint32_t); ++i) words[i] = random();
}

std::int64_t different_bytes(void const* a, void const* b, std::size_t bytes) {
  if (std::memcmp(a, b, bytes) == 0) return 0;
  auto const *x = static_cast<char const*>(a), *y = static_cast<char const*>(b);
  std::int64_t out = 0;
  for (std::size_t i = 0; i < bytes; ++i) out += x[i] != y[i] ? 1 : 0;
  return out;
}

/// The tests of one device. Its buffers are a piece of device memory and two of pinned memory.
class DeviceTest {
 public:
  DeviceTest(memory::Queue& queue, int rank)
      : queue_(queue),
        bytes_(std::min(piece_bytes, memory::free_device_bytes() / 32 / 4096 * 4096)),
        sent_("pattern", Purpose::workspace, bytes_, MemorySpace::pinned),
        received_("pattern, read back", Purpose::workspace, bytes_, MemorySpace::pinned),
        device_("pattern on the device", Purpose::workspace, bytes_, MemorySpace::device) {
    fill_random(sent_.data(), bytes_, static_cast<unsigned>(rank) + 1);
  }

  GpuFigures run() {
    auto const info = memory::describe_device(memory::Runtime::device());
    GpuFigures out;
    out.model = info.name;
    out.bus = info.bus;
    test_memory(out);
    test_products(out);
    out.to_device = rate(bytes_, [&] { copy(device_.data(), sent_.data()); });
    out.from_device = rate(bytes_, [&] { copy(received_.data(), device_.data()); });
    return out;
  }

  memory::TensorView message() {
    return {device_.data(), Dtype::bf16, {static_cast<std::int64_t>(bytes_ / 2)}};
  }
  void prepare_message() {
    copy(device_.data(), sent_.data());
    synchronize();
  }
  /// Bytes of the message that differ from what rank @p from sends.
  std::int64_t check_message(int from) {
    copy(received_.data(), device_.data());
    synchronize();
    Buffer const wanted("message", Purpose::workspace, bytes_);
    fill_random(wanted.data(), bytes_, static_cast<unsigned>(from) + 1);
    return different_bytes(wanted.data(), received_.data(), bytes_);
  }

 private:
  void synchronize() { queue_.record().wait("a test of the device", gpu_test_deadline); }
  void copy(void* to, void const* from) { memory::copy(queue_, to, from, bytes_); }

  /// Units of @p amount per second in the best round.
  double rate(std::size_t amount, std::function<void()> const& work) {
    double best = std::numeric_limits<double>::max();
    for (int round = 0; round <= rounds; ++round) {
      synchronize();
      auto const start = Clock::now();
      work();
      synchronize();
      if (round > 0) best = std::min(best, seconds_since(start));
    }
    return static_cast<double>(amount) / best;
  }

  /// The pattern in each piece of a quarter of the free memory, read back when all are written.
  void test_memory(GpuFigures& out) {
    std::size_t const pieces =
        std::max<std::size_t>(1, std::min(most_tested, memory::free_device_bytes() / 4) / bytes_);
    Buffer const tested("tested memory", Purpose::workspace, pieces * bytes_, MemorySpace::device);
    auto const piece = [&](std::size_t i) {
      return static_cast<std::byte*>(tested.data()) + i * bytes_;
    };
    copy(device_.data(), sent_.data());
    out.memory = rate(2 * pieces * bytes_, [&] {
      for (std::size_t i = 0; i < pieces; ++i) copy(piece(i), device_.data());
    });
    for (std::size_t i = 0; i < pieces; ++i) {
      copy(received_.data(), piece(i));
      synchronize();
      out.wrong_bytes += different_bytes(sent_.data(), received_.data(), bytes_);
    }
    out.tested_bytes = static_cast<std::int64_t>(pieces * bytes_);
  }

  /// Values of bf16 between -1 and 1; sums are fp32.
  void test_products(GpuFigures& out) {
    std::int64_t const n = memory::free_device_bytes() < (std::size_t{1} << 30) ? 128 : 4096;
    auto const numel = static_cast<std::size_t>(n * n);
    std::mt19937 random(7);
    std::vector<bfloat16> a(numel), b(numel);
    for (auto* const values : {&a, &b})
      for (auto& x : *values)
        x = bfloat16(static_cast<float>(static_cast<int>(random() % 257) - 128) / 128.0f);
    Buffer const device_a("a", Purpose::workspace, 2 * numel, MemorySpace::device),
        device_b("b", Purpose::workspace, 2 * numel, MemorySpace::device),
        device_c("c", Purpose::workspace, 4 * numel, MemorySpace::device);
    memory::copy(queue_, device_a.data(), a.data(), 2 * numel);
    memory::copy(queue_, device_b.data(), b.data(), 2 * numel);
    double const flops = 2.0 * std::pow(static_cast<double>(n), 3.0);
    out.products = rate(static_cast<std::size_t>(flops), [&] {
      kernels::gemm(queue_, {}, {device_c.data(), Dtype::fp32, {n, n}},
                    {device_a.data(), Dtype::bf16, {n, n}}, {device_b.data(), Dtype::bf16, {n, n}});
    });
    std::vector<float> c(numel);
    memory::copy(queue_, c.data(), device_c.data(), 4 * numel);
    synchronize();
    for (int i = 0; i < 4096; ++i) {
      auto const row = static_cast<std::size_t>(random() % n), column = random() % numel % n;
      out.wrong_products += is_wrong(a, b, c, row, column, static_cast<std::size_t>(n)) ? 1 : 0;
    }
  }

  /// fp32 sums of k products below 1 differ from exact ones by less than 2^-24 k sqrt(k).
  static bool is_wrong(std::vector<bfloat16> const& a, std::vector<bfloat16> const& b,
                       std::vector<float> const& c, std::size_t row, std::size_t column,
                       std::size_t n) {
    double exact = 0.0;
    for (std::size_t k = 0; k < n; ++k)
      exact += static_cast<double>(static_cast<float>(a[row * n + k])) *
               static_cast<double>(static_cast<float>(b[k * n + column]));
    auto const size = static_cast<double>(n);
    double const bound = std::ldexp(size * std::sqrt(size), -24);
    return !(std::abs(static_cast<double>(c[row * n + column]) - exact) <= bound);
  }

  memory::Queue& queue_;
  std::size_t bytes_;
  Buffer sent_, received_, device_;
};

ConfigTree to_json(GpuFigures const& f) {
  return ConfigTree::object()
      .set("host", f.host)
      .set("model", f.model)
      .set("bus", f.bus)
      .set("memory", f.memory)
      .set("products", f.products)
      .set("to_device", f.to_device)
      .set("from_device", f.from_device)
      .set("tested", f.tested_bytes)
      .set("wrong_bytes", f.wrong_bytes)
      .set("wrong_products", f.wrong_products);
}

GpuFigures from_json(ConfigTree const& j) {
  return {j.at("host").as_string(),        j.at("model").as_string(),
          j.at("bus").as_string(),         j.at("memory").as_double(),
          j.at("products").as_double(),    j.at("to_device").as_double(),
          j.at("from_device").as_double(), j.at("tested").as_int(),
          j.at("wrong_bytes").as_int(),    j.at("wrong_products").as_int()};
}

/// Seconds of one message, on both of its ranks.
double message_seconds(GpuTest const& where, DeviceTest& device, int from, int to) {
  int const rank = where.comm.rank();
  auto const start = Clock::now();
  where.comm.wait(rank == from ? where.comm.send(device.message(), to, {})
                               : where.comm.receive(device.message(), from, {}));
  return seconds_since(start);
}

/// Fills in what this rank knows of its link: the receiver checks each message.
void test_link(GpuTest const& where, DeviceTest& device, GpuLink& link) {
  auto const bytes = static_cast<double>(device.message().bytes());
  double slower = 0.0;
  for (auto const& [from, to] : {std::pair{link.from, link.to}, std::pair{link.to, link.from}}) {
    device.prepare_message();
    double best = std::numeric_limits<double>::max();
    for (int round = 0; round <= rounds; ++round) {
      double const seconds = message_seconds(where, device, from, to);
      if (round > 0) best = std::min(best, seconds);
    }
    slower = std::max(slower, best);
    if (where.comm.rank() == to) link.wrong_bytes += device.check_message(from);
  }
  link.bandwidth = bytes / slower;
}

std::vector<GpuLink> test_links(GpuTest const& where, DeviceTest& device) {
  std::vector<GpuLink> out;
  int const rank = where.comm.rank();
  for (auto round : link_rounds(where.nodes)) {
    where.comm.barrier();
    for (auto& link : round)
      if (rank == link.from || rank == link.to) test_link(where, device, link);
    for (auto const& link : round) out.push_back(link);
  }
  std::vector<double> wrong, bandwidths;
  for (auto const& link : out) {
    wrong.push_back(static_cast<double>(link.wrong_bytes));
    bandwidths.push_back(link.bandwidth);
  }
  comm::all_reduce_values(where.comm, wrong, comm::ReduceOp::sum);
  comm::all_reduce_values(where.comm, bandwidths, comm::ReduceOp::max);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].wrong_bytes = static_cast<std::int64_t>(wrong[i]);
    out[i].bandwidth = bandwidths[i];
  }
  return out;
}

/// Bus bandwidth of operations of all ranks, of the slowest rank.
void test_fabric(GpuTest const& where, DeviceTest& device, GpuReport& out) {
  int const n = where.comm.size();
  if (n == 1) return;
  auto const whole = device.message();
  auto const each = whole.numel() / n;
  auto const data = whole.rows(0, each * n);
  Buffer const own("shard", Purpose::workspace, static_cast<std::size_t>(each) * 2,
                   MemorySpace::device);
  memory::TensorView const shard(own.data(), Dtype::bf16, {each});
  auto const bandwidth = [&](std::string const& name, auto const& operation) {
    double best = std::numeric_limits<double>::max();
    for (int round = 0; round <= rounds; ++round) {
      where.comm.barrier();
      auto const start = Clock::now();
      where.comm.wait(operation());
      if (round > 0) best = std::min(best, seconds_since(start));
    }
    double const slowest = comm::all_reduce_value(where.comm, best, comm::ReduceOp::max);
    return static_cast<double>(data.bytes()) * comm::bus_factor(name, n) / slowest;
  };
  out.message_bytes = static_cast<std::int64_t>(data.bytes());
  out.all_gather = bandwidth("all_gather", [&] {
    return where.comm.all_gather(data, {each, each, 0}, {});
  });
  out.reduce_scatter = bandwidth("reduce_scatter", [&] {
    return where.comm.reduce_scatter(data, {each, each, 0}, shard, memory::WriteMode::overwrite,
                                     {});
  });
}

}  // namespace

std::vector<std::vector<GpuLink>> link_rounds(std::vector<topology::NodeIndex> const& nodes) {
  std::map<topology::NodeIndex, std::vector<int>> ranks;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    ranks[nodes[rank]].push_back(static_cast<int>(rank));
  std::vector<std::vector<GpuLink>> out;
  for (auto const& [node, of_node] : ranks) {
    std::size_t round = 0;
    for (std::size_t a = 0; a < of_node.size(); ++a)
      for (std::size_t b = a + 1; b < of_node.size(); ++b, ++round) {
        if (out.size() == round) out.emplace_back();
        out[round].push_back({.from = of_node[a], .to = of_node[b]});
      }
  }
  int const count = static_cast<int>(ranks.size());
  int const edges = count > 2 ? count : count - 1;  // a ring
  std::vector<std::vector<GpuLink>> between(3);
  for (int i = 0; i < edges; ++i) {
    auto const &here = ranks[topology::NodeIndex{i}],
               &next = ranks[topology::NodeIndex{(i + 1) % count}];
    auto& round = between[i + 1 == count ? 2 : static_cast<std::size_t>(i % 2)];
    for (std::size_t place = 0; place < std::min(here.size(), next.size()); ++place)
      round.push_back({.from = here[place], .to = next[place], .in_node = false});
  }
  for (auto& round : between)
    if (!round.empty()) out.push_back(std::move(round));
  return out;
}

std::optional<GpuReport> test_gpus(GpuTest const& where) {
  GpuReport out{.compares_speeds = !memory::device_is_simulated()};
  std::optional<DeviceTest> device;
  GpuFigures own;
  comm::run_on_ranks(where.comm, [&] {
    device.emplace(where.compute, where.comm.rank());
    own = device->run();
    own.host = where.host;
  });
  for (auto const& text : comm::gather_bytes(where.comm, to_json(own).dump(), 0))
    out.gpus.push_back(from_json(ConfigTree::parse(text, "figures of a rank")));
  out.links = test_links(where, *device);
  test_fabric(where, *device, out);
  if (where.comm.rank() != 0) return std::nullopt;
  return out;
}

namespace {

constexpr double slow_gpu = 0.8, slow_link = 0.5;
constexpr double giga = 1e-9;

std::string name_of(GpuReport const& report, int rank) {
  auto const& gpu = report.gpus[static_cast<std::size_t>(rank)];
  return fmt::format("rank {} ({} {} {})", rank, gpu.host, gpu.model, gpu.bus);
}

struct Figure {
  char const* name;
  double GpuFigures::*rate;
};
constexpr Figure figures[] = {{"memory", &GpuFigures::memory},
                              {"bf16 products", &GpuFigures::products},
                              {"copies from the host", &GpuFigures::to_device},
                              {"copies to the host", &GpuFigures::from_device}};

void add_wrong_results(GpuReport const& report, std::vector<std::string>& out) {
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    auto const& gpu = report.gpus[i];
    auto const who = name_of(report, static_cast<int>(i));
    if (gpu.wrong_bytes > 0)
      out.push_back(fmt::format("{}: {} of {} of its memory came back changed; take it out of use",
                                who, counted(gpu.wrong_bytes, "byte"),
                                human_bytes(gpu.tested_bytes)));
    if (gpu.wrong_products > 0)
      out.push_back(fmt::format("{}: {} of a matrix product wrong; take it out of use", who,
                                counted(gpu.wrong_products, "element")));
  }
  for (auto const& link : report.links)
    if (link.wrong_bytes > 0)
      out.push_back(fmt::format("{} to {}: {} of a message came back changed",
                                name_of(report, link.from), name_of(report, link.to),
                                counted(link.wrong_bytes, "byte")));
}

void add_slow_gpus(GpuReport const& report, std::vector<std::string>& out) {
  for (auto const& [name, rate] : figures) {
    std::map<std::string, std::vector<double>> by_model;
    for (auto const& gpu : report.gpus) by_model[gpu.model].push_back(gpu.*rate);
    for (std::size_t i = 0; i < report.gpus.size(); ++i) {
      auto const& gpu = report.gpus[i];
      double const usual = median(by_model[gpu.model]);
      if (gpu.*rate < slow_gpu * usual)
        out.push_back(fmt::format("{}: {} at {:.2f} of the median of {}",
                                  name_of(report, static_cast<int>(i)), name, gpu.*rate / usual,
                                  counted(by_model[gpu.model].size(), "GPU")));
    }
  }
}

std::vector<double> bandwidths(GpuReport const& report, bool in_node) {
  std::vector<double> out;
  for (auto const& link : report.links)
    if (link.in_node == in_node) out.push_back(link.bandwidth);
  return out;
}

void add_slow_links(GpuReport const& report, std::vector<std::string>& out) {
  for (auto const& link : report.links) {
    auto const alike = bandwidths(report, link.in_node);
    if (link.bandwidth < slow_link * median(alike))
      out.push_back(fmt::format(
          "{} to {}: {:.1f} GB/s, {:.2f} of the median of {} {}", name_of(report, link.from),
          name_of(report, link.to), giga * link.bandwidth, link.bandwidth / median(alike),
          counted(alike.size(), "link"), link.in_node ? "inside nodes" : "between nodes"));
  }
}

std::string links_line(GpuReport const& report, bool in_node) {
  auto const rates = bandwidths(report, in_node);
  if (rates.empty()) return "";
  auto const [least, most] = std::minmax_element(rates.begin(), rates.end());
  return fmt::format("{} {}: {:.1f} / {:.1f} / {:.1f} GB/s (slowest, median, fastest)\n",
                     counted(rates.size(), "link"), in_node ? "inside nodes" : "between nodes",
                     giga * *least, giga * median(rates), giga * *most);
}

}  // namespace

std::string gpu_table(GpuReport const& report) {
  std::string out =
      fmt::format("{:>5} {:<16} {:<24} {:<14} {:>8} {:>9} {:>10} {:>8} {:>9}\n", "rank", "host",
                  "GPU", "bus", "memory", "products", "from host", "to host", "tested");
  out += fmt::format("{:>5} {:<16} {:<24} {:<14} {:>8} {:>9} {:>10} {:>8} {:>9}\n", "", "", "", "",
                     "GB/s", "TFLOP/s", "GB/s", "GB/s", "");
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    auto const& g = report.gpus[i];
    out += fmt::format("{:>5} {:<16} {:<24} {:<14} {:>8.1f} {:>9.2f} {:>10.1f} {:>8.1f} {:>9}\n", i,
                       g.host, g.model, g.bus, giga * g.memory, 1e-12 * g.products,
                       giga * g.to_device, giga * g.from_device, human_bytes(g.tested_bytes));
  }
  out += links_line(report, true) + links_line(report, false);
  if (report.all_gather > 0.0)
    out += fmt::format(
        "all ranks, {}: all-gather {:.1f} GB/s, reduce-scatter {:.1f} GB/s (bus "
        "bandwidth)\n",
        human_bytes(report.message_bytes), giga * report.all_gather, giga * report.reduce_scatter);
  if (!report.compares_speeds)
    out += "the devices are simulated on the host's cores: their speeds are not compared\n";
  return out;
}

std::vector<std::string> gpu_faults(GpuReport const& report) {
  std::vector<std::string> out;
  add_wrong_results(report, out);
  if (!report.compares_speeds) return out;
  add_slow_gpus(report, out);
  add_slow_links(report, out);
  return out;
}

}  // namespace tessera::cli
