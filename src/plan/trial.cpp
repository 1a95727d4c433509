#include "tessera/plan/auto_tune.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/config/node_groups.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/train/setup/activation_memory.hpp"
#include "tessera/train/setup/engine_config.hpp"
#include "tessera/train/step/stop_request.hpp"

namespace tessera::plan {
namespace {

std::unique_ptr<memory::Queue> compute_queue(TrialContext const& where) {
  if (memory::Runtime::device() < 0) return memory::make_inline_queue("compute");
  return memory::make_stream_queue(
      "compute", memory::StreamPriority::normal,
      where.cuda_graphs ? memory::GraphMode::capture : memory::GraphMode::off);
}

/// Model, engine and tokens of a choice.
class Candidate {
 public:
  Candidate(Planner& planner, Choice const& choice, TrialContext const& where)
      : comm_(where.comm),
        choice_(choice),
        config_(planner.resolved(choice)),
        mesh_(comm_, config::mesh_of(config_)),
        compute_(compute_queue(where)),
        model_(planner.make_model(config_)),
        tokens_(static_cast<std::size_t>(choice.micro_batch * planner.sequence())),
        sequence_(planner.sequence()) {
    auto engine = train::engine_config(config_);
    // a scale that overflows would skip the updates
    if (config_.dynamic_loss_scale) engine.loss_scaler = {.static_scale = 128.0};
    engine_ = zero::make_engine(engine, model_->units(), mesh_, *compute_);
    train::PlannedPasses passes;
    passes.train_rows = choice.micro_batch;
    passes.train_sequence = sequence_;
    passes.recompute = choice.recompute;
    passes.cpu_checkpointing = config_.cpu_checkpointing;
    passes.ranks_on_node = where.ranks_on_node;
    if (auto const& a = planner.request().arguments; a.do_eval) {
      passes.evaluation_rows = a.per_device_eval_batch_size;
      passes.evaluation_sequence = sequence_;
    }
    (void)train::reserve_activations(*model_, *compute_, comm_, passes);
    engine_->initialize(
        [](memory::UnitIndex, int, std::int64_t first, std::int64_t numel, float* to) {
          for (std::int64_t i = 0; i < numel; ++i)
            to[i] = 0.02f * std::sin(static_cast<float>(first + i));
        });
    std::int64_t const vocabulary = std::max<std::int64_t>(model_->vocabulary_size(), 2);
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      tokens_[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i * 31) % vocabulary);
  }

  /// Seconds on the slowest rank.
  double step(std::uint64_t number) {
    auto const start = Clock::now();
    model::PassSettings settings;
    settings.step = number;
    settings.gradient_scale = static_cast<float>(
        engine_->gradient_scale() /
        static_cast<double>(config_.train_batch_size * std::max<std::int64_t>(sequence_ - 1, 1)));
    settings.recompute = choice_.recompute;
    settings.cpu_checkpointing = config_.cpu_checkpointing;
    engine_->begin_step();
    std::vector<model::LossSum> losses;
    int const micro_steps = static_cast<int>(choice_.accumulation);
    for (int i = 0; i < micro_steps; ++i) {
      engine_->begin_micro_step(i, micro_steps);
      losses.push_back(model_->train({tokens_.data(), choice_.micro_batch, sequence_, 0}, settings,
                                     *engine_, *compute_));
    }
    (void)engine_->finish_step(1e-6);
    for (auto const& loss : losses) (void)loss.value();
    return comm::all_reduce_value(comm_, seconds_since(start), comm::ReduceOp::max);
  }

 private:
  comm::Collectives& comm_;
  Choice choice_;
  config::ResolvedConfig config_;
  comm::Mesh mesh_;
  std::unique_ptr<memory::Queue> compute_;
  std::unique_ptr<model::CausalLm> model_;
  std::unique_ptr<zero::Engine> engine_;
  std::vector<std::int32_t> tokens_;
  std::int64_t sequence_ = 0;
};

/// @param step, fastest  the last one from 0, the shortest so far
bool is_hopeless(std::int64_t step, double fastest, double useful_seconds) {
  // the first step pays for first use of memory and kernels
  constexpr double first_use = 1.0;
  return fastest > (step == 0 ? 2.0 * useful_seconds + first_use : useful_seconds);
}

bool is_asked_to_stop(comm::Collectives& comm) {
  return !comm::agree(comm, train::StopRequest::signal() == 0);
}

}  // namespace

Trial run_trial(Planner& planner, Choice const& choice, TrialContext const& where,
                double useful_seconds) {
  Trial out;
  out.choice = choice;
  try {
    Candidate candidate(planner, choice, where);
    constexpr double never = std::numeric_limits<double>::max();
    double fastest = never, best = never, measured = 0.0;
    std::int64_t const steps = where.warm_up_steps + where.measured_steps;
    for (std::int64_t i = 0; i < steps || measured < where.measured_seconds; ++i) {
      double const seconds = candidate.step(static_cast<std::uint64_t>(i + 1));
      fastest = std::min(fastest, seconds);
      if (is_hopeless(i, fastest, useful_seconds)) {
        out.refused = fmt::format("given up: a step took {:.3g} s", fastest);
        return out;
      }
      if (i >= where.warm_up_steps) {
        best = std::min(best, seconds);
        measured += seconds;
      }
      if (is_asked_to_stop(where.comm)) {
        out.refused = "asked to stop";
        return out;
      }
    }
    out.seconds = best;
  } catch (OutOfMemoryError const& e) {  // on all ranks
    out.refused = e.what();
  } catch (ConfigError const& e) {
    out.refused = e.what();
  } catch (IoError const& e) {
    out.refused = e.what();
  }
  return out;
}

}  // namespace tessera::plan
