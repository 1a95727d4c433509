#include "detail/option_rows.hpp"
#include "detail/resolvers.hpp"

#include "tessera/optim/optimizer.hpp"

namespace tessera::config::detail {
namespace {

/// The hyperparameters, under the names that manifests have.
template <class Visitor>
void visit_optimizer(Visitor&& visit, optim::OptimizerSpec const& spec) {
  visit("optimizer", spec.algorithm);
  for (auto const& rule : optim::optimizer_info(spec.algorithm).hyperparameters) {
    std::string const name = rule.name;
    double const value = spec.value(name);
    if (rule.range == optim::HyperparameterRule::Range::flag)
      visit(rule.name, value != 0.0);
    else
      visit(name == "eps" ? "epsilon" : rule.name, value);
  }
  visit("decay_groups", spec.groups.size() > 1);
  if (spec.algorithm == "Adam" || spec.algorithm == "AdamW")
    visit("adam_l2", spec.algorithm == "Adam");
}

ConfigTree text_or_null(std::filesystem::path const& path) {
  return path.empty() ? ConfigTree() : ConfigTree(path.string());
}

template <class Visitor>
void visit_reporting(Visitor&& visit, Reporting const& r) {
  visit("steps_per_print", r.steps_per_print, Resume::reported);
  visit("wall_clock_breakdown", r.wall_clock_breakdown, Resume::reported);
  visit("memory_breakdown", r.memory_breakdown, Resume::reported);
  visit("dump_state", r.dump_state, Resume::reported);
  visit("tensorboard", text_or_null(r.tensorboard), Resume::reported);
  visit("csv_monitor", text_or_null(r.csv), Resume::reported);
  visit("trainer_tensorboard", text_or_null(r.trainer_tensorboard), Resume::reported);
  visit("wandb", r.wandb, Resume::reported);
  visit("mlflow", r.mlflow, Resume::reported);
  ConfigTree profiler, logger;
  if (auto const& p = r.flops_profiler)
    profiler.set("profile_step", p->step)
        .set("recompute_fwd_factor", p->recompute_factor)
        .set("top_modules", p->top_units)
        .set("detailed", p->detailed)
        .set("output_file", text_or_null(p->output_file));
  visit("flops_profiler", profiler, Resume::reported);
  if (auto const& l = r.comms_logger)
    logger.set("verbose", l->verbose)
        .set("prof_ops", ConfigTree::Array(l->operations.begin(), l->operations.end()));
  visit("comms_logger", logger, Resume::reported);
}

ConfigTree tree_of(std::optional<Tuning> const& tuning) {
  if (!tuning) return {};
  return ConfigTree::object()
      .set("minutes", tuning->minutes)
      .set("warm_up_steps", tuning->warm_up_steps)
      .set("measured_steps", tuning->measured_steps)
      .set("measured_seconds", tuning->measured_seconds)
      .set("trials", tuning->trials)
      .set("early_stopping", tuning->early_stopping)
      .set("least_micro_batch", tuning->least_micro_batch)
      .set("largest_micro_batch", tuning->largest_micro_batch)
      .set("exhaustive", tuning->exhaustive)
      .set("overwrite", tuning->overwrite);
}

template <class Visitor>
void visit_offload(Visitor&& visit, Offload const& o) {
  visit("offload_optimizer", name_of(o.optimizer), Resume::reported);
  visit("offload_param", name_of(o.parameters), Resume::reported);
  if (o.parameters != OffloadDevice::none)
    visit("offload_param_pin_memory", o.parameters_pin_memory);
  if (o.optimizer != OffloadDevice::none) {
    visit("offload_pin_memory", o.pin_memory);
    visit("offload_ratio", o.ratio);
    visit("delayed_update_from_step", o.delay_from);
  }
  if (o.optimizer == OffloadDevice::nvme) {
    visit("nvme_path", o.nvme_path);
    visit("swap_buffer_count", o.buffer_count);
    visit("swap_tile_size", o.tile_numel);
  }
  if (o.parameters == OffloadDevice::nvme) {
    visit("offload_param_nvme_path", o.parameters_nvme_path);
    visit("offload_param_buffer_count", o.parameters_buffer_count);
    visit("offload_param_buffer_size", o.parameters_buffer_size);
    visit("offload_param_max_in_cpu", o.max_in_cpu);
  }
  if (!o.uses_nvme()) return;
  visit("swap_block_size", o.block_size);
  visit("swap_queue_depth", o.queue_depth);
  visit("swap_intra_op_parallelism", o.intra_op_parallelism);
  visit("swap_single_submit", o.single_submit);
  visit("swap_overlap_events", o.overlap_events);
}

template <class Visitor>
void visit_groups(Visitor&& visit, ResolvedConfig const& c) {
  visit("shard_group_size",
        c.shards_within_nodes && c.shard_group_size == 0 && c.stage > 0
            ? ConfigTree("ranks of a node")
            : ConfigTree(c.shard_group_size),
        Resume::reported);
  visit("hierarchical_gather", c.hierarchical_gather, Resume::reported);
  visit("secondary_group_size", c.secondary_group_size, Resume::reported);
  visit("quantized_weights", c.quantized_weights);
  visit("quantized_gradients", c.quantized_gradients);
  if (c.error_feedback)
    visit("error_feedback", ConfigTree()
                                .set("err_beta", c.error_feedback->beta)
                                .set("reset_T", c.error_feedback->reset_steps));
}

/// Calls visit(name, field) for every resolved value.
template <class Visitor>
void visit_fields(Visitor&& visit, ResolvedConfig const& c) {
  visit("world_size", std::int64_t{c.world_size}, Resume::reported);
  visit("train_batch_size", c.train_batch_size);
  visit("micro_batch_size", c.micro_batch_size, Resume::reported);
  visit("accumulation_steps", c.accumulation_steps, Resume::reported);
  visit("dtype", name_of(c.dtype));
  visit("product_dtype", name_of(c.product_dtype));
  visit("fp8", c.fp8);
  visit("master_dtype", name_of(c.master_dtype));
  visit("state_dtype", name_of(c.state_dtype));
  visit("round_master_weights", c.round_master_weights);
  visit("communication_dtype", name_of(c.communication_dtype));
  visit("accumulation_dtype", name_of(c.accumulation_dtype));
  visit("dynamic_loss_scale", c.dynamic_loss_scale);
  visit("static_loss_scale", c.static_loss_scale);
  visit("initial_scale_power", c.initial_scale_power);
  visit("loss_scale_window", c.loss_scale_window);
  visit("hysteresis", c.hysteresis);
  visit("consecutive_hysteresis", c.consecutive_hysteresis);
  visit("min_loss_scale", c.min_loss_scale);
  visit("loss_scale_growth",
        c.loss_scale_growth == optim::ScaleGrowth::torch ? "torch" : "deepspeed");
  visit("skip_on_nonfinite", c.skip_on_nonfinite);
  visit("prescale_gradients", c.prescale_gradients);
  visit("gradient_predivide_factor", c.gradient_predivide_factor);
  visit("gradient_allreduce_op", c.gradient_allreduce_op);
  visit("reduce_scatter", c.reduce_scatter, Resume::reported);
  visit("stage", c.stage, Resume::reported);
  visit_groups(visit, c);
  for (auto const& field : argument_rows().fields)
    if (field.resolved)
      visit(field.name, field.resolved(c), argument_table().find(field.name)->resume_class);
  visit("overlap_comm", c.overlap_comm, Resume::reported);
  visit("gather_16bit_weights", c.gather_16bit_weights, Resume::reported);
  visit("reduce_bucket_size", c.reduce_bucket_size, Resume::reported);
  visit("allgather_bucket_size", c.allgather_bucket_size, Resume::reported);
  visit("prefetch_bucket_size", c.prefetch_bucket_size, Resume::reported);
  visit("param_persistence_threshold", c.param_persistence_threshold, Resume::reported);
  visit("max_live_parameters", c.max_live_parameters, Resume::reported);
  visit_offload(visit, c.offload);
  visit("cpu_checkpointing", c.cpu_checkpointing, Resume::reported);
  visit("learning_rate", c.learning_rate);
  visit_optimizer(visit, c.optimizer);
  visit("max_grad_norm", c.max_grad_norm);
  visit("scheduler", c.scheduler);
  visit("lr_scheduler_type", c.lr_scheduler_type);
  visit("lr_scheduler_kwargs", c.lr_scheduler_kwargs);
  visit("warmup_steps", c.warmup_steps);
  visit("drop_last", c.drop_last);
  visit_reporting(visit, c.reporting);
  visit("tuning", tree_of(c.tuning), Resume::reported);
}

}  // namespace

ConfigTree describe_fields(ResolvedConfig const& config) {
  auto out = ConfigTree::object();
  visit_fields(
      [&](std::string const& name, auto const& field, Resume = Resume::training) {
        auto const origin = config.origins.find(name);
        auto entry = ConfigTree::object();
        entry.set("value", field);
        entry.set("origin",
                  name_of(origin == config.origins.end() ? Origin::default_value : origin->second));
        out.set(name, std::move(entry));
      },
      config);
  return out;
}

void copy_arguments(TrainingArguments const& arguments, ResolvedConfig& config) {
  static_cast<EngineOptions&>(config) = arguments;
  for (auto const& field : argument_rows().fields)
    if (field.resolved) config.origins[field.name] = arguments.values.origin(field.name);
}

}  // namespace tessera::config::detail

namespace tessera::config {

Resume resume_of_resolved(std::string_view name) {
  Resume out = Resume::training;
  detail::visit_fields(
      [&](std::string_view field, auto const&, Resume resume = Resume::training) {
        if (field == name) out = resume;
      },
      ResolvedConfig());
  return out;
}

}  // namespace tessera::config
