#pragma once
/// Plans for tests: arguments as words, and a machine with round numbers.

#include <string>
#include <vector>

#include "tessera/plan/planner.hpp"

namespace tessera::plan::test {

inline std::vector<std::string> small_gpt2(std::vector<std::string> const& more = {}) {
  std::vector<std::string> words{"--model_type",
                                 "gpt2",
                                 "--config_overrides",
                                 "n_embd=256,n_layer=4,n_head=4,n_positions=128,vocab_size=4096",
                                 "--bf16",
                                 "--block_size",
                                 "128"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// 1 TFLOP/s, 1 GB/s everywhere, no latency.
inline MachineProfile round_machine() {
  MachineProfile m;
  m.name = "round";
  m.has_device = true;
  m.peak = {{Dtype::fp32, 1e12}, {Dtype::fp16, 1e12}, {Dtype::bf16, 1e12}};
  m.memory_bandwidth = m.host_memory_bandwidth = 1e9;
  m.host_link = m.intra_node = m.inter_node = {0.0, 1e9};
  m.drive_read = m.drive_write = 1e9;
  return m;
}

inline PlanRequest request(std::vector<std::string> const& words, Cluster cluster = {1, 4}) {
  PlanRequest out;
  out.arguments = config::parse_options(words);
  out.cluster = cluster;
  return out;
}

}  // namespace tessera::plan::test
