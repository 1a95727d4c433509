#pragma once
/// Measures how much communication of a training step overlaps with its computation;
/// DelayedCollectives simulates the other ranks.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include "delayed_collectives.hpp"
#include "overlap_bound.hpp"

#include "tessera/model/families/registry.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::test {

struct OverlapCase {
  std::int64_t layers = 0, width = 0, heads = 0, rows = 0, length = 0;
  int stage = 0, ranks = 0;
  double gb_per_s = 0.0;
  int steps = 4;
  double latency_seconds = 20e-6;
  bool needs_norm = true;  ///< the update clips and checks for overflow
};
/// Times of a step in seconds, from the fastest of several runs of steps. Other jobs on the machine
/// can push the hidden share beyond 0 and 1.
struct OverlapTimes {
  double undelayed = 0.0, delayed = 0.0, delay = 0.0;
  std::optional<double> bound{};  ///< hidden_bound() of the units, on an inline queue
  double hidden() const { return delay > 0.0 ? 1.0 - (delayed - undelayed) / delay : 0.0; }
};

/// Measures the computation of each unit between the calls to the engine.
class UnitClock final : public memory::ParamProvider {
 public:
  explicit UnitClock(memory::ParamProvider& engine) : engine_(engine) {}
  void begin_pass(memory::Pass pass, std::vector<memory::UnitIndex> acquisitions) override {
    engine_.begin_pass(pass, std::move(acquisitions));
  }
  memory::WeightLease acquire(memory::UnitIndex unit, memory::Queue& compute) override {
    mark(unit, false);
    return engine_.acquire(unit, compute);
  }
  memory::GradientLease gradient(memory::UnitIndex unit, memory::Queue& compute) override {
    return engine_.gradient(unit, compute);
  }
  /// Adds the computation since the last mark to the unit that it is of: until a gradient is
  /// complete, and what follows it, to that unit's backward pass, else to the forward pass of the
  /// unit that was acquired before; before the first and after the last mark to the update.
  void mark(memory::UnitIndex unit, bool completes) {
    double const seconds = since_mark();
    auto& before = costs_[position(last_unit_)];
    if (completes)
      costs_[position(unit)].backward += seconds;
    else if (last_ == Mark::acquired)
      before.forward += seconds;
    else if (last_ == Mark::completed)
      before.backward += seconds;
    else
      update_ += seconds;
    last_ = completes ? Mark::completed : Mark::acquired;
    last_unit_ = unit;
  }
  /// Counts from now on.
  void begin_marks(std::size_t units) {
    costs_.assign(units, {});
    update_ = 0.0;
    last_ = Mark::none;
    (void)since_mark();
  }
  void end_step() {
    update_ += since_mark();
    last_ = Mark::none;
  }
  std::vector<UnitCost> const& costs() const { return costs_; }
  double update_seconds() const { return update_; }
  void gradient_complete(memory::UnitIndex unit, memory::Queue& compute) override {
    mark(unit, true);
    engine_.gradient_complete(unit, compute);
  }

 private:
  enum class Mark { none, acquired, completed };
  double since_mark() {
    auto const now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(marked_, now)).count();
  }

  memory::ParamProvider& engine_;
  std::vector<UnitCost> costs_ = std::vector<UnitCost>(1);
  double update_ = 0.0;
  Mark last_ = Mark::none;
  memory::UnitIndex last_unit_ = memory::first_unit;
  std::chrono::steady_clock::time_point marked_{};
};

class OverlapTraining {
 public:
  OverlapTraining(OverlapCase const& c, memory::Queue& compute, bool overlap)
      : case_(c),
        compute_(compute),
        model_(model::make_model(config_of(c), Dtype::bf16)),
        comm_(c.ranks, memory::memory_space_of(compute)),
        engine_(zero::make_engine(engine_config(c, overlap), model_->units(), comm_, compute)) {
    engine_->initialize([](memory::UnitIndex unit, int parameter, std::int64_t first,
                           std::int64_t numel, float* out) {
      auto state = static_cast<std::uint32_t>(static_cast<int>(unit) * 31 + parameter) +
                   static_cast<std::uint32_t>(first);
      for (std::int64_t i = 0; i < numel; ++i)
        out[i] =
            0.02f *
            (static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f);
    });
    std::uint32_t state = 7;
    for (std::int64_t i = 0; i < c.rows * c.length; ++i)
      tokens_.push_back(static_cast<std::int32_t>((state = state * 1664525u + 1013904223u) >> 8) %
                        static_cast<std::int32_t>(model_->vocabulary_size()));
    params_ = std::make_unique<UnitClock>(*engine_);
    params_->begin_marks(model_->units().size());
  }

  /// Runs of steps with and without the delays in turns, after steps that make what later ones
  /// find.
  OverlapTimes measure() {
    step();
    step();
    OverlapTimes best{1e30, 1e30, 0.0};
    for (int turn = 0; turn < turns; ++turn) {
      best.undelayed = std::min(best.undelayed, seconds_of_steps({}));
      double const before = comm_.taken_seconds();
      best.delayed =
          std::min(best.delayed, seconds_of_steps({case_.latency_seconds, 1e9 * case_.gb_per_s}));
      best.delay += (comm_.taken_seconds() - before) / turns / (case_.steps + 1);
    }
    if (case_.needs_norm && memory::memory_space_of(compute_) == memory::MemorySpace::host)
      best.bound = hidden_bound(step_cost(best.undelayed));
    return best;
  }
  std::int64_t parameters() const {
    return static_cast<std::int64_t>(engine_->plan().parameter_count());
  }
  static zero::EngineConfig engine_config(OverlapCase const& c, bool overlap) {
    zero::EngineConfig how;
    how.partition = zero::partition_of(c.stage);
    how.dtype = how.communication_dtype = Dtype::bf16;
    how.max_grad_norm = c.needs_norm ? 1.0 : 0.0;
    how.skip_on_nonfinite = c.needs_norm;
    how.overlap_comm = overlap;
    return how;
  }
  model::CausalLm& model() { return *model_; }
  zero::Engine& engine() { return *engine_; }
  DelayedCollectives& comm() { return comm_; }

