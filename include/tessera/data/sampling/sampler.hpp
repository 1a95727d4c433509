#pragma once
/// Which samples each rank reads at each optimizer step, in the order of Hugging Face's Trainer
/// with accelerate. Ranks do not communicate: every rank computes the same plan.

#include <cstdint>
#include <vector>

#include "tessera/core/rank.hpp"

namespace tessera::data {

/// The order of the training samples.
enum class SampleOrder {
  sequential,
  random,           ///< torch.randperm with a generator seeded by seed + epoch, as Trainer reads
  philox,           ///< a permutation that Philox draws from seed and epoch
  group_by_length,  ///< Trainer's LengthGroupedSampler for sequences of equal length
};

/// What happens when the samples do not fill the last micro-step of an epoch.
enum class LastMicroStep {
  fill,   ///< on several ranks: filled from the start of the epoch's order; those samples count
          ///< twice (accelerate's even_batches)
  drop,   ///< dropped (dataloader_drop_last)
  exact,  ///< each sample once: the last micro-batches are shorter, some ranks may get empty ones
};

/// Samples, their order and the batches that they are read in.
struct SamplerConfig {
  std::int64_t samples = 0;
  int ranks = 1;                        ///< data-parallel ranks
  std::int64_t micro_batch = 1;         ///< samples of one forward pass on one rank
  std::int64_t accumulation_steps = 1;  ///< micro-batches of one optimizer step
  double epochs = 3.0;                  ///< num_train_epochs
  std::int64_t max_steps = -1;          ///< total optimizer steps; if positive, overrides `epochs`
  SampleOrder order = SampleOrder::random;
  std::uint64_t seed = 42;  ///< data_seed, else seed
  LastMicroStep last_micro_step = LastMicroStep::fill;
  /// Micro-batches are numbered without the ranks: a step takes ranks * accumulation_steps
  /// consecutive ones, each sample once, and LastMicroStep::drop drops an incomplete micro-batch.
  /// Ranks may get empty micro-batches in the last step of an epoch. See the order of each value.
  enum class Numbering {
    accelerate,  ///< by micro-step and rank
    by_step,     ///< micro-step i of rank r has number i * ranks + r
    by_rank,     ///< rank r has consecutive ones; their number is a power of two in a short step
  };
  Numbering numbering = Numbering::accelerate;

  bool operator==(SamplerConfig const&) const = default;
};

/// Where an optimizer step is in its epoch. In a micro-step each rank processes one micro-batch;
/// the micro-steps of an epoch are numbered from 0.
struct StepPosition {
  std::int64_t epoch = 0;
  std::int64_t first_micro_step = 0;
  std::int64_t micro_steps = 0;  ///< accumulation_steps; fewer in the last step of an epoch
  /// After this step, as Trainer logs it: epoch + completed micro-steps / micro-steps per epoch.
  double epochs_completed = 0;

  bool operator==(StepPosition const&) const = default;
};

using MicroBatch = std::vector<std::int64_t>;  ///< indices of samples

/// In micro-step i, rank r of N gets the samples at positions (iN + r)b ... (iN + r)b + b - 1 of
/// the epoch's order. A step has A = accumulation_steps micro-steps, so step s of an epoch reads
/// the same samples on every layout with the same N b A. On one rank the last micro-batch of an
/// epoch stays short even with LastMicroStep::fill, as in Trainer.
///
/// A random order is a permutation per epoch, drawn from (seed, epoch) only and the same on every
/// rank count. Keeps four bytes per sample for the current epoch.
class Sampler {
 public:
  /// @throws ConfigError for settings that cannot work, DataError if the samples do not fill one
  /// step.
  explicit Sampler(SamplerConfig const& config);

  SamplerConfig const& config() const { return config_; }
  std::int64_t micro_steps_per_epoch() const { return micro_steps_per_epoch_; }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t total_steps() const { return total_steps_; }

  /// Steps count from 0.
  StepPosition position(std::int64_t step) const;
  /// Samples of all ranks in this step, including repeated ones.
  std::int64_t samples(std::int64_t step) const;
  /// Place of the first sample of a micro-batch among those of all ranks in the step.
  std::int64_t first_row(std::int64_t step, std::int64_t micro_step, Rank rank) const;
  /// position(step).micro_steps micro-batches. Caches the permutation of the epoch: not
  /// thread-safe.
  std::vector<MicroBatch> micro_batches(std::int64_t step, Rank rank);

 private:
  std::int64_t samples_of_micro_step(std::int64_t micro_step) const;
  MicroBatch micro_batch(std::int64_t micro_step, Rank rank) const;
  MicroBatch samples_between(std::int64_t begin, std::int64_t end) const;
  void number_micro_batches();
  /// Micro-batches of all ranks in step @p step of an epoch.
  std::int64_t step_batches(std::int64_t step_of_epoch) const;
  /// Number of a micro-batch in the step.
  std::int64_t number(std::int64_t step_of_epoch, std::int64_t micro_step, Rank rank) const;
  void prepare_epoch(std::int64_t epoch);

  SamplerConfig config_;
  std::int64_t batches_ = 0;  ///< micro-batches of an epoch, numbered without the ranks
  std::int64_t micro_steps_per_epoch_ = 0, steps_per_epoch_ = 0, total_steps_ = 0;
  std::int64_t prepared_epoch_ = -1;
  std::vector<std::uint32_t> permutation_;
};

/// The samples [begin, end) that a rank evaluates: each sample once; the counts of two ranks differ
/// by at most one.
struct SampleRange {
  std::int64_t begin = 0, end = 0;
  bool operator==(SampleRange const&) const = default;
};
SampleRange evaluation_range(std::int64_t samples, int ranks, Rank rank);

}  // namespace tessera::data
