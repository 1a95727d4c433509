#pragma once
/// On how many ranks a training may continue with the same steps: the samples of a global batch
/// stay the same.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

class WorldRule {
 public:
  using Words = std::vector<std::string>;

  /// @param words  arguments of tessera-train, resolved for @p ranks
  /// @throws what tessera-train would throw
  WorldRule(Words words, int ranks, int ranks_per_node);

  std::int64_t global_batch() const { return batch_; }
  /// The arguments for other ranks: with more gradient accumulation where the configuration leaves
  /// it open. Nothing if the configuration allows no such number of ranks.
  std::optional<Words> words_for(int ranks) const;

 private:
  bool keeps_batch(Words const& words, int ranks) const;

  Words words_;
  int ranks_, ranks_per_node_;
  std::int64_t hidden_size_ = 1, batch_ = 0, micro_batch_ = 0;
};

}  // namespace tessera::cli
