#include "tessera/train/setup/sampler_config.hpp"

#include "tessera/train/setup/engine_config.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {
namespace {

data::SampleOrder order_of(config::Sampling strategy) {
  switch (strategy) {
    case config::Sampling::random:
      return data::SampleOrder::random;
    case config::Sampling::philox:
      return data::SampleOrder::philox;
    case config::Sampling::group_by_length:
      return data::SampleOrder::group_by_length;
    case config::Sampling::sequential:
      break;
  }
  return data::SampleOrder::sequential;
}

}  // namespace

data::SamplerConfig sampler_config(config::TrainingArguments const& arguments,
                                   config::ResolvedConfig const& config, std::int64_t samples,
                                   int ranks) {
  data::SamplerConfig plan;
  plan.samples = samples;
  plan.ranks = ranks;
  plan.micro_batch = config.micro_batch_size;
  plan.accumulation_steps = config.accumulation_steps;
  plan.epochs = arguments.num_train_epochs;
  plan.max_steps = arguments.max_steps;
  plan.order = arguments.group_by_length ? data::SampleOrder::group_by_length
                                         : order_of(arguments.train_sampling_strategy);
  bool const grouped = plan.order == data::SampleOrder::group_by_length;
  plan.seed = static_cast<std::uint64_t>(grouped ? arguments.seed
                                                 : arguments.data_seed.value_or(arguments.seed));
  if (config.reproducible_world)
    plan.numbering = zero::reduces_micro_steps(engine_config(config))
                         ? data::SamplerConfig::Numbering::by_step
                         : data::SamplerConfig::Numbering::by_rank;
  plan.last_micro_step = config.drop_last ? data::LastMicroStep::drop : data::LastMicroStep::fill;
  return plan;
}

}  // namespace tessera::train
