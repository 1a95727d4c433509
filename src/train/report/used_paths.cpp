#include "tessera/train/report/used_paths.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "tessera/comm/nccl/nccl_use.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/kernels/launch/used_routes.hpp"
#include "tessera/memory/limits.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/memory/swap_file.hpp"

namespace tessera::train {
namespace {

/// The number of a line "Name:   123 kB" in bytes.
std::int64_t kilobytes(std::string const& line) {
  std::istringstream in(line.substr(line.find(':') + 1));
  std::int64_t count = 0;
  in >> count;
  return count * 1024;
}

char const* reduction_codes(zero::QuantizedGradients const& gradients) {
  if (gradients.ranks_per_node == 1) return "int4";
  return "int8 in nodes, int4 between nodes";
}

ConfigTree nccl_status(comm::NcclUse const& use) {
  using Kind = comm::NcclMemoryKind;
  return ConfigTree()
      .set("version", use.version)
      .set("communicators", use.communicators)
      .set("cta_policy", std::string(name_of(use.cta_policy)))
      .set("symmetric_windows", use.count(Kind::window))
      .set("registered_buffers", use.count(Kind::registered))
      .set("plain_buffers", use.count(Kind::plain));
}

}  // namespace

ResidentPages resident_pages() {
  ResidentPages out;
  std::ifstream in("/proc/self/smaps_rollup");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("Rss:")) out.all = kilobytes(line);
    if (line.starts_with("AnonHugePages:") || line.starts_with("ShmemPmdMapped:"))
      out.huge += kilobytes(line);
  }
  return out;
}

ConfigTree used_paths(zero::EngineConfig const& engine, int ranks) {
  ConfigTree out;
  for (auto const& used : kernels::used_routes()) {
    ConfigTree routes = out.find(used.computation) ? *out.find(used.computation) : ConfigTree();
    routes.set(used.route, used.calls);
    out.set(used.computation, routes);
  }
  auto const& weights = zero::settings<zero::ShardedWeights>(engine);
  auto const& quantized = weights.quantized_gradients;
  if (ranks > 1 && quantized)
    out.set("gradient reduction", ConfigTree()
                                      .set("dtype", reduction_codes(*quantized))
                                      .set("error_feedback", quantized->feedback.has_value())
                                      .set("overlap", engine.overlap_comm));
  else if (ranks > 1)
    out.set("gradient reduction",
            ConfigTree()
                .set("dtype", std::string(name_of(engine.communication_dtype)))
                .set("overlap", engine.overlap_comm)
                .set("every_micro_step", zero::reduces_micro_steps(engine))
                .set("largest_message", engine.reduce_bucket_size));
  if (ranks > 1 && weights.quantized_weight_bits > 0)
    out.set("weight gathers",
            ConfigTree().set("dtype", concat("int", weights.quantized_weight_bits)));
  if (auto const nccl = comm::nccl_use()) out.set("NCCL", nccl_status(*nccl));
  auto const pages = resident_pages();
  out.set("threads", memory::Runtime::threads());
  out.set("huge_page_bytes", pages.huge).set("resident_bytes", pages.all);
  return out;
}

ConfigTree graph_status(memory::GraphLaunches const& launches) {
  return ConfigTree()
      .set("replayed", launches.replayed)
      .set("updated", launches.updated)
      .set("captured", launches.captured)
      .set("separate", launches.separate);
}

std::string graph_text(std::int64_t step, memory::GraphLaunches const& launches) {
  auto const out = fmt::format(
      "device graphs of step {}: {} replayed, {} updated, {} captured, {} launched kernel by "
      "kernel",
      step, launches.replayed, launches.updated, launches.captured, launches.separate);
  if (launches.replayed > 0) return out;
  return out +
         "; capturing costs the host what launching the kernels does, and is repeated because "
         "operands of the blocks differ in each step: dropout does that, and rows of new lengths";
}

