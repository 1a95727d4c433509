#include "tessera/zero/engine/engine.hpp"

#include <utility>

#include "engine/weights_base.hpp"
#include "gradients/offloaded_gradients.hpp"
#include "gradients/quantized_reduce.hpp"
#include "optimizer/compressed_update.hpp"
#include "optimizer/norm_and_overflow.hpp"
#include "optimizer/optimizer_state.hpp"
#include "optimizer/update_schedule.hpp"

namespace tessera::zero {
namespace {

using namespace detail;

/// What begin_micro_step() and an update leave for the calls after them.
struct StepProgress {
  optim::StepCommunication communication;
  bool in_micro_step = false;
  bool is_delayed = false;  ///< the host updates; the working weights are those before the update
};

class StagedEngine final : public WeightsBase<Engine> {
 public:
  StagedEngine(EngineConfig const& config, std::vector<memory::UnitSpec> const& units,
               std::shared_ptr<comm::Mesh> mesh, memory::Queue& compute)
      : WeightsBase(config, units, std::move(mesh), compute),
        optimizer_(optim::make_optimizer(config.optimizer)),
        offload_(make_offload()),
        host_gradients_(rules_.offloads_optimizer ? std::make_unique<HostGradients>(
                                                        context_, offload_, rules_.gradient_dtype)
                                                  : nullptr),
        gradients_(make_gradients()),
        host_(rules_.offloads_optimizer
                  ? std::make_unique<HostUpdate>(context_, offload_, *weights_)
                  : nullptr),
        state_(context_, rules_,
               {*weights_, *gradients_, *optimizer_, host_.get(), host_gradients_.get()}),
        decision_(context_),
        scaler_(config.loss_scaler) {
    if (auto const* compression = optim::compression_of(*optimizer_))
      compressed_ = std::make_unique<CompressedUpdate>(context_, state_, *compression);
  }

  /// The work that uses this class's buffers ends before they do.
  ~StagedEngine() override {
    try {
      state_.wait_for_host();
      gradients_->synchronize();
    } catch (...) {
    }
    wait_for_weights();
  }

  memory::GradientLease gradient(UnitIndex unit, memory::Queue&) override {
    expect_unit(unit);
    TESSERA_VALIDATE(step_.in_micro_step, InternalError, "gradients of unit ",
                     plan_.unit(unit).name,
                     " are requested outside a micro-step; call begin_micro_step() first");
    return expand(unit);
  }

  void gradient_complete(UnitIndex unit, memory::Queue&) override {
    expect_unit(unit);
    if (trains(unit)) gradients_->complete(unit);
  }

  void set_betas(double beta1, double beta2) override {
    auto spec = config_.optimizer;
    for (auto& h : spec.hyperparameters)
      h.value = h.name == "beta1" ? beta1 : h.name == "beta2" ? beta2 : h.value;
    auto next = optim::make_optimizer(spec);
    state_.set_optimizer(*next);
    optimizer_ = std::move(next);
  }

  void begin_pass(memory::Pass pass, std::vector<UnitIndex> acquisitions) override {
    if (pass == memory::Pass::evaluation) finish_delayed_update();
    WeightsBase::begin_pass(pass, std::move(acquisitions));
  }

  void begin_step() override {
    if (std::exchange(step_.in_micro_step, false)) gradients_->synchronize();
  }

  void begin_micro_step(int index, int count, MicroStepGradients gradients) override {
    TESSERA_VALIDATE(index >= 0 && index < count && count <= config_.accumulation_steps,
                     InternalError, "micro-step ", index, " of ", count, " does not fit steps of ",
                     config_.accumulation_steps);
    step_.communication = detail::communication_of(*optimizer_, steps_ + 1);
    gradients_->begin_micro_step({index == 0, index + 1 == count, index,
                                  gradients == MicroStepGradients::are_discarded,
                                  step_.communication.reduces_gradients, steps_ + 1});
    step_.in_micro_step = true;
  }

  StepResult finish_step(double learning_rate, StepValues const& values) override {
    TESSERA_VALIDATE(std::exchange(step_.in_micro_step, false), InternalError,
                     "finish_step() without a micro-step; call begin_micro_step() first");
    gradients_->finish();
    finish_delayed_update();
    kernels::GradientLimits limits{scaler_.scale() * rules_.averaging.left, config_.max_grad_norm,
                                   config_.skip_on_nonfinite || config_.dtype == Dtype::fp16};
    decision_.set_values(values);
    if (step_.communication.reduces_gradients)
      state_.compute_norm(decision_, limits);
    else
      compute_norm_of_own_gradients(limits);
    bool const host_decides =
        decision_.is_on_host() || host_ || !step_.communication.reduces_gradients;
    bool const may_skip = host_decides && decision_.precedes_update();
    if (!(may_skip && decision_.read().control.skip)) update(learning_rate);
    auto const decision = decision_.read();
    StepResult const result{decision.norm, scaler_.scale(), decision.control.skip != 0,
                            step_.communication.phase, decision_.sums()};
    if (groups_.world().rank() == 0) decision_.warn_of_unchecked_overflow();
    if (!result.skipped) ++steps_;
    scaler_.update(result.skipped);
    return result;
  }

