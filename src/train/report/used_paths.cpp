#include "tessera/train/report/used_paths.hpp"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "tessera/comm/nccl/nccl_use.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/kernels/launch/used_routes.hpp"
#include "tessera/memory/runtime.hpp"

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
      "CUDA graphs of step {}: {} replayed, {} updated, {} captured, {} launched kernel by "
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
        "; gradients reduced in {}{} {}, at most {} elements per message",
        name_of(engine.communication_dtype),
        zero::settings<zero::ShardedGradients>(engine).reduce_once ? " once per step" : "",
        engine.overlap_comm ? "while backward continues" : "without overlap",
        with_commas(engine.reduce_bucket_size));
  if (auto const nccl = comm::nccl_use()) out += "; " + comm::nccl_use_text(*nccl);
  auto const pages = resident_pages();
  return out + fmt::format("; {}, {} of {} in huge pages",
                           counted(memory::Runtime::threads(), "thread"), human_bytes(pages.huge),
                           human_bytes(pages.all));
}

}  // namespace tessera::train
