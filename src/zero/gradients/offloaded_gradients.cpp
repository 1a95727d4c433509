#include "gradients/offloaded_gradients.hpp"

#include <optional>
#include <utility>

#include "gradients/gradient_staging.hpp"
#include "gradients/reducer.hpp"
#include "gradients/unit_progress.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {

HostGradients::HostGradients(StoreContext const& context, Offload offload, Dtype dtype)
    : context_(context),
      offload_(std::move(offload)),
      dtype_(dtype),
      out_(memory::make_stream_queue("gradients to the host")),
      in_(memory::make_stream_queue("gradients to the device")),
      values_(memory::make_host_buffer("gradients in host memory", memory::Purpose::gradients,
                                       bytes_of(offload_.numel(context.ownership)),
                                       offload_.space)),
      arrived_(offload_.tiles.size()),
      read_(offload_.tiles.size()) {
  partial_of_.push_back(0);
  for (auto const& unit : context.plan.units())
    partial_of_.push_back(partial_of_.back() + kernels::partial_sum_count(unit.shard_numel));
  partial_ = {"partial sums of squared gradients", memory::Purpose::workspace,
              static_cast<std::size_t>(partial_of_.back()) * sizeof(double),
              memory::MemorySpace::device};
}

void* HostGradients::region(UnitIndex unit) const {
  return static_cast<std::byte*>(values_.data()) + bytes_of(context_.ownership.state_offset(unit));
}

memory::Event HostGradients::leave(UnitIndex unit, void const* from, memory::Event const& ready,
                                   Sums sums) {
  out_->wait(ready);
  if (sums == Sums::complete) {
    kernels::partial_gradient_statistics(
        *out_, static_cast<double*>(partial_.data()) + partial_of_[position(unit)],
        {from, context_.plan.unit(unit).shard_numel}, dtype_);
    measured_ = out_->record();
  }
  if (!has(unit)) return measured_;
  for (std::size_t t = offload_.tiles.first(unit); t < offload_.tiles.end(unit); ++t) {
    auto const& tile = offload_.tiles[t];
    auto const at = bytes_of(tile.begin);
    std::exchange(read_[t], {}).wait("the delayed update of the optimizer", compute_deadline);
    memory::copy(*out_, static_cast<std::byte*>(region(unit)) + at,
                 static_cast<std::byte const*>(from) + at, bytes_of(tile.numel));
    arrived_[t] = out_->record();
  }
  return out_->record();
}

memory::Event HostGradients::bring(UnitIndex unit, void* to, memory::Event const& ready) {
  auto const& arrived = arrived_[offload_.tiles.end(unit) - 1];
  in_->wait(ready);
  in_->wait(arrived);
  if (pinned_bytes() == 0)  // a copy from pageable memory may read it before the call returns
    arrived.wait("gradients of an earlier micro-step", compute_deadline);
  memory::copy(*in_, to, region(unit), bytes_of(context_.ownership.numel(unit)));
  return in_->record();
}

void HostGradients::order_all_before(memory::Queue& queue) const {
  for (auto const& event : arrived_) queue.wait(event);
}

void HostGradients::total(memory::Queue& compute, double* sums) const {
  compute.wait(measured_);
  kernels::total_gradient_statistics(compute, sums, static_cast<double const*>(partial_.data()),
                                     partial_of_.back());
}

void HostGradients::synchronize() const {
  for (auto const* queue : {out_.get(), in_.get()})
    const_cast<memory::Queue*>(queue)->record().wait("gradients between device and host",
                                                     compute_deadline);
}

namespace {

/// The sums of a unit have a buffer on the device from its first gradients in a micro-step until
/// they have left. From the second micro-step on they are brought back first, so that the same
/// kernels add in the same order as without offload.
class OffloadedGradients final : public GradientFlow {
 public:
  OffloadedGradients(StoreContext const& context, StageRules const& rules,
                     std::vector<memory::UnitSpec> const& units, HostGradients& host)
      : context_(context),
        rules_(rules),
        host_(host),
        progress_(context.plan, units),
        kept_begin_(host.end()),
        kept_(kept_begin_ == context.ownership.state_numel()
                  ? CommBuffer()
                  : CommBuffer(context.comm, "gradients", memory::Purpose::gradients,
                               rules.gradient_dtype,
                               context.ownership.state_numel() - kept_begin_)),
        staging_(context, progress_, units.size()),
        pool_("gradients that leave", rules.gradient_dtype, context.comm),
        sums_(units.size()),
        reducer_(context, rules.averaging) {}

  void begin_micro_step(MicroStep micro) override {
    if (!micro.first) progress_.expect_all_complete();
    micro_ = micro;
    progress_.begin_micro_step();
    reducer_.retire_all();
    // Sums of quantized gradients must have left before this micro-step brings them back.
    if (auto* const quantized = reducer_.quantized()) quantized->finish();
  }