  double loss_scale() const override { return scaler_.scale(); }
  double gradient_scale() const override { return scaler_.scale() * rules_.averaging.carried; }

  std::vector<StateView> state() override {
    finish_delayed_update();
    weights_->synchronize();
    weights_->finish_transfers();
    state_.states().finish_transfers();
    if (compressed_) compressed_->average_worker_errors();
    std::vector<StateView> out;
    for (std::size_t k = 0; k < state_.states().count(); ++k) {
      auto const& spec = state_.states().spec(k);
      state_.shards().copy(k, ShardDirection::to_host);
      out.push_back({spec.name, state_.shards().host(k), spec.extent});
    }
    if (auto* const quantized = gradients_->quantized()) quantized->save_errors(out);
    return out;
  }

  bool state_is_snapshot() const override { return state_.shards().are_copies(); }
  std::optional<UnitIndex> changed_states() override {
    for (UnitIndex u = first_unit; !step_.is_delayed && u < plan_.end_unit(); ++u)
      if (trains(u)) state_.compare_hashes(u);
    return state_.changed();
  }

  void load_state(std::int64_t optimizer_steps, optim::LossScalerState const& scaler) override {
    finish_delayed_update();
    weights_->prepare_update();
    for (std::size_t k = 0; k < state_.states().count(); ++k)
      state_.shards().copy(k, ShardDirection::to_state);
    distribute(OptimizerState::What::all_states);
    if (auto* const quantized = gradients_->quantized()) quantized->load_errors();
    steps_ = optimizer_steps;
    scaler_.restore(scaler);
  }

  std::int64_t optimizer_steps() const override { return steps_; }
  optim::LossScalerState scaler_state() const override { return scaler_.state(); }

  MemoryReport memory() const override {
    MemoryReport out = WeightsBase::memory();
    out.gradients = gradients_->gradient_bytes();
    out.master_weights = state_.states().bytes(master_weights);
    out.optimizer_state = state_.states().optimizer_bytes();
    out.formula = formula_bytes(config_, rules_, plan_, frozen_.plan_of_values()) +
                  frozen_.formula_code_bytes(rules_);
    auto const drive = state_.states().drive_use();
    out.buffers += gradients_->buffer_bytes() + drive.buffer_bytes;
    out.swapped += drive.file_bytes;
    out.swap = both(drive.swap, out.swap);
    if (compressed_) out.buffers += compressed_->bytes();
    if (!host_) return out;
    out.buffers += host_->bytes();
    out.offloaded += state_.states().host_bytes() + host_gradients_->bytes() + host_->bytes();
    out.pinned += host_gradients_->pinned_bytes() + host_->pinned_bytes();
    out.offloaded_share = static_cast<double>(offload_.numel(context_.ownership)) /
                          static_cast<double>(context_.ownership.state_numel());
    return out;
  }

 private:
  void fill_own_weights(Fill const& fill) override {
    if (!rules_.separate_master && rules_.master_dtype != Dtype::fp32)
      return WeightsBase::fill_own_weights(fill);  // a unit at a time
    state_.states().finish_transfers();
    auto const shards = state_.shards().host(master_weights);
    for (auto const& p : plan_.extents(context_.ownership.rank)) {
      ShardOffset const in_shard = plan_.unit(p.unit).shard_offset(p.partition_offset);
      auto const& in_model = trained_.in_model[position(p.unit)];
      fill(p.unit, static_cast<int>(in_model[static_cast<std::size_t>(p.parameter)]),
           p.parameter_offset.value(), p.numel, shards[position(p.unit)] + in_shard.value());
    }
    state_.shards().copy(master_weights, ShardDirection::to_state);
  }
  void distribute() override { distribute(OptimizerState::What::master_weights); }

  /// Updates weights and replicated state after this rank's shards of the master weights changed.
  void distribute(OptimizerState::What what) {
    state_.forget_hashes();
    weights_->finish_transfers();
    for (UnitIndex u = first_unit; u < plan_.end_unit(); ++u) {
      if (!trains(u)) continue;
      state_.round_weights(u);
      weights_->all_gather_updated(u);
    }
    state_.replicate(what);
    weights_->synchronize();
  }

  /// The lease of the parameters that train, at their places in the model's unit.
  memory::GradientLease expand(UnitIndex unit) {
    auto const& in_model = trained_.in_model[position(unit)];
    std::vector<memory::TensorView> views(in_model.size() +
                                          frozen_.plan().unit(unit).parameters.size());
    if (in_model.empty()) return {std::move(views), memory::WriteMode::overwrite};
    auto lease = gradients_->lease(unit);
    if (in_model.size() == views.size()) return lease;
    for (std::size_t i = 0; i < in_model.size(); ++i) views[in_model[i]] = lease[i];
    return {std::move(views), lease.mode()};
  }