std::string used_paths_text(zero::EngineConfig const& engine, int ranks) {
  std::string out = kernels::used_routes_text();
  auto const& weights = zero::settings<zero::ShardedWeights>(engine);
  auto const& quantized = weights.quantized_gradients;
  if (ranks > 1 && weights.quantized_weight_bits > 0)
    out += fmt::format("; weights gathered as int{} codes", weights.quantized_weight_bits);
  if (ranks > 1 && quantized)
    out += fmt::format("; gradients reduced as codes ({}{}) {}", reduction_codes(*quantized),
                       quantized->feedback ? ", error feedback" : "",
                       engine.overlap_comm ? "while backward continues" : "without overlap");
  else if (ranks > 1)
    out += fmt::format(
        "; gradients reduced in {}{} {}, {} per message", name_of(engine.communication_dtype),
        zero::settings<zero::ShardedGradients>(engine).reduce_once ? " once per step" : "",
        engine.overlap_comm ? "while backward continues" : "without overlap",
        engine.reduce_bucket_size == std::numeric_limits<std::int64_t>::max()
            ? "a unit"
            : concat("at most ", with_commas(engine.reduce_bucket_size), " elements"));
  if (auto const nccl = comm::nccl_use()) out += "; " + comm::nccl_use_text(*nccl);
  auto const pages = resident_pages();
  return out + fmt::format("; {}, {} of {} in huge pages",
                           counted(memory::Runtime::threads(), "thread"), human_bytes(pages.huge),
                           human_bytes(pages.all));
}

namespace {

std::string bytes_text(std::size_t count) { return human_bytes(static_cast<std::int64_t>(count)); }

std::string text_of(memory::SwapDirectories const& directories) {
  std::string out;
  for (auto const& directory : directories)
    out += concat(out.empty() ? "" : ":", directory.string());
  return out;
}

/// Returns the transfer options of states and of weights on a drive.
std::vector<memory::SwapOptions const*> transfers_of(zero::EngineConfig const& config) {
  std::vector<memory::SwapOptions const*> out;
  if (auto const& swap = zero::settings<zero::ShardedStates>(config).optimizer_swap)
    out.push_back(&swap->transfers);
  if (auto const& swap = zero::settings<zero::ShardedWeights>(config).weight_swap)
    out.push_back(&swap->transfers);
  return out;
}

/// Waiting that a user may want to change.
constexpr double noticed_share = 0.05;

std::string ahead_text(std::int64_t units, std::int64_t most) {
  return most == 1 ? "1 unit" : fmt::format("{} of up to {} units", units, most);
}

std::string advice(zero::PrefetchReport const& report) {
  if (report.seconds() > report.compute_seconds)
    return "; transfers take longer than the computation: a larger batch hides more of them, and "
           "so do weights that stay in memory (max_in_cpu)";
  bool const reads_at_limit =
      report.max_read_units > 0 && report.read_units == report.max_read_units;
  return concat("; a larger ",
                reads_at_limit ? "offload_param.buffer_count" : "stage3_prefetch_bucket_size",
                " may hide more of it");
}

std::int64_t whole(std::size_t count) { return static_cast<std::int64_t>(count); }

}  // namespace

std::string swap_method_text(zero::SwapUse const& use) {
  return concat(
      use.method.is_uring
          ? "io_uring"
          : concat("threads with pread and pwrite (no io_uring: ", use.method.why, ")"),
      use.is_direct ? ", O_DIRECT" : ", through the page cache (the file system has no O_DIRECT)");
}

std::vector<std::string> swap_lines(zero::EngineConfig const& config,
                                    zero::MemoryReport const& memory) {
  std::vector<std::string> out;
  if (!memory.swap) return out;
  if (auto const& swap = zero::settings<zero::ShardedStates>(config).optimizer_swap)
    out.push_back(fmt::format(
        "on NVMe per rank: {} of master weights and optimizer states in {}, {} of up to {} "
        "elements in memory",
        bytes_text(memory.swapped - memory.swapped_weights), text_of(swap->transfers.directories),
        counted(swap->buffer_count, "tile"), with_commas(swap->tile_numel)));
  if (auto const& swap = zero::settings<zero::ShardedWeights>(config).weight_swap)
    out.push_back(fmt::format("on NVMe per rank: {} of weights in {}, {} of units in memory",
                              bytes_text(memory.swapped_weights),
                              text_of(swap->transfers.directories),
                              counted(swap->buffer_count, "shard")));
  auto const& transfers = *transfers_of(config).front();
  out.push_back(fmt::format("swap files by {}: {} reads and as many writes of {} in flight",
                            swap_method_text(*memory.swap),
                            transfers.queue_depth * transfers.parallelism,
                            bytes_text(transfers.block_size)));
  return out;
}