  memory::GradientLease lease(UnitIndex unit) override {
    bool const first = progress_.open(unit);
    if (first) sums_[position(unit)] = open(unit);
    if (!is_direct()) return staging_.lend(unit, first);
    auto const& sums = *sums_[position(unit)];
    if (first) context_.compute.wait(sums.ready);
    bool const overwrite = first && micro_.first;
    if (overwrite) {
      progress_.clear_untied(context_.compute, unit, sums.data);
      progress_.clear_padding(context_.compute, unit, sums.data);
    }
    return {parameter_views(context_.plan.unit(unit), sums.data.data(), rules_.gradient_dtype),
            overwrite ? memory::WriteMode::overwrite : memory::WriteMode::add};
  }

  void complete(UnitIndex unit) override {
    progress_.complete(unit);
    auto const sums = *std::exchange(sums_[position(unit)], std::nullopt);
    if (is_direct()) return leave(unit, sums, context_.compute.record());
    auto const lent = staging_.take(unit);
    context_.compute.wait(sums.ready);
    if (rules_.reduces) return reduce(unit, lent, sums);
    if (micro_.first)
      kernels::cast(context_.compute, sums.data, lent.data);
    else
      kernels::add(context_.compute, sums.data, lent.data);
    auto const added = context_.compute.record();
    staging_.give_back(lent, added);
    leave(unit, sums, added);
  }

  void finish() override {
    progress_.expect_all_complete();
    reducer_.finish();
  }
  void synchronize() override {
    reducer_.wait_all();
    host_.synchronize();
  }

  void* region(UnitIndex unit) const override {
    return host_.has(unit) ? host_.region(unit) : kept(unit).data();
  }
  std::size_t gradient_bytes() const override { return kept_.bytes() + host_.bytes(); }
  std::size_t buffer_bytes() const override {
    return staging_.bytes() + pool_.bytes() + reducer_.buffer_bytes();
  }
  QuantizedReduce* quantized() override { return reducer_.quantized(); }

 private:
  /// Where the sums of a unit are on the device, and when they may be read and written there.
  struct Sums {
    memory::TensorView data;
    memory::Event ready;
    std::optional<BufferPool::Entry> pooled;
  };

  /// Kernels write into the sums: one rank, whose gradients have the dtype of the sums.
  bool is_direct() const {
    return !rules_.reduces && rules_.gradient_dtype == context_.config.dtype;
  }
  memory::TensorView kept(UnitIndex unit) const {
    return kept_.view(context_.ownership.state_offset(unit) - kept_begin_,
                      context_.ownership.numel(unit));
  }

  Sums open(UnitIndex unit) {
    if (!host_.has(unit)) return {kept(unit), {}, {}};
    auto const entry = pool_.take(context_.ownership.numel(unit));
    auto const ready =
        micro_.first ? entry.ready : host_.bring(unit, entry.data.data(), entry.ready);
    return {entry.data, ready, entry};
  }

  void reduce(UnitIndex unit, BufferPool::Entry const& lent, Sums const& sums) {
    reducer_.reduce_scatter(
        unit, lent.data, sums.data, micro_,
        [this, lent](memory::Event done) { staging_.give_back(lent, std::move(done)); },
        [this, unit, sums, micro = micro_](memory::Event const& done) {
          leave(unit, sums, done, micro);
        });
  }

  void leave(UnitIndex unit, Sums const& sums, memory::Event const& done) {
    leave(unit, sums, done, micro_);
  }
  void leave(UnitIndex unit, Sums const& sums, memory::Event const& done, MicroStep micro) {
    if (!sums.pooled && !micro.last) return;
    auto const left =
        host_.leave(unit, sums.data.data(), done,
                    micro.last ? HostGradients::Sums::complete : HostGradients::Sums::partial);
    if (sums.pooled) pool_.give_back(*sums.pooled, left);
  }

  StoreContext context_;
  StageRules rules_;
  HostGradients& host_;
  UnitProgress progress_;
  std::int64_t kept_begin_;  ///< Ownership::state_offset() of the first unit that stays
  CommBuffer kept_;          ///< gradients of the units that stay on the device
  GradientStaging staging_;
  BufferPool pool_;
  std::vector<std::optional<Sums>> sums_;
  Reducer reducer_;
  MicroStep micro_;
};

}  // namespace

std::unique_ptr<GradientFlow> make_offloaded_gradients(StoreContext const& context,
                                                       StageRules const& rules,
                                                       std::vector<memory::UnitSpec> const& units,
                                                       HostGradients& host) {
  return std::make_unique<OffloadedGradients>(context, rules, units, host);
}

}  // namespace tessera::zero::detail
