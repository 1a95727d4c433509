#include "tessera/train/step/training_state.hpp"

namespace tessera::train {
namespace {

ConfigTree to_tree(optim::LossScalerState const& state) {
  ConfigTree tree;
  tree.set("scale", state.scale)
      .set("iteration", state.iteration)
      .set("last_overflow", state.last_overflow)
      .set("hysteresis", state.hysteresis);
  return tree;
}

optim::LossScalerState scaler_from(ConfigTree const& tree) {
  optim::LossScalerState state;
  state.scale = tree.at("scale").as_double();
  state.iteration = tree.at("iteration").as_int();
  state.last_overflow = tree.at("last_overflow").as_int();
  state.hysteresis = static_cast<int>(tree.at("hysteresis").as_int());
  return state;
}

/// Returns the name of an order in checkpoints. Checkpoints of earlier versions say "random" for
/// Philox's order.
char const* name_of(data::SampleOrder order) {
  static constexpr char const* names[] = {"sequential", "randperm", "philox", "group_by_length"};
  return names[static_cast<std::size_t>(order)];
}

ConfigTree data_position(TrainingPosition const& at, std::int64_t step) {
  auto const position = step > 0 ? at.sampler.position(step - 1) : data::StepPosition{};
  ConfigTree data = data_description(at.sampler, at.texts);
  data.set("epoch", position.epoch)
      .set("rounds_done", position.first_micro_step + position.micro_steps)
      .set("rounds_per_epoch", at.sampler.micro_steps_per_epoch());
  return data;
}

}  // namespace

ConfigTree data_description(data::Sampler const& sampler, ConfigTree const& texts) {
  auto const& order = sampler.config();
  ConfigTree data = texts;
  return data.set("seed", order.seed)
      .set("order", name_of(order.order))
      .set("samples", order.samples);
}

double epochs_after(data::Sampler const& sampler, std::int64_t step) {
  return step > 0 ? sampler.position(step - 1).epochs_completed : 0.0;
}

ConfigTree trainer_state(TrainingPosition const& at, std::int64_t step) {
  std::int64_t const data_seed = at.arguments.data_seed.value_or(at.arguments.seed);
  ConfigTree tree, random, schedule;
  random.set("generator", "philox4x32-10").set("seed", at.arguments.seed).set("step", step);
  schedule.set("applied_steps", at.state.applied_steps)
      .set("total_steps", at.sampler.total_steps())
      .set("next_learning_rate", at.schedule(at.state.applied_steps + 1));
  tree.set("step", step)
      .set("applied_steps", at.state.applied_steps)
      .set("skipped_in_a_row", at.state.skipped_in_a_row)
      .set("optimizer_steps", at.engine.optimizer_steps);
  tree.set("epoch", epochs_after(at.sampler, step))
      .set("seed", at.arguments.seed)
      .set("data_seed", data_seed)
      .set("train_batch_size", at.config.train_batch_size);
  tree.set("loss_scaler", to_tree(at.engine.scaler))
      .set("random", random)
      .set("data", data_position(at, step))
      .set("schedule", schedule);
  if (auto const& best = at.state.best; best.step >= 0 || best.evaluations_without_improvement > 0)
    tree.set("best",
             ConfigTree::object()
                 .set("metric", best.metric)
                 .set("step", best.step)
                 .set("evaluations_without_improvement", best.evaluations_without_improvement)
                 .set("saved_step", best.saved_step));
  if (at.state.evaluation_interrupted) tree.set("evaluation_interrupted", true);
  if (!at.state.resumed_from.is_null()) tree.set("resumed_from", at.state.resumed_from);
  return tree;
}

EngineState read_trainer_state(ConfigTree const& tree, TrainingState& state) {
  state.applied_steps = tree.at("applied_steps").as_int();
  state.skipped_in_a_row = tree.get_int("skipped_in_a_row", 0);
  state.evaluation_interrupted = tree.get_bool("evaluation_interrupted", false);
  if (auto const* best = tree.find("best"))
    state.best = {best->get_double("metric", 0.0), best->get_int("step", -1),
                  best->get_int("evaluations_without_improvement", 0),
                  best->get_int("saved_step", best->get_int("step", -1))};
  return {tree.at("optimizer_steps").as_int(), scaler_from(tree.at("loss_scaler"))};
}

}  // namespace tessera::train