std::vector<std::string> swap_warnings(zero::EngineConfig const& config) {
  std::set<std::filesystem::path> directories;
  for (auto const* transfers : transfers_of(config))
    directories.insert(transfers->directories.begin(), transfers->directories.end());
  std::vector<std::string> out;
  for (auto const& directory : directories)
    if (memory::is_in_memory(directory))
      out.push_back(concat("nvme_path ", directory.string(),
                           " is on a file system in memory (tmpfs): swap files there save no "
                           "memory; name a directory on a drive"));
  return out;
}

ConfigTree swap_status(zero::EngineConfig const& config, zero::MemoryReport const& memory) {
  auto const& transfers = *transfers_of(config).front();
  return ConfigTree::object()
      .set("method", memory.swap->method.is_uring ? "io_uring" : "threads")
      .set("why_not_io_uring", memory.swap->method.why)
      .set("o_direct", memory.swap->is_direct)
      .set("weights_bytes_per_rank", whole(memory.swapped_weights))
      .set("optimizer_bytes_per_rank", whole(memory.swapped - memory.swapped_weights))
      .set("block_size", whole(transfers.block_size))
      .set("queue_depth", std::int64_t{transfers.queue_depth})
      .set("intra_op_parallelism", std::int64_t{transfers.parallelism});
}

std::string prefetch_text(zero::PrefetchReport const& report) {
  double const pass = report.compute_seconds + report.waiting_seconds;
  double const share = pass > 0 ? report.waiting_seconds / pass : 0.0;
  std::string out = concat("weights are transferred ", ahead_text(report.units, report.max_units),
                           " ahead of the computation");
  if (report.max_read_units > 0)
    out += concat(", and read ", ahead_text(report.read_units, report.max_read_units), " ahead");
  out += fmt::format(": in a pass the computation takes {:.3g} s, transfers {:.3g} s",
                     report.compute_seconds, report.transfer_seconds);
  if (report.max_read_units > 0) out += fmt::format(", reads {:.3g} s", report.read_seconds);
  out += fmt::format("; {:.1f} % of a pass waits for weights", 100 * share);
  return share > noticed_share ? out + advice(report) : out;
}

ConfigTree prefetch_status(zero::PrefetchReport const& report) {
  return ConfigTree::object()
      .set("units_ahead", report.units)
      .set("max_units_ahead", report.max_units)
      .set("read_units_ahead", report.read_units)
      .set("max_read_units_ahead", report.max_read_units)
      .set("transfer_seconds", report.transfer_seconds)
      .set("read_seconds", report.read_seconds)
      .set("compute_seconds", report.compute_seconds)
      .set("waiting_seconds", report.waiting_seconds);
}

namespace {

std::string text(std::size_t bytes) { return human_bytes(static_cast<std::int64_t>(bytes)); }

std::string text(memory::MemoryTracker const& tracker) {
  using enum memory::Purpose;
  std::string out;
  for (auto const purpose : {weights, gradients, master_weights, optimizer_state, communication,
                             activations, workspace, data})
    if (tracker.peak(purpose) > 0)
      out += concat(" ", name_of(purpose), " ", text(tracker.current(purpose)), " / ",
                    text(tracker.peak(purpose)), ",");
  return concat(out, " total ", text(tracker.current_total()), " / ", text(tracker.peak_total()));
}

ConfigTree tree(memory::SpaceUse const& use) {
  return ConfigTree::object()
      .set("now", static_cast<std::int64_t>(use.now))
      .set("peak", static_cast<std::int64_t>(use.peak));
}

}  // namespace

std::string memory_text() {
  std::string const host =
      concat("host memory of rank 0 (now / peak):", text(memory::MemoryTracker::of_process()));
  auto const pinned = memory::memory_use().pinned;
  std::string const part =
      pinned.peak > 0 ? concat(", pinned ", text(pinned.now), " / ", text(pinned.peak)) : "";
  if (memory::Runtime::device() < 0) return host + part;
  return concat("device memory of rank 0 (now / peak):", text(memory::MemoryTracker::of_device()),
                "; ", host, part);
}

ConfigTree memory_tree(std::size_t nvme) {
  auto const use = memory::memory_use();
  auto out = ConfigTree::object();
  if (memory::Runtime::device() >= 0)
    out.set("device", tree(use.device)).set("pinned", tree(use.pinned));
  out.set("host", tree(use.host));
  if (nvme > 0) out.set("nvme", tree({nvme, nvme}));
  return out;
}

}  // namespace tessera::train
