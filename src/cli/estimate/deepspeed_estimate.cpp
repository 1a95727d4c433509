#include "estimate/deepspeed_estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

std::int64_t truncated(double bytes) { return static_cast<std::int64_t>(bytes); }

std::string header(EstimatedHardware const& on) {
  return fmt::format(
      "Estimated memory needed for params, optim states and gradients for a:\n"
      "HW: Setup with {} {}, {} {} per node.\n",
      on.nodes, on.nodes > 1 ? "nodes" : "node", on.gpus_per_node,
      on.gpus_per_node > 1 ? "GPUs" : "GPU");
}

std::string millions(std::int64_t parameters) {
  return fmt::format("{}M", truncated(static_cast<double>(parameters) / 1e6));
}

std::string table(std::vector<EstimateRow> const& rows) {
  constexpr double gib = 1 << 30;
  std::string out = "  per CPU  |  per GPU |   Options\n";
  for (auto const& row : rows)
    out += fmt::format(" {:7.2f}GB | {:6.2f}GB | {}\n", static_cast<double>(row.host_bytes) / gib,
                       static_cast<double>(row.gpu_bytes) / gib, row.options);
  return out;
}

}  // namespace

EstimatedModel totals_of(model::CausalLm const& model) {
  std::map<std::string, std::int64_t> modules;
  EstimatedModel out;
  for (auto const& unit : model.units())
    for (auto const& parameter : unit.parameters) {
      modules[parameter.name.substr(0, parameter.name.rfind('.'))] += parameter.numel();
      out.parameters += parameter.numel();
    }
  for (auto const& [name, numel] : modules) out.largest_layer = std::max(out.largest_layer, numel);
  return out;
}

std::string device_estimates_text(EstimatedModel const& model, EstimatedHardware const& on) {
  auto const zero2 = estimate_zero2(model, on), zero3 = estimate_zero3(model, on);
  auto const size = [](std::vector<EstimateRow> const& rows, char const* options) {
    for (auto const& row : rows)
      if (row.options.starts_with(options)) return human_bytes(row.gpu_bytes);
    return std::string("-");
  };
  return fmt::format(
      "stage 2 {}, with offload_optimizer {}; stage 3 {}, with offload_optimizer {}, and "
      "offload_param {}",
      size(zero2, "offload_optimizer=none"), size(zero2, "offload_optimizer=cpu"),
      size(zero3, "offload_param=none, offload_optimizer=none"),
      size(zero3, "offload_param=none, offload_optimizer=cpu"), size(zero3, "offload_param=cpu"));
}

std::vector<EstimateRow> estimate_zero2(EstimatedModel const& model, EstimatedHardware const& on) {
  auto const p = static_cast<double>(model.parameters);
  double const per_node = on.gpus_per_node, all = on.nodes * per_node, f = on.buffer_factor;
  return {{truncated(p * std::max(4 * all, 16.0) * f), truncated(2 * p), "offload_optimizer=cpu"},
          {truncated(p * 4 * per_node * f), truncated(2 * p) + truncated(18 * p / all),
           "offload_optimizer=none"}};
}

std::vector<EstimateRow> estimate_zero3(EstimatedModel const& model, EstimatedHardware const& on) {
  auto const p = static_cast<double>(model.parameters);
  auto const largest = static_cast<double>(model.largest_layer);
  double const per_node = on.gpus_per_node, all = on.nodes * per_node, f = on.buffer_factor;
  double const part = 1.0 / on.nodes;
  std::int64_t const layer = 4 * model.largest_layer;
  std::vector<EstimateRow> rows;
  auto const add = [&](double host_partitioned, double host_complete, std::int64_t gpu,
                       char const* options) {
    rows.push_back({truncated(host_partitioned), gpu, fmt::format("{}, zero_init=1", options)});
    rows.push_back({truncated(host_complete), gpu, fmt::format("{}, zero_init=0", options)});
  };
  add(p * 18 * part * f, p * std::max(4 * per_node, 18 * part) * f, layer,
      "offload_param=cpu , offload_optimizer=cpu ");
  add(p * 16 * part * f, p * std::max(4 * per_node, 16 * part) * f, layer + truncated(2 * p / all),
      "offload_param=none, offload_optimizer=cpu ");
  add(largest * 4 * per_node * f, p * 4 * per_node * f, layer + truncated(18 * p / all),
      "offload_param=none, offload_optimizer=none");
  return rows;
}

std::string zero2_table(EstimatedModel const& model, EstimatedHardware const& on) {
  return fmt::format("{}SW: Model with {} total params.\n{}", header(on),
                     millions(model.parameters), table(estimate_zero2(model, on)));
}

std::string zero3_table(EstimatedModel const& model, EstimatedHardware const& on) {
  return fmt::format("{}SW: Model with {} total params, {} largest layer params.\n{}", header(on),
                     millions(model.parameters), millions(model.largest_layer),
                     table(estimate_zero3(model, on)));
}

}  // namespace tessera::cli
