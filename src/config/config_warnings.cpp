#include "tessera/config/resolved_config.hpp"

#include <algorithm>

#include "tessera/config/learning_rate.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

bool is_16_bit(Dtype dtype) { return dtype == Dtype::bf16 || dtype == Dtype::fp16; }

bool wanted(ResolvedConfig const& c, char const* field) {
  auto const found = c.origins.find(field);
  return found != c.origins.end() && found->second != Origin::default_value;
}

void find_in_precision(ResolvedConfig const& c, std::vector<std::string>& out) {
  if (is_16_bit(c.master_dtype))
    out.push_back(concat(name_of(c.master_dtype), " master weights round each update to ",
                         c.master_dtype == Dtype::bf16 ? "8" : "11",
                         " bits, so that small updates are lost; compare a short run with fp32 "
                         "master weights"));
  if (is_16_bit(c.accumulation_dtype) && c.accumulation_steps > 1 && !is_16_bit(c.master_dtype))
    out.push_back(concat("data_types.grad_accum_dtype ", name_of(c.accumulation_dtype), " adds ",
                         c.accumulation_steps,
                         " micro-steps in 16 bits, which loses small gradients; use fp32"));
  if (is_16_bit(c.communication_dtype) && c.world_size > 1)
    out.push_back(concat("gradients are reduced over ", c.world_size, " ranks in ",
                         name_of(c.communication_dtype),
                         ", which loses precision; set communication_data_type to fp32"));
  if (c.dtype == Dtype::fp16 && !c.dynamic_loss_scale)
    out.push_back(concat("fp16.loss_scale ", c.static_loss_scale,
                         " is constant: steps that overflow are skipped and the scale never "
                         "shrinks; 0 makes it dynamic"));
}

void find_in_schedule(TrainingArguments const& a, ResolvedConfig const& c,
                      std::vector<std::string>& out) {
  auto const* params = c.scheduler.find("params");
  std::string const type = c.scheduler.get_string("type", "");
  if (params && type.starts_with("Warmup") && type != "WarmupCosineLR" &&
      params->get_double("warmup_min_lr", 0.0) == 0.0)
    out.push_back(concat("scheduler ", type,
                         ": the first two steps have the rate warmup_min_lr 0, as in DeepSpeed"));
  if (params && params->contains("total_num_steps") && a.max_steps > 0 &&
      params->at("total_num_steps").is_number() &&
      params->at("total_num_steps").as_double() != static_cast<double>(a.max_steps))
    out.push_back(concat("scheduler.params.total_num_steps is ",
                         params->at("total_num_steps").dump(), " but the run has ", a.max_steps,
                         " steps; write \"auto\""));
  double const warmup =
      static_cast<double>(warmup_steps(a.warmup_steps, std::max<std::int64_t>(a.max_steps, 1)));
  if (c.scheduler.is_null() && a.max_steps > 0 && warmup >= static_cast<double>(a.max_steps))
    out.push_back(concat("the warm-up of ", warmup, " steps is as long as the run of ", a.max_steps,
                         ": the rate never reaches its peak; lower --warmup_steps"));
  if (a.max_steps > 0 && a.given("num_train_epochs"))
    out.push_back("--max_steps overrides --num_train_epochs; leave one out");
}

void find_in_zero(ResolvedConfig const& c, std::vector<std::string>& out) {
  if (c.stage == 0 && c.world_size > 1 && c.has_deepspeed && !wanted(c, "stage"))
    out.push_back(
        "zero_optimization.stage is not written: 0, every rank holds the complete model "
        "states; 1 to 3 partition them");
  if (c.stage < 3)
    for (char const* field :
         {"prefetch_bucket_size", "max_live_parameters", "param_persistence_threshold"})
      if (wanted(c, field))
        out.push_back(
            concat("zero_optimization.stage3_", field, " has no effect in stage ", c.stage));
}

void find_in_world_size(ResolvedConfig const& c, std::vector<std::string>& out) {
  if (c.stage > 0 && c.world_size == 1)
    out.push_back(concat("stage ", c.stage, " on one rank partitions nothing"));
}

void find_in_evaluation(TrainingArguments const& a, std::vector<std::string>& out) {
  if (a.greater_is_better.value_or(false) && !a.metric_for_best_model.empty())
    out.push_back(concat("--greater_is_better: the highest ", a.metric_for_best_model,
                         " counts as the best; leave it out to keep the lowest"));
  if (a.early_stopping_patience && !a.load_best_model_at_end)
    out.push_back(
        "--early_stopping_patience without --load_best_model_at_end: the exported model "
        "is the last one, which is not the best");
  if (a.save_strategy == Interval::no && a.do_train)
    out.push_back("--save_strategy no: a run that is killed starts from the beginning");
}

}  // namespace

std::vector<std::string> find_warnings(TrainingArguments const& arguments,
                                       ResolvedConfig const& config, WorldSize world_size) {
  std::vector<std::string> out;
  find_in_precision(config, out);
  find_in_schedule(arguments, config, out);
  find_in_zero(config, out);
  if (world_size == WorldSize::known) find_in_world_size(config, out);
  find_in_evaluation(arguments, out);
  return out;
}

}  // namespace tessera::config
