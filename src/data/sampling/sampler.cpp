#include "tessera/data/sampling/sampler.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "sampling/epoch_order.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data {
namespace {

/// The power of two of consecutive micro-batches that the first ranks get.
std::int64_t batches_of_rank(std::int64_t batches, int ranks) {
  return static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(ceil_divide(batches, ranks))));
}

void check(SamplerConfig const& c) {
  TESSERA_VALIDATE(c.ranks > 0 && c.micro_batch > 0 && c.accumulation_steps > 0, ConfigError,
                   "cannot distribute samples to ", c.ranks, " ranks in micro-batches of ",
                   c.micro_batch, " with ", c.accumulation_steps,
                   " accumulation steps; all three must be positive");
  TESSERA_VALIDATE(c.max_steps > 0 || (std::isfinite(c.epochs) && c.epochs > 0), ConfigError,
                   "num_train_epochs is ", c.epochs, " and max_steps is ", c.max_steps,
                   "; one of them must be positive");
  TESSERA_VALIDATE(c.samples > 0, DataError,
                   "there are no training samples; give more text or a smaller block_size");
  TESSERA_VALIDATE(
      c.samples <= std::numeric_limits<std::uint32_t>::max(), DataError, c.samples,
      " samples are more than a sampler can order (2^32 - 1); use a larger block_size");
}

}  // namespace

Sampler::Sampler(SamplerConfig const& config) : config_(config) {
  check(config);
  bool const drop = config.last_micro_step == LastMicroStep::drop;
  std::int64_t const batches =
      drop ? config.samples / config.micro_batch : ceil_divide(config.samples, config.micro_batch);
  micro_steps_per_epoch_ = drop ? batches / config.ranks : ceil_divide(batches, config.ranks);
  batches_ = batches;
  if (config.numbering != SamplerConfig::Numbering::accelerate) number_micro_batches();
  TESSERA_VALIDATE(micro_steps_per_epoch_ > 0, DataError, counted(config.samples, "sample"),
                   config.samples == 1 ? " does" : " do", " not fill one micro-step of ",
                   counted(config.ranks, "rank"), " times ", counted(config.micro_batch, "sample"),
                   ", and dataloader_drop_last drops an incomplete one; turn it off, use a smaller "
                   "micro-batch or fewer ranks, or give more text");
  steps_per_epoch_ = ceil_divide(micro_steps_per_epoch_, config.accumulation_steps);
  total_steps_ = config.max_steps > 0 ? config.max_steps
                                      : static_cast<std::int64_t>(std::ceil(
                                            config.epochs * static_cast<double>(steps_per_epoch_)));
}

void Sampler::number_micro_batches() {
  std::int64_t const per_step = config_.ranks * config_.accumulation_steps;
  std::int64_t const steps = ceil_divide(batches_, per_step);
  if (steps == 0) return;  // refused
  std::int64_t const left = step_batches(steps - 1);
  std::int64_t const last = config_.numbering == SamplerConfig::Numbering::by_step
                                ? ceil_divide(left, config_.ranks)
                                : std::min(left, batches_of_rank(left, config_.ranks));
  micro_steps_per_epoch_ = (steps - 1) * config_.accumulation_steps + last;
}

std::int64_t Sampler::step_batches(std::int64_t step_of_epoch) const {
  std::int64_t const per_step = config_.ranks * config_.accumulation_steps;
  return std::min(per_step, batches_ - step_of_epoch * per_step);
}

std::int64_t Sampler::number(std::int64_t step_of_epoch, std::int64_t micro_step, Rank rank) const {
  if (config_.numbering == SamplerConfig::Numbering::by_rank)
    return value(rank) * batches_of_rank(step_batches(step_of_epoch), config_.ranks) + micro_step;
  return micro_step * config_.ranks + value(rank);
}

StepPosition Sampler::position(std::int64_t step) const {
  StepPosition position;
  position.epoch = step / steps_per_epoch_;
  position.first_micro_step = step % steps_per_epoch_ * config_.accumulation_steps;
  position.micro_steps =
      std::min(config_.accumulation_steps, micro_steps_per_epoch_ - position.first_micro_step);
  position.epochs_completed =
      static_cast<double>(position.epoch) +
      static_cast<double>(position.first_micro_step + position.micro_steps) /
          static_cast<double>(micro_steps_per_epoch_);
  return position;
}

