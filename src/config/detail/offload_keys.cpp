#include "detail/offload_keys.hpp"

#include <algorithm>
#include <tuple>

#include "tessera/core/error.hpp"

namespace tessera::config {

char const* name_of(OffloadDevice device) {
  switch (device) {
    case OffloadDevice::cpu:
      return "cpu";
    case OffloadDevice::nvme:
      return "nvme";
    default:
      return "none";
  }
}

namespace detail {
namespace {

using enum OptionType;

char const* const by_default = "its default";
std::string const zero = "zero_optimization.";
char const* const directories =
    "device nvme: directory on the drive; several, separated by ':', are striped";

void add_flags(
    OptionTable& t, std::string const& block,
    std::initializer_list<std::tuple<char const*, bool, char const*, char const*>> flags) {
  for (auto const& [name, preset, meaning, hint] : flags)
    t.add(boolean, block + name, preset, meaning).auto_is(by_default).hint(hint);
}

void add_offload_param(OptionTable& t) {
  std::string const block = zero + "offload_param.";
  t.add(choice, block + "device", "none", "memory space of the weights in stage 3")
      .one_of({"none", "cpu", "nvme"})
      .auto_is("none");
  t.add(path, block + "nvme_path", {}, directories).auto_is(by_default);
  t.add(boolean, block + "pin_memory", true,
        "pinned host memory for weights of a device; no effect on CPUs")
      .auto_is(by_default);
  t.add(integer, block + "buffer_count", 5, "device nvme: shards of units in memory")
      .at_least(1)
      .at_most(1024)
      .auto_is(by_default);
  t.add(integer, block + "buffer_size", 100000000,
        "device nvme: most elements of a rank's shard of a unit")
      .at_least(1)
      .auto_is(by_default);
  t.add(integer, block + "max_in_cpu", 1000000000,
        "device nvme: elements per rank that host memory keeps, first units first")
      .at_least(0)
      .auto_is(by_default);
}

void add_offload_optimizer(OptionTable& t) {
  std::string const block = zero + "offload_optimizer.";
  t.add(choice, block + "device", "none",
        "memory space of the optimizer's states and the master weights")
      .one_of({"none", "cpu", "nvme"})
      .auto_is("none");
  t.add(path, block + "nvme_path", {}, directories).auto_is(by_default);
  t.add(integer, block + "buffer_count", 4, "tiles that are updated or transferred at a time")
      .at_least(1)
      .at_most(1024)
      .auto_is(by_default);
  t.add(boolean, block + "pin_memory", true,
        "pinned host memory for gradients and returning weights; no effect on CPUs")
      .auto_is(by_default);
  char const* const overlaps = "no effect: reads and writes always overlap the update";
  add_flags(t, block,
            {{"pipeline", false, "overlap reads and writes", overlaps},
             {"pipeline_read", false, "overlap reads", overlaps},
             {"pipeline_write", false, "overlap writes", overlaps},
             {"fast_init", false, "fast initialization", "no effect: it always is"}});
  t.add(boolean, block + "super_offload", false, "states move between GPU and CPU")
      .refuse("it needs a GPU with coherent memory; leave it out");
  t.add(real, block + "ratio", 1.0,
        "fraction of the elements that the host updates, at least; 1 with device nvme; no effect "
        "on CPUs")
      .at_least(0)
      .at_most(1)
      .auto_is(by_default);
  t.add(real, block + "cpuadam_cores_perc", 0.8, "fraction of the cores")
      .at_least(0)
      .at_most(1)
      .auto_is(by_default)
      .hint("no effect: the update uses the cores of the rank");
}

OffloadDevice device_of(ConfigTree const* value) {
  std::string const name = value ? value->as_string() : "none";
  return name == "cpu"    ? OffloadDevice::cpu
         : name == "nvme" ? OffloadDevice::nvme
                          : OffloadDevice::none;
}

void check_nvme(Offload const& o, std::int64_t stage, std::string const& source) {
  TESSERA_VALIDATE(o.optimizer != OffloadDevice::nvme || stage > 0, ConfigError, source,
                   ": offload_optimizer.device \"nvme\" needs zero_optimization.stage 1, 2 or 3");
  for (auto const& [device, block, paths] :
       {std::tuple{o.optimizer, "offload_optimizer", &o.nvme_path},
        {o.parameters, "offload_param", &o.parameters_nvme_path}}) {
    if (device != OffloadDevice::nvme) continue;
    bool const is_empty = paths->empty() || paths->front() == ':' || paths->back() == ':' ||
                          paths->find("::") != std::string::npos;
    TESSERA_VALIDATE(!is_empty, ConfigError, source, ": ", block,
                     ".device is \"nvme\" and nvme_path ",
                     paths->empty() ? "is missing" : concat("\"", *paths, "\" has an empty name"),
                     "; name a directory on a local NVMe drive, or several separated by ':'");
  }
  TESSERA_VALIDATE(o.ratio == 1.0 || o.optimizer != OffloadDevice::nvme, ConfigError, source,
                   ": offload_optimizer.ratio is ", o.ratio,
                   " with device \"nvme\", which takes all states; leave ratio out");
  TESSERA_VALIDATE(o.block_size % 4096 == 0, ConfigError, source, ": aio.block_size is ",
                   o.block_size, "; it must be a multiple of 4096 bytes");
}

}  // namespace

void add_offload(OptionTable& t) {
  add_offload_param(t);
  add_offload_optimizer(t);
}

void add_aio(OptionTable& t) {
  t.group("Disk");
  t.add(integer, "aio.block_size", 1048576, "bytes of one read or write, a multiple of 4096")
      .at_least(4096);
  t.add(integer, "aio.queue_depth", 8, "reads in flight, and writes in flight")
      .at_least(1)
      .at_most(128);
  t.add(integer, "aio.intra_op_parallelism", 1, "threads of one transfer")
      .at_least(1)
      .at_most(64)
      .alias("aio.thread_count");
  t.add(boolean, "aio.single_submit", false, "submit requests one by one");
  t.add(boolean, "aio.overlap_events", true,
        "submit further requests before all earlier ones have completed");
  t.add(boolean, "aio.use_gds", false, "GPUDirect Storage").refuse("leave it out");
}

ResolvedOffload resolve_offload(
    std::function<ConfigTree const*(std::string const& key)> const& written, std::int64_t stage,
    std::string const& source) {
  ResolvedOffload out;
  Offload& o = out.offload;
  std::string const optimizer = zero + "offload_optimizer.";
  o.optimizer = device_of(written(optimizer + "device"));
  o.parameters = device_of(written(zero + "offload_param.device"));
  if (o.parameters != OffloadDevice::none && stage != 3) {  // as in DeepSpeed
    o.parameters = OffloadDevice::none;
    out.notes.push_back(concat("offload_param: no effect at zero_optimization.stage ", stage,
                               ", where every rank keeps the weights; stage 3 offloads them"));
  }
  if (o.optimizer == OffloadDevice::cpu || o.parameters == OffloadDevice::cpu)
    out.notes.emplace_back(offload_to_cpu);
  std::string const parameters = zero + "offload_param.";
  if (o.parameters != OffloadDevice::none)
    if (auto const* pin = written(parameters + "pin_memory"))
      o.parameters_pin_memory = pin->as_bool();
  if (o.optimizer == OffloadDevice::none && !o.uses_nvme()) return out;
  for (auto const& [key, field] : {std::pair{optimizer + "nvme_path", &o.nvme_path},
                                   {parameters + "nvme_path", &o.parameters_nvme_path}})
    if (auto const* given = written(key)) *field = given->as_string();
  for (auto const& [key, field] :
       {std::pair{optimizer + "buffer_count", &o.buffer_count},
        {zero + "sub_group_size", &o.tile_numel},
        {parameters + "buffer_count", &o.parameters_buffer_count},
        {parameters + "buffer_size", &o.parameters_buffer_size},
        {parameters + "max_in_cpu", &o.max_in_cpu},
        {std::string("aio.block_size"), &o.block_size},
        {std::string("aio.queue_depth"), &o.queue_depth},
        {std::string("aio.intra_op_parallelism"), &o.intra_op_parallelism}})
    if (auto const* given = written(key)) *field = given->as_int();
  for (auto const& [key, field] : {std::pair{"aio.single_submit", &o.single_submit},
                                   {"aio.overlap_events", &o.overlap_events}})
    if (auto const* given = written(key)) *field = given->as_bool();
  o.tile_numel = std::min(o.tile_numel, Offload{}.tile_numel);
  if (auto const* pin = written(optimizer + "pin_memory")) o.pin_memory = pin->as_bool();
  if (auto const* ratio = written(optimizer + "ratio")) o.ratio = ratio->as_double();
  if (o.uses_nvme()) check_nvme(o, stage, source);
  return out;
}

}  // namespace detail
}  // namespace tessera::config