  void step() {
    model::PassSettings settings;
    settings.gradient_scale =
        static_cast<float>(1.0 / static_cast<double>(case_.rows * (case_.length - 1)));
    engine_->begin_step();
    model::Batch const batch{tokens_.data(), case_.rows, case_.length, 0};
    engine_->begin_micro_step(0, 1);
    (void)model_->train(batch, settings, *params_, compute_).value();
    engine_->finish_step(1e-4);
    params_->end_step();
  }

  /// The times of a step's units, measured without delays and scaled to @p seconds, and those of
  /// their messages by the network's formula.
  StepCost step_cost(double seconds) {
    comm_.finish();
    comm_.set({});
    params_->begin_marks(model_->units().size());
    for (int i = 0; i < case_.steps; ++i) step();
    StepCost out{params_->costs(), message(128.0, 2.0)};
    double const update = params_->update_seconds();
    for (std::size_t u = 0; u < out.units.size(); ++u)
      out.units[u].update = update * numel(u) / static_cast<double>(engine_->plan().padded_count());
    double const scale = seconds / out.computation();
    for (auto& u : out.units) {
      u.update *= scale;
      u.forward *= scale;
      u.backward *= scale;
    }
    add_messages(out);
    return out;
  }

 private:
  double numel(std::size_t unit) const {
    return static_cast<double>(engine_->plan().units()[unit].padded_numel);
  }
  double message(double bytes, double times = 1.0) const {
    return case_.latency_seconds +
           times * bytes * (case_.ranks - 1) / case_.ranks / (1e9 * case_.gb_per_s);
  }
  /// Stage 3 gathers again what one step, planned with the network, gathers besides: the tied
  /// embedding for the head, and blocks for their backward passes.
  void add_messages(StepCost& out) {
    auto& units = out.units;
    double const times = case_.stage == 0 ? 2.0 : 1.0;
    for (std::size_t u = 0; u < units.size(); ++u) {
      units[u].reduce = message(2.0 * numel(u), times);
      units[u].gather = case_.stage == 0 ? 0.0 : message(2.0 * numel(u));
    }
    if (case_.stage < 3) return;
    comm_.set({case_.latency_seconds, 1e9 * case_.gb_per_s});
    double const before = comm_.planned_seconds("all_gather");
    step();
    comm_.finish();
    double again = comm_.planned_seconds("all_gather") - before;
    for (auto const& u : units) again -= u.gather;
    if (again > 0.5 * units.front().gather) {
      again -= units.front().gather;
      units.back().gather += units.front().gather;
    }
    for (std::size_t u = 1; u + 1 < units.size() && again > 0.5 * units[u].gather; ++u)
      again -= units[u].gather_again = units[u].gather;
  }

  static ConfigTree config_of(OverlapCase const& c) {
    ConfigTree config = model::default_config("gpt2");
    config.set("n_layer", c.layers)
        .set("n_embd", c.width)
        .set("n_head", c.heads)
        .set("n_positions", c.length);
    for (char const* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config.set(key, 0.0);
    return config;
  }
  static constexpr int turns = 3;

  /// A step, on the average of several in a row: new weights are on their way while the next step
  /// computes. The first one starts with none.
  double seconds_of_steps(Network network) {
    comm_.finish();
    comm_.set(network);
    step();
    auto const start = std::chrono::steady_clock::now();
    for (int i = 0; i < case_.steps; ++i) step();
    double const seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    comm_.finish();
    return seconds / case_.steps;
  }
  OverlapCase case_;
  memory::Queue& compute_;
  std::unique_ptr<model::CausalLm> model_;
  DelayedCollectives comm_;
  std::unique_ptr<zero::Engine> engine_;
  std::unique_ptr<UnitClock> params_;
  std::vector<std::int32_t> tokens_;
};

/// Prints one JSON line. The share that is hidden with overlap_comm off shows what the measure says
/// when every bucket is waited for.
inline void measure_overlap(OverlapCase const& c, memory::Queue& compute) {
  TESSERA_VALIDATE(c.layers > 0 && c.width > 0 && c.heads > 0 && c.rows > 0 && c.length > 1 &&
                       c.stage >= 0 && c.stage <= 3 && c.ranks > 1 && c.gb_per_s > 0.0,
                   UsageError,
                   "overlap: LAYERS WIDTH HEADS ROWS LENGTH must be positive, STAGE 0 to 3, RANKS "
                   "at least 2, GB_PER_S positive");
  std::int64_t parameters = 0;
  OverlapTimes times[2];
  for (bool const overlap : {true, false}) {
    OverlapTraining training(c, compute, overlap);
    times[overlap] = training.measure();
    parameters = training.parameters();
  }
  auto const& t = times[true];
  std::printf(
      "{\"bench\": \"overlap\", \"parameters\": %ld, \"stage\": %d, \"ranks\": %d, \"gb_per_s\": "
      "%g, \"seconds\": %.5f, \"seconds_delayed\": %.5f, "
      "\"delay\": %.5f, \"hidden\": %.3f, \"hidden_bound\": %s, \"hidden_overlap_off\": %.3f}\n",
      static_cast<long>(parameters), c.stage, c.ranks, c.gb_per_s, t.undelayed, t.delayed, t.delay,
      t.hidden(), t.bound ? fmt::format("{:.3f}", *t.bound).c_str() : "null",
      times[false].hidden());
}

}  // namespace tessera::test