/// Samples of all ranks in one micro-step.
std::int64_t Sampler::samples_of_micro_step(std::int64_t micro_step) const {
  std::int64_t const full = config_.ranks * config_.micro_batch;
  bool const filled = config_.last_micro_step == LastMicroStep::fill && config_.ranks > 1;
  return filled ? full : std::min(full, config_.samples - micro_step * full);
}

std::int64_t Sampler::samples(std::int64_t step) const {
  StepPosition const here = position(step);
  if (config_.numbering != SamplerConfig::Numbering::accelerate) {
    std::int64_t const of_epoch = step % steps_per_epoch_;
    std::int64_t const first =
        of_epoch * config_.ranks * config_.accumulation_steps * config_.micro_batch;
    return std::min(config_.samples - first, step_batches(of_epoch) * config_.micro_batch);
  }
  return (here.micro_steps - 1) * config_.ranks * config_.micro_batch +
         samples_of_micro_step(here.first_micro_step + here.micro_steps - 1);
}

MicroBatch Sampler::micro_batch(std::int64_t micro_step, Rank rank) const {
  std::int64_t const first_sample = micro_step * config_.ranks * config_.micro_batch;
  std::int64_t const begin = first_sample + value(rank) * config_.micro_batch;
  std::int64_t const end =
      std::min(begin + config_.micro_batch, first_sample + samples_of_micro_step(micro_step));
  return samples_between(begin, end);
}

MicroBatch Sampler::samples_between(std::int64_t begin, std::int64_t end) const {
  MicroBatch out;
  for (std::int64_t at = begin; at < end; ++at) {
    std::int64_t const position =
        at % config_.samples;  // past the end: from the start of the epoch's order
    out.push_back(permutation_.empty() ? position
                                       : permutation_[static_cast<std::size_t>(position)]);
  }
  return out;
}

void Sampler::prepare_epoch(std::int64_t epoch) {
  if (config_.order == SampleOrder::sequential || epoch == prepared_epoch_) return;
  switch (config_.order) {
    case SampleOrder::philox:
      permutation_ = detail::philox_shuffle(config_.samples, config_.seed, epoch);
      break;
    case SampleOrder::group_by_length:
      permutation_ = detail::torch_global_randperm(config_.samples, config_.seed, epoch);
      break;
    default:
      permutation_ =
          detail::torch_randperm(config_.samples, config_.seed + static_cast<std::uint64_t>(epoch));
  }
  prepared_epoch_ = epoch;
}

std::vector<MicroBatch> Sampler::micro_batches(std::int64_t step, Rank rank) {
  TESSERA_EXPECT(step >= 0 && rank >= first_rank && value(rank) < config_.ranks);
  StepPosition const here = position(step);
  prepare_epoch(here.epoch);
  std::vector<MicroBatch> out;
  std::int64_t const of_epoch = step % steps_per_epoch_, micro = config_.micro_batch;
  std::int64_t const first = of_epoch * config_.ranks * config_.accumulation_steps * micro;
  for (std::int64_t k = 0; k < here.micro_steps; ++k) {
    if (config_.numbering == SamplerConfig::Numbering::accelerate) {
      out.push_back(micro_batch(here.first_micro_step + k, rank));
    } else {
      std::int64_t const begin = first + number(of_epoch, k, rank) * micro;
      out.push_back(samples_between(begin, std::min(begin + micro, first + samples(step))));
    }
  }
  return out;
}

std::int64_t Sampler::first_row(std::int64_t step, std::int64_t micro_step, Rank rank) const {
  bool const by_rank = config_.numbering == SamplerConfig::Numbering::by_rank;
  return config_.micro_batch * (by_rank ? number(step % steps_per_epoch_, micro_step, rank)
                                        : micro_step * config_.ranks + value(rank));
}

SampleRange evaluation_range(std::int64_t samples, int ranks, Rank rank) {
  std::int64_t const share = samples / ranks, extra = samples % ranks;
  std::int64_t const begin = value(rank) * share + std::min<std::int64_t>(value(rank), extra);
  return {begin, begin + share + (value(rank) < extra ? 1 : 0)};
}

}  // namespace tessera::data
