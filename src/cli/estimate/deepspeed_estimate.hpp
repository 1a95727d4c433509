#pragma once
/// DeepSpeed's estimates of the memory of model states: the numbers that its users know.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/model/decoder/causal_lm.hpp"

namespace tessera::cli {

struct EstimatedModel {
  std::int64_t parameters = 0;
  std::int64_t largest_layer = 0;  ///< parameters of the largest module, without its submodules
};
struct EstimatedHardware {
  int nodes = 1;
  int gpus_per_node = 1;
  double buffer_factor = 1.5;  ///< additional_buffer_factor: of host memory
};
struct EstimateRow {
  std::int64_t host_bytes = 0;  ///< per node
  std::int64_t gpu_bytes = 0;
  std::string options;
};

/// estimate_zero2_model_states_mem_needs() for all options: with P parameters on n nodes of g GPUs,
/// N = n g, factor f
///   offload  host P max(4 N, 16) f   GPU 2 P
///   none     host 4 P g f            GPU 2 P + 18 P / N
std::vector<EstimateRow> estimate_zero2(EstimatedModel const& model, EstimatedHardware const& on);
/// estimate_zero3_model_states_mem_needs(), with L the largest layer:
///   optimizer and parameters  host P 18/n f            GPU 4 L
///   optimizer                 host P 16/n f            GPU 4 L + 2 P / N
///   none                      host 4 L g f             GPU 4 L + 18 P / N
/// without zero.Init the host first holds 4 P g f, and 18/n, 16/n are at least 4 g
std::vector<EstimateRow> estimate_zero3(EstimatedModel const& model, EstimatedHardware const& on);

/// A module's own parameters are those whose names differ in the last part only.
EstimatedModel totals_of(model::CausalLm const& model);

/// Writes the estimates for a device in one line: "stage 2 18 GiB, with offload 3.0 GiB; stage 3
/// ...".
std::string device_estimates_text(EstimatedModel const& model, EstimatedHardware const& on);

/// The tables that estimate_zero2_..._all_cold() and estimate_zero3_..._all_cold() print; "GB" is
/// 2^30 bytes there.
std::string zero2_table(EstimatedModel const& model, EstimatedHardware const& on);
std::string zero3_table(EstimatedModel const& model, EstimatedHardware const& on);

}  // namespace tessera::cli
