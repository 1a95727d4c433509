#include "tessera/zero/engine.hpp"

#include <array>
#include <chrono>
#include <exception>

#include "detail/gradient_flow.hpp"
#include "detail/memory_report.hpp"
#include "detail/norm_and_overflow.hpp"
#include "detail/optimizer_state.hpp"
#include "detail/stage_rules.hpp"
#include "detail/weight_store.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"

namespace tessera::zero {
namespace {

using namespace detail;

constexpr std::array<std::pair<char const*, OptimizerState::Part>, 3> state_parts{
    {{"fp32", OptimizerState::Part::master},
     {"exp_avg", OptimizerState::Part::exp_avg},
     {"exp_avg_sq", OptimizerState::Part::exp_avg_sq}}};

/// More than any update takes.
constexpr std::chrono::seconds longest_goodbye{10};

class StagedEngine final : public Engine {
 public:
  StagedEngine(EngineConfig const& config, std::vector<memory::UnitSpec> const& units,
               comm::Collectives& comm, memory::Queue& compute)
      : config_(config),
        plan_(units, comm.size()),
        rules_(rules_for(config, comm.size())),
        context_{config_, plan_, {&plan_, comm.rank(), !rules_.shards_optimizer}, comm, compute},
        weights_(rules_.shards_weights ? make_gathered_weights(context_)
                                       : make_resident_weights(context_)),
        gradients_(rules_.shards_gradients ? make_sharded_gradients(context_, rules_, units)
                                           : make_resident_gradients(context_, rules_, units)),
        optimizer_(context_, rules_, *weights_, *gradients_),
        verdict_(context_),
        scaler_(config.loss_scaler) {}

  /// Transfers and kernels under way use the buffers; what failed has been reported where it was
  /// waited for, and a queue that stands still is not waited for here.
  ~StagedEngine() override {
    try {
      gradients_->settle();
    } catch (...) {
    }
    try {
      weights_->settle();
      context_.compute.record().wait_for(longest_goodbye);
    } catch (...) {
    }
  }

  PartitionPlan const& plan() const override { return plan_; }
  EngineConfig const& config() const override { return config_; }

  void initialize(Fill const& fill) override {
    weights_->prepare_update();
    std::exception_ptr failed;
    try {
      fill_masters(fill);
    } catch (...) {
      failed = std::current_exception();
    }
    bool const all_have_weights = comm::agree(context_.comm, !failed);
    if (failed) std::rethrow_exception(failed);
    if (!all_have_weights)
      throw PeerLostError(
          -1, "another rank could not provide its initial weights; its own message says why");
    spread(OptimizerState::What::masters);
  }

  void begin_pass(memory::Pass, std::vector<int> acquisitions) override {
    for (int const unit : acquisitions) expect_unit(unit);
    announced_ = acquisitions;
    acquired_ = 0;
    weights_->announce(std::move(acquisitions));
  }

  memory::WeightLease acquire(int unit, memory::Queue& compute) override {
    expect_unit(unit);
    bool const expected = acquired_ < announced_.size() && announced_[acquired_] == unit;
    TESSERA_VALIDATE(expected, InternalError, "acquisition ", acquired_, " of the pass is unit ",
                     plan_.unit(unit).name, " but ",
                     acquired_ < announced_.size() ? plan_.unit(announced_[acquired_]).name
                                                   : std::string("none"),
                     " was announced; begin_pass must list every acquire() in order");
    ++acquired_;
    return weights_->acquire(unit, compute);
  }

  memory::GradientLease gradient(int unit, memory::Queue&) override {
    expect_unit(unit);
    TESSERA_VALIDATE(in_micro_step_, InternalError, "gradients of unit ", plan_.unit(unit).name,
                     " are asked for outside a micro-step");
    return gradients_->lease(unit);
  }

  void gradient_complete(int unit, memory::Queue&) override {
    expect_unit(unit);
    gradients_->complete(unit);
  }

  void begin_step() override { in_micro_step_ = false; }

  void begin_micro_step(int index, int count) override {
    TESSERA_VALIDATE(index >= 0 && index < count && count <= config_.accumulation_steps,
                     InternalError, "micro-step ", index, " of ", count,
                     " does not fit gradient_accumulation_steps ", config_.accumulation_steps);
    gradients_->begin_micro_step({index == 0, index + 1 == count});
    in_micro_step_ = true;
  }

  StepResult finish_step(double learning_rate) override {
    TESSERA_VALIDATE(in_micro_step_, InternalError, "an optimizer step without a micro-step");
    in_micro_step_ = false;
    gradients_->finish();
    verdict_.form(optimizer_.gradient_shards(), optimizer_.gradient_dtype(),
                  {scaler_.scale(), config_.max_grad_norm, skips_nonfinite()});
    if (!(verdict_.is_known_at_once() && verdict_.read().control.skip)) update(learning_rate);
    auto const verdict = verdict_.read();
    StepResult const result{verdict.norm, scaler_.scale(), verdict.control.skip != 0};
    if (!verdict.finite && !result.skipped && context_.ownership.rank == 0)
      log::warning(
          "gradients are not finite and the update goes on: the overflow check is switched off "
          "(bf16.check_grad_overflow)");
    if (!result.skipped) ++steps_;
    scaler_.update(result.skipped);
    return result;
  }