  /// Units that stay on a device first: it updates them while the host updates the others.
  void update(double learning_rate) {
    state_.shards().release();
    optim::StepControl const device{steps_ + 1, learning_rate, decision_.control()},
        host{steps_ + 1, learning_rate, decision_.host_control()};
    if (offload_.delay_from > 0 && host.step >= offload_.delay_from) {
      state_.start_updates(host);
      step_.is_delayed = true;
      return;
    }
    if (step_.communication.reduces_gradients) state_.sum(device, host);
    weights_->prepare_update();
    if (!step_.communication.reduces_gradients) {
      state_.forget_hashes();
      return compressed_->run(*optim::compression_of(*optimizer_), device);
    }
    weights_->begin_updates();
    for (UnitIndex u = offload_.end; u < plan_.end_unit(); ++u) update(u, device);
    for (UnitIndex u = first_unit; u < offload_.end; ++u) update(u, host);
  }
  /// Computes the norm of the gradients of the rank's own mean loss, as DeepSpeed does: they are N
  /// times the rank's share of the global ones.
  void compute_norm_of_own_gradients(kernels::GradientLimits limits) {
    double const n = plan_.ranks();
    bool const averages = config_.reduction.average == GradientAverage::mean;
    limits.loss_scale = scaler_.scale() * rules_.averaging.carried / n / (averages ? 1.0 : n);
    limits.gradients = plan_.ranks();
    std::vector<kernels::GradientRun> runs;
    for (UnitIndex u = first_unit; u < plan_.end_unit(); ++u)
      runs.push_back({gradients_->region(u), plan_.unit(u).padded_numel});
    decision_.compute(runs, rules_.gradient_dtype, limits);
  }
  /// Weights of the update that was started by an earlier step, if any.
  void finish_delayed_update() {
    if (!std::exchange(step_.is_delayed, false)) return;
    weights_->prepare_update();
    for (UnitIndex u = first_unit; u < offload_.end; ++u) update(u, {});
  }
  /// @param control none: the host has started the update
  void update(UnitIndex unit, std::optional<optim::StepControl> const& control) {
    if (!trains(unit)) return;
    weights_->open_region(unit);
    if (control)
      state_.update(unit, *control);
    else
      state_.finish_update(unit);
    if (rules_.shards_optimizer || rules_.shards_weights) weights_->all_gather_updated(unit);
  }

  Offload make_offload() {
    Offload out(context_, rules_, *optimizer_);
    weights_->set_host_updates(out.end);
    return out;
  }

  std::unique_ptr<GradientFlow> make_gradients() {
    auto const& units = trained_.units;
    if (rules_.offloads_gradients)
      return make_offloaded_gradients(context_, rules_, units, *host_gradients_);
    if (rules_.shards_gradients) return make_sharded_gradients(context_, rules_, units);
    return make_resident_gradients(context_, rules_, units, host_gradients_.get());
  }

  std::unique_ptr<optim::Optimizer> optimizer_;
  Offload offload_;
  std::unique_ptr<HostGradients> host_gradients_;  ///< null: nothing is offloaded from a device
  std::unique_ptr<GradientFlow> gradients_;
  std::unique_ptr<HostUpdate> host_;
  OptimizerState state_;
  NormAndOverflow decision_;
  std::unique_ptr<CompressedUpdate> compressed_;  ///< null: gradients are reduced in every step
  optim::LossScaler scaler_;
  std::int64_t steps_ = 0;
  StepProgress step_;
};

std::unique_ptr<Engine> make_on(std::shared_ptr<comm::Mesh> const& mesh, EngineConfig const& config,
                                std::vector<memory::UnitSpec> const& units,
                                memory::Queue& compute) {
  validate(config);
  validate_training(config, mesh->size(), memory::memory_space_of(compute));
  TESSERA_VALIDATE(!units.empty(), InternalError, "a model without units cannot be trained");
  TESSERA_VALIDATE(!trained_parameters(units).empty(), ConfigError,
                   "no parameter trains: all are frozen; leave some out of the frozen parameters");
  return make_on_all_ranks(mesh->world(), [&]() -> std::unique_ptr<Engine> {
    return std::make_unique<StagedEngine>(config, units, mesh, compute);
  });
}

}  // namespace

std::unique_ptr<Engine> make_engine(EngineConfig const& config,
                                    std::vector<memory::UnitSpec> const& units, comm::Mesh& mesh,
                                    memory::Queue& compute) {
  return make_on({std::shared_ptr<comm::Mesh>(), &mesh}, on_mesh(config, mesh), units, compute);
}

std::unique_ptr<Engine> make_engine(EngineConfig const& config,
                                    std::vector<memory::UnitSpec> const& units,
                                    comm::Collectives& comm, memory::Queue& compute) {
  return make_on(own_mesh(config, comm), config, units, compute);
}

}  // namespace tessera::zero
