#include "tessera/train/report/swap_report.hpp"

#include <fmt/format.h>

#include <set>

#include "tessera/core/text.hpp"
#include "tessera/memory/swap_file.hpp"

namespace tessera::train {
namespace {

std::string bytes_text(std::size_t count) { return human_bytes(static_cast<std::int64_t>(count)); }

std::string text_of(memory::SwapDirectories const& directories) {
  std::string out;
  for (auto const& directory : directories)
    out += concat(out.empty() ? "" : ":", directory.string());
  return out;
}

/// Of states on a drive, and of weights.
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

}  // namespace tessera::train
