#include "tessera/train/setup/device_choice.hpp"

#include <unistd.h>

#include <numeric>

#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/limits.hpp"
#include "tessera/topology/cores.hpp"
#include "tessera/topology/device_binding.hpp"
#include "tessera/topology/gpu_inventory.hpp"

namespace tessera::train {
namespace {

void set_kernels(config::TrainingArguments const& arguments, bool on_device) {
  TESSERA_VALIDATE(arguments.communication_multiprocessors == 0 || on_device, ConfigError,
                   "--communication_multiprocessors ", arguments.communication_multiprocessors,
                   " needs GPUs, and this run computes on the host; leave it out");
  TESSERA_VALIDATE(arguments.nccl_cta_policy == "default" || on_device, ConfigError,
                   "--nccl_cta_policy ", arguments.nccl_cta_policy,
                   " needs GPUs, and this run computes on the host; leave it out");
  bool const tf32 = arguments.tf32.value_or(false);
  TESSERA_VALIDATE(!tf32 || on_device, ConfigError,
                   "--tf32 true needs a GPU, and this run computes on the host in full fp32; "
                   "leave it out");
  TESSERA_VALIDATE(
      !arguments.device_graphs || on_device, ConfigError,
      "--device_graphs true needs a GPU, and this run computes on the host; leave it out");
  TESSERA_VALIDATE(arguments.device_attention != kernels::DeviceAttention::cudnn || on_device,
                   ConfigError,
                   "--device_attention cudnn needs a GPU, and this run computes on the host; "
                   "leave it out, or give portable");
  TESSERA_VALIDATE(
      arguments.device_gelu != kernels::DeviceGelu::fused || on_device, ConfigError,
      "--device_gelu fused needs a GPU, and this run computes on the host; leave it out");
  TESSERA_VALIDATE(arguments.device_product_algorithms.empty() || on_device, ConfigError,
                   "--device_product_algorithms ", arguments.device_product_algorithms,
                   " needs a GPU, and this run computes on the host; leave it out");
  kernels::set_device_settings({.attention = arguments.device_attention,
                                .tf32 = tf32,
                                .deterministic = arguments.deterministic,
                                .gelu = arguments.device_gelu,
                                .product_algorithms = arguments.device_product_algorithms});
}

/// The reason given by the driver or the runtime, and the environment variables that hide devices.
std::string with_findings(std::string reason) {
  for (auto const& finding : topology::device_view_findings(topology::process_environment()))
    reason += "; " + finding;
  return reason;
}

topology::NodeCores node_cores(topology::MpiSession const& session, int devices) {
  std::vector<std::string> addresses;
  for (int device = 0; device < devices; ++device)
    addresses.push_back(memory::describe_device(device).bus);
  return {topology::core_facts(session).masks, topology::cores_near(addresses)};
}

/// Binds the threads of a rank to the cores near its device, unless the launcher has bound them.
void bind_to(std::vector<int> const& near) {
  std::vector<int> online(static_cast<std::size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  std::iota(online.begin(), online.end(), 0);
  auto const allowed = allowed_cores();
  auto const chosen = topology::cores_to_use(allowed, online, near);
  if (chosen != allowed) use_cores(chosen);
}

/// Ordinal of this rank's GPU, or -1: all ranks compute on the host. Collective.
int choose_gpu(config::TrainingArguments const& arguments, topology::MpiSession const& session,
               comm::Collectives& comm) {
  bool const looks = !arguments.use_cpu && (memory::built_with_gpu() || arguments.needs_gpu);
  auto const found = looks ? memory::find_devices() : memory::DeviceSearch{};
  auto const& info = session.info();
  // the lowest rank without a device gives the reason
  auto const first_without = comm::all_reduce_value(
      comm, std::int64_t{found.count > 0 ? info.world_size : info.rank}, comm::ReduceOp::min);
  set_kernels(arguments, first_without == info.world_size);
  if (!looks) return -1;
  if (first_without == info.world_size) {
    auto const cores = node_cores(session, found.count);
    auto const binding =
        topology::bind_device({info.local_rank, info.local_size}, found.count, cores);
    if (info.rank == 0 && !binding.warning.empty()) log::warning(binding.warning);
    bind_to(cores.near_device[static_cast<std::size_t>(binding.ordinal)]);
    auto settings = kernels::device_settings();
    settings.product_multiprocessors = multiprocessors_of_products(
        arguments.communication_multiprocessors, memory::multiprocessors_of_device(binding.ordinal),
        info.world_size);
    kernels::set_device_settings(settings);
    return binding.ordinal;
  }
  std::string const why =
      comm::broadcast_bytes(comm, with_findings(found.reason), static_cast<int>(first_without));
  std::string const where = concat("rank ", first_without, " on ",
                                   session.hosts()[static_cast<std::size_t>(first_without)]);
  TESSERA_VALIDATE(!arguments.needs_gpu, ConfigError, "--device gpu: no GPU for ", where, ": ", why,
                   ". Run on nodes with GPUs, or compute on the host with --device cpu");
  if (info.rank == 0)
    log::info(concat("no GPU for ", where, ": ", why,
                     "; all ranks compute on the host (--device gpu makes this an error)"));
  return -1;
}

/// A device of --device_memory in host memory, when the run has no GPU.
int simulated_device(std::int64_t bytes, topology::MpiSession const& session) {
  if (bytes == 0) return -1;
  auto const ranks = static_cast<std::int64_t>(session.info().local_size);
  auto const left = memory::available_memory();
  TESSERA_VALIDATE(static_cast<std::size_t>(bytes * ranks) <= left.bytes, ConfigError,
                   "--device_memory is ", human_bytes(bytes), " on each of ",
                   counted(ranks, "rank"), " of host ", session.info().host,
                   ", which simulates these devices in its memory and has ",
                   human_bytes(static_cast<std::int64_t>(left.bytes)), " left (", left.limited_by,
                   "); lower --device_memory or use fewer ranks per node");
  memory::simulate_device({.memory_bytes = static_cast<std::size_t>(bytes)});
  return 0;
}

/// Host memory near the cores of this rank, where they are not next to all of the host's memory.
void place_host_memory(bool is_root) {
  auto const nodes = topology::numa_nodes_near(allowed_cores());
  if (nodes.empty()) return;
  bool const placed = memory::use_numa_nodes(nodes);
  if (!is_root) return;
  std::string list;
  for (int const node : nodes) list += concat(list.empty() ? "" : ", ", node);
  log::info(concat("host memory of rank 0 ", placed ? "prefers" : "cannot be placed on", " NUMA ",
                   plural(std::ssize(nodes), "node"), " ", list, ", next to its cores",
                   placed ? "" : " (the system refuses mbind)"));
}

}  // namespace

void require_copy_engines(memory::DeviceInfo const& device, std::string const& where) {
  TESSERA_VALIDATE(device.driver >= 12050, ConfigError, "--nccl_cta_policy zero: the driver of ",
                   where, " is for runtime ", device.driver / 1000, ".", device.driver % 1000 / 10,
                   ", and NCCL's collectives by copy engines need 12.5; leave the option out");
}

void require_fp8(memory::DeviceInfo const& device, std::string const& where) {
  TESSERA_VALIDATE(device.major * 10 + device.minor >= 89, ConfigError, "--fp8 true: ", device.name,
                   " of ", where, " has compute capability ", device.major, ".", device.minor,
                   ", and fp8 products need 8.9 or later (Ada, Hopper, Blackwell); leave fp8 out");
}

void warn_of_emulated_fp8() {
  log::warning(
      "--fp8 true on the host: fp8 products are emulated in fp32, to check their accuracy; "
      "they are slower than bf16 products");
}

int multiprocessors_of_products(std::int64_t communication, int all, int ranks) {
  if (communication == 0 || ranks == 1) return 0;
  TESSERA_VALIDATE(
      communication < all, ConfigError, "--communication_multiprocessors is ", communication,
      ", and the GPU has ", all,
      " multiprocessors: none would be left for matrix products; use a smaller number");
  return all - static_cast<int>(communication);
}

int choose_device(config::TrainingArguments const& arguments, topology::MpiSession const& session,
                  comm::Collectives& comm) {
  auto const bounds = config::memory_bounds(arguments);
  memory::limit_memory(memory::MemorySpace::device, static_cast<std::size_t>(bounds.device));
  int const gpu = choose_gpu(arguments, session, comm);
  place_host_memory(session.info().rank == 0);
  int device = gpu;
  auto const where = concat("rank ", session.info().rank, " on ", session.info().host);
  if (gpu >= 0 && arguments.fp8)
    comm::run_on_ranks(comm, true, [&] { require_fp8(memory::describe_device(gpu), where); });
  if (gpu >= 0 && arguments.nccl_cta_policy == "zero")
    comm::run_on_ranks(comm, true,
                       [&] { require_copy_engines(memory::describe_device(gpu), where); });
  if (gpu < 0)
    comm::run_on_ranks(comm, true, [&] { device = simulated_device(bounds.device, session); });
  memory::limit_memory(memory::MemorySpace::host, static_cast<std::size_t>(bounds.host));
  return device;
}

}  // namespace tessera::train