  double loss_scale() const override { return scaler_.scale(); }

  std::vector<StateView> state() override {
    weights_->settle();
    std::vector<StateView> out;
    for (auto const& [name, part] : state_parts) {
      optimizer_.copy_shards(part, OptimizerState::Direction::to_host);
      auto const shards = optimizer_.host_shards(part);
      out.push_back({name, {shards.begin(), shards.end()}});
    }
    return out;
  }

  bool state_is_snapshot() const override { return optimizer_.has_mirrors(); }

  void restored(std::int64_t optimizer_steps, optim::LossScalerState const& scaler) override {
    weights_->prepare_update();
    for (auto const& [name, part] : state_parts)
      optimizer_.copy_shards(part, OptimizerState::Direction::to_device);
    spread(OptimizerState::What::masters_and_moments);
    steps_ = optimizer_steps;
    scaler_.restore(scaler);
  }

  std::int64_t optimizer_steps() const override { return steps_; }
  optim::LossScalerState scaler_state() const override { return scaler_.state(); }

  MemoryReport memory() const override {
    MemoryReport out;
    out.weights = weights_->weight_bytes();
    out.gradients = gradients_->gradient_bytes();
    out.masters = optimizer_.master_bytes();
    out.optimizer_state = optimizer_.moment_bytes();
    out.buffers = weights_->buffer_bytes() + gradients_->buffer_bytes();
    out.formula = formula_bytes(config_, rules_, plan_);
    return out;
  }

 private:
  int unit_count() const { return static_cast<int>(plan_.units().size()); }

  void expect_unit(int unit) const {
    TESSERA_VALIDATE(unit >= 0 && unit < unit_count(), InternalError, "unit ", unit,
                     " does not exist; the model has ", unit_count());
  }

  void fill_masters(Fill const& fill) {
    auto const shards = optimizer_.host_shards(OptimizerState::Part::master);
    for (auto const& p : plan_.extents(context_.ownership.rank)) {
      std::int64_t const in_shard = p.partition_offset - plan_.unit(p.unit).partition_offset;
      fill(p.unit, p.parameter, p.parameter_offset, p.numel,
           shards[static_cast<std::size_t>(p.unit)] + in_shard);
    }
    optimizer_.copy_shards(OptimizerState::Part::master, OptimizerState::Direction::to_device);
  }

  /// After the masters' shards were written: weights and replicas follow.
  void spread(OptimizerState::What what) {
    for (int u = 0; u < unit_count(); ++u) {
      optimizer_.round_weights(u);
      weights_->publish(u);
    }
    optimizer_.replicate(what);
    weights_->settle();
  }

  bool skips_nonfinite() const { return config_.skip_on_nonfinite || config_.dtype == Dtype::fp16; }

  void update(double learning_rate) {
    weights_->prepare_update();
    for (int u = 0; u < unit_count(); ++u) {
      optimizer_.update(u, steps_ + 1, learning_rate, verdict_.control());
      if (rules_.shards_optimizer) weights_->publish(u);
    }
  }

  EngineConfig config_;
  PartitionPlan plan_;
  StageRules rules_;
  StoreContext context_;
  std::unique_ptr<WeightStore> weights_;
  std::unique_ptr<GradientFlow> gradients_;
  OptimizerState optimizer_;
  NormAndOverflow verdict_;
  optim::LossScaler scaler_;
  std::int64_t steps_ = 0;
  std::vector<int> announced_;
  std::size_t acquired_ = 0;
  bool in_micro_step_ = false;
};

}  // namespace

std::unique_ptr<Engine> make_engine(EngineConfig const& config,
                                    std::vector<memory::UnitSpec> const& units,
                                    comm::Collectives& comm, memory::Queue& compute) {
  validate(config);
  TESSERA_VALIDATE(!units.empty(), InternalError, "a model without units cannot be trained");
  std::unique_ptr<Engine> engine;
  std::string refusal;
  try {
    engine = std::make_unique<StagedEngine>(config, units, comm, compute);
  } catch (OutOfMemoryError const& error) {
    refusal = error.what();
  }
  bool const all_have_memory = comm::agree(comm, refusal.empty());
  TESSERA_VALIDATE(refusal.empty(), OutOfMemoryError, refusal);
  TESSERA_VALIDATE(all_have_memory, OutOfMemoryError,
                   "another rank has no memory for its model states; use a higher ZeRO stage, more "
                   "ranks, or fewer ranks on a node");
  return engine;
}

}  // namespace tessera::zero
