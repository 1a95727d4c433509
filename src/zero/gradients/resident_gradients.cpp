#include "gradients/gradient_flow.hpp"

#include <functional>

#include "gradients/gradient_staging.hpp"
#include "gradients/micro_step_sums.hpp"
#include "gradients/offloaded_gradients.hpp"
#include "gradients/reducer.hpp"
#include "gradients/unit_progress.hpp"
#include "transfer/comm_buffer.hpp"

namespace tessera::zero::detail {
namespace {

/// Kernels write into the full buffer when its dtype is the working dtype; else into a staging
/// buffer that is added to it when the unit is complete.
class ResidentGradients final : public GradientFlow {
 public:
  ResidentGradients(StoreContext const& context, StageRules const& rules,
                    std::vector<memory::UnitSpec> const& units, HostGradients* host)
      : context_(context),
        rules_(rules),
        host_(host),
        progress_(context.plan, units),
        sums_(context.config),
        flat_(context.comm, "gradients", memory::Purpose::gradients, rules.gradient_dtype,
              context.plan.padded_count() * sums_.copies()),
        staging_(context, progress_, units.size()),
        reducer_(context, rules.averaging) {}

  void begin_micro_step(MicroStep micro) override {
    if (!micro.first) progress_.expect_all_complete();
    micro_ = micro;
    progress_.begin_micro_step();
    sums_.begin(micro);
  }

  memory::GradientLease lease(UnitIndex unit) override {
    bool const first = progress_.open(unit);
    if (!direct()) return staging_.lend(unit, first);
    bool const overwrite = first && !sums_.adds();
    auto const gradients = unit_gradients(unit, sums_.copy_index());
    if (overwrite) progress_.clear_untied(context_.compute, unit, gradients);
    return {parameter_views(context_.plan.unit(unit), gradients.data(), flat_.dtype()),
            overwrite ? memory::WriteMode::overwrite : memory::WriteMode::add};
  }

  void complete(UnitIndex unit) override {
    progress_.complete(unit);
    if (!direct()) {
      add_staged(unit);
    } else {
      auto const sums = [&](int place) { return unit_gradients(unit, place); };
      if (micro_.is_empty) clear_to_identity(context_.compute, sums(sums_.copy_index()));
      sums_.merge(context_.compute, sums);
    }
    if (micro_.last) reduce(unit);
  }

  void finish() override {
    progress_.expect_all_complete();
    reducer_.finish();
  }
  void synchronize() override {
    reducer_.wait_all();
    if (host_) host_->synchronize();
  }

  void* region(UnitIndex unit) const override {
    if (host_ && host_->has(unit)) return host_->region(unit);
    return flat_.at(full_offset(context_.plan, unit) + context_.ownership.begin(unit).value());
  }
  std::size_t gradient_bytes() const override {
    return flat_.bytes() + (host_ ? host_->bytes() : 0);
  }
  std::size_t buffer_bytes() const override { return staging_.bytes() + reducer_.buffer_bytes(); }

 private:
  /// Sums as a tree add complete gradients of a micro-step, which a staging buffer holds.
  bool direct() const {
    return flat_.dtype() == context_.config.dtype && !(sums_.is_tree() && sums_.adds());
  }
  memory::TensorView unit_gradients(UnitIndex unit, int place = 0) const {
    return flat_.view(context_.plan.padded_count() * place + full_offset(context_.plan, unit),
                      context_.plan.unit(unit).padded_numel);
  }
  memory::TensorView shard(UnitIndex unit) const {
    return part(unit_gradients(unit), context_.ownership.shard_begin(unit).value(),
                context_.plan.unit(unit).shard_numel);
  }

  void reduce(UnitIndex unit) {
    if (!rules_.reduces || !micro_.reduces)
      leave(unit, context_.compute.record());
    else if (rules_.shards_optimizer)
      reducer_.reduce_scatter(unit, unit_gradients(unit), shard(unit), {}, {},
                              [this, unit](memory::Event const& done) { leave(unit, done); });
    else
      reducer_.all_reduce(unit_gradients(unit), context_.compute.record());
  }

  /// The regions' memory is written again in the next step, after the host has updated from its
  /// copies.
  void leave(UnitIndex unit, memory::Event const& done) {
    if (host_) host_->leave(unit, shard(unit).data(), done, HostGradients::Sums::complete);
  }

  void add_staged(UnitIndex unit) {
    auto const sums = [&](int place) { return unit_gradients(unit, place); };
    auto const lent = staging_.take(unit);
    if (micro_.is_empty) clear_to_identity(context_.compute, lent.data);
    if (sums_.adds()) {
      sums_.merge(context_.compute, lent.data, sums);
    } else {
      kernels::cast(context_.compute, sums(sums_.copy_index()), lent.data);
      sums_.merge(context_.compute, sums);
    }
    staging_.give_back(lent, context_.compute.record());
  }

  StoreContext context_;
  StageRules rules_;
  HostGradients* host_;
  UnitProgress progress_;
  MicroStepSums sums_;
  CommBuffer flat_;  ///< all units, one time for each partial sum
  GradientStaging staging_;
  Reducer reducer_;
  MicroStep micro_;
};

}  // namespace

std::unique_ptr<GradientFlow> make_resident_gradients(StoreContext const& context,
                                                      StageRules const& rules,
                                                      std::vector<memory::UnitSpec> const& units,
                                                      HostGradients* host) {
  return std::make_unique<ResidentGradients>(context, rules, units, host);
}

}  // namespace tessera::zero::detail
