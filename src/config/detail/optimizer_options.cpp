#include "detail/option_rows.hpp"

#include <algorithm>

#include "tessera/optim/optimizer.hpp"

namespace tessera::config::detail {
namespace {

using enum OptionType;

void add_values_and_schedule(OptionTable& t) {
  t.group("Optimizer and schedule");
  t.add(real, "learning_rate", 5e-5, "peak learning rate").at_least(0);
  t.add(real, "weight_decay", 0.0,
        "weight decay of matrices (decoupled with AdamW, L2 with SGD); biases and norms do not "
        "decay")
      .at_least(0);
  t.add(real, "adam_beta1", 0.9, "AdamW beta1: decay rate of the first moment")
      .at_least(0)
      .at_most(1);
  t.add(real, "adam_beta2", 0.999, "AdamW beta2: decay rate of the second moment")
      .at_least(0)
      .at_most(1);
  t.add(real, "adam_epsilon", 1e-8, "AdamW epsilon").at_least(0);
  t.add(real, "max_grad_norm", 1.0, "clip the global gradient norm to this value; 0: no clipping")
      .at_least(0);
  auto& schedule =
      t.add(choice, "lr_scheduler_type", "linear", "learning-rate schedule")
          .one_of({"linear", "cosine", "cosine_with_restarts", "polynomial", "constant",
                   "constant_with_warmup", "inverse_sqrt", "cosine_with_min_lr",
                   "cosine_warmup_with_min_lr", "warmup_stable_decay"});
  for (char const* name : {"reduce_lr_on_plateau", "greedy"})
    schedule.except(
        name, "it depends on evaluation results; use a schedule that depends only on the step");
  t.add(real, "warmup_steps", 0.0,
        "steps of linear warm-up from 0; below 1: a fraction of all steps")
      .at_least(0)
      .unit("steps");
  t.add(real, "warmup_ratio", 0.0, "fraction of all steps to warm up; warmup_steps overrides it")
      .at_least(0)
      .at_most(1);
  t.add(json, "lr_scheduler_kwargs", {},
        "extra arguments of the schedule: {\"num_cycles\": 2}, {\"min_lr_rate\": 0.1}")
      .shown_as("JSON object");
}

void add_names(OptionTable& t) {
  auto& choice_of_optimizer = t.add(choice, "optim", "adamw_torch_fused",
                                    "optimizer; names of one optimizer share a kernel");
  for (auto const& info : optim::optimizers())
    choice_of_optimizer.choices.insert(choice_of_optimizer.choices.end(),
                                       info.hugging_face_names.begin(),
                                       info.hugging_face_names.end());
  for (char const* name : {"adamw_anyprecision",
                           "adamw_torch_4bit",
                           "adamw_torch_8bit",
                           "adamw_bnb_8bit",
                           "adamw_8bit",
                           "paged_adamw_8bit",
                           "ademamix",
                           "ademamix_8bit",
                           "paged_ademamix_32bit",
                           "paged_ademamix_8bit",
                           "lion_8bit",
                           "paged_lion_8bit",
                           "rmsprop_bnb_8bit",
                           "lomo",
                           "adalomo",
                           "grokadamw",
                           "stable_adamw",
                           "schedule_free_radam",
                           "schedule_free_adamw",
                           "schedule_free_sgd"})
    if (std::ranges::find(choice_of_optimizer.choices, name) == choice_of_optimizer.choices.end())
      choice_of_optimizer.except(name, "it is not implemented; use adamw_torch");
  for (char const* name : {"galore_adamw", "galore_adamw_8bit", "galore_adafactor",
                           "galore_adamw_layerwise", "galore_adamw_8bit_layerwise",
                           "galore_adafactor_layerwise", "apollo_adamw", "apollo_adamw_layerwise"})
    choice_of_optimizer.except(
        name, "low-rank gradient projections are not implemented; use adamw_torch");
  t.add(string, "optim_args", {},
        "parameters of --optim in PyTorch's names: momentum=0.9,nesterov=true")
      .shown_as("name=value,...");
  t.add(json, "optim_target_modules", {}, "target modules of GaLore and APOLLO")
      .shown_as("words")
      .refuse("all parameters are trained; leave it out");
  t.add(boolean, "adafactor", false, "Adafactor instead of AdamW")
      .refuse("transformers removed it; use --optim adafactor");
  t.add(boolean, "average_tokens_across_devices", true,
        "average the loss over the tokens of all ranks")
      .refuse("the loss is always the mean over all tokens of the step; leave it out");
  t.add(real, "label_smoothing_factor", 0.0,
        "share of the target that is spread over the vocabulary, also in evaluations")
      .at_least(0)
      .at_most(1);
  t.add(
       real, "neftune_noise_alpha", {},
       "NEFTune: uniform noise up to alpha / sqrt(tokens * width) on embeddings in training; try 5")
      .at_least(0);
}

}  // namespace

void add_optimizer_options(OptionTable& t) {
  add_values_and_schedule(t);
  add_names(t);
}

}  // namespace tessera::config::detail
