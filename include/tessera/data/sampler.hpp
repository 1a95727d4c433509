#pragma once
/// Which samples a rank sees at which optimizer step: the order of Hugging Face's Trainer with
/// accelerate, as a value. Nothing is communicated; every rank computes the same plan.

#include <cstdint>
#include <vector>

namespace tessera::data {

enum class SampleOrder { sequential, random };

/// What happens when the samples do not fill the last round of micro-batches of an epoch.
enum class LastRound {
  fill,   ///< on several ranks: filled up from the start of the epoch's order; those samples count
          ///< twice (accelerate's even_batches)
  drop,   ///< left out (dataloader_drop_last)
  exact,  ///< each sample once: the last micro-batches are shorter, some ranks may get empty ones
};

struct SamplerConfig {
  std::int64_t samples = 0;
  int ranks = 1;                        ///< data-parallel ranks
  std::int64_t micro_batch = 1;         ///< samples of one forward pass on one rank
  std::int64_t accumulation_steps = 1;  ///< micro-batches of one optimizer step
  double epochs = 3.0;                  ///< num_train_epochs
  std::int64_t max_steps = -1;          ///< optimizer steps in all; positive: instead of `epochs`
  SampleOrder order = SampleOrder::random;
  std::uint64_t seed = 42;  ///< data_seed, else seed
  LastRound last_round = LastRound::fill;

  bool operator==(SamplerConfig const&) const = default;
};

/// One optimizer step's place. An epoch's rounds are numbered from 0; in a round each rank has one
/// micro-batch.
struct StepPlace {
  std::int64_t epoch = 0;
  std::int64_t first_round = 0;
  std::int64_t rounds = 0;  ///< accumulation_steps, or what an epoch's last step has left
  double epochs_done =
      0;  ///< after this step, as Trainer logs it: epoch + rounds done / rounds of an epoch

  bool operator==(StepPlace const&) const = default;
};

using MicroBatch = std::vector<std::int64_t>;  ///< indices of samples

/// Round i gives rank r of N the samples at positions (iN + r)b ... (iN + r)b + b - 1 of the
/// epoch's order; a step takes accumulation_steps rounds, so step s of an epoch sees the same
/// samples on every layout with the same N b A. On one rank the last micro-batch of an epoch stays
/// short even with LastRound::fill, as in Trainer.
///
/// SampleOrder::random is a permutation per epoch, drawn from (seed, epoch) alone and the same on
/// every rank count; it is not torch.randperm's. Four bytes per sample are kept for the epoch in
/// use.
class Sampler {
 public:
  /// @throws ConfigError for settings that cannot work, DataError if the samples do not fill one
  /// step.
  explicit Sampler(SamplerConfig const& config);

  SamplerConfig const& config() const { return config_; }
  std::int64_t rounds_per_epoch() const { return rounds_; }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t total_steps() const { return total_steps_; }

  /// Steps count from 0.
  StepPlace place(std::int64_t step) const;
  /// Samples of all ranks in this step, repeated ones included.
  std::int64_t rows(std::int64_t step) const;
  /// place(step).rounds micro-batches. Keeps the permutation of the epoch: not thread-safe.
  std::vector<MicroBatch> micro_batches(std::int64_t step, int rank);

 private:
  std::int64_t round_rows(std::int64_t round) const;
  MicroBatch micro_batch(std::int64_t round, int rank) const;
  void prepare_epoch(std::int64_t epoch);

  SamplerConfig config_;
  std::int64_t rounds_ = 0, steps_per_epoch_ = 0, total_steps_ = 0;
  std::int64_t prepared_epoch_ = -1;
  std::vector<std::uint32_t> permutation_;
};

/// The samples [begin, end) that a rank evaluates: each sample once, ranks differ by at most one.
struct SampleRange {
  std::int64_t begin = 0, end = 0;
  bool operator==(SampleRange const&) const = default;
};
SampleRange evaluation_range(std::int64_t samples, int ranks, int rank);

}  // namespace tessera::data
