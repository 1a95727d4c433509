#include "weights/frozen_part.hpp"

#include <algorithm>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/device.hpp"
#include "weights/weight_stores.hpp"

namespace tessera::zero::detail {
namespace {

memory::TensorView part_of(memory::TensorView const& shard, std::int64_t first,
                           std::int64_t numel) {
  auto* const data = static_cast<std::byte*>(shard.data());
  return {data + static_cast<std::size_t>(first) * size_of(shard.dtype()), shard.dtype(), {numel}};
}

/// Most elements of values that are loaded at a time: with them, a load needs no more memory than
/// the passes that follow.
constexpr std::int64_t loaded_numel = 262'144;

/// fp32 values on their way to the working weights.
class LoadedValues {
 public:
  explicit LoadedValues(StoreContext const& context)
      : compute_(context.compute),
        is_on_device_(memory::memory_space_of(compute_) == memory::MemorySpace::device),
        values_("weights that are loaded", memory::Purpose::workspace, bytes),
        copy_("weights that are loaded", memory::Purpose::workspace, is_on_device_ ? bytes : 0,
              memory::memory_space_of(compute_)) {}

  /// @p numel zeros, to be overwritten.
  float* zeros(std::int64_t numel) const {
    std::fill_n(data(), numel, 0.0f);
    return data();
  }
  /// Rounds the first values to @p weights. Blocks the host.
  void store(memory::TensorView const& weights) const {
    std::int64_t const numel = weights.numel();
    if (is_on_device_ && !memory::on_device(weights.data())) {
      compute_.record().wait("weights that are loaded", compute_deadline);
      kernels::cast(*memory::make_inline_queue("weights that are loaded"), weights,
                    memory::TensorView(data(), Dtype::fp32, {numel}));
      return;
    }
    void* from = data();
    if (is_on_device_) {
      from = copy_.data();
      memory::copy(compute_, from, data(), static_cast<std::size_t>(numel) * sizeof(float));
    }
    kernels::cast(compute_, weights, memory::TensorView(from, Dtype::fp32, {numel}));
    compute_.record().wait("weights that are loaded", compute_deadline);
  }

 private:
  static constexpr std::size_t bytes = static_cast<std::size_t>(loaded_numel) * sizeof(float);
  float* data() const { return static_cast<float*>(values_.data()); }
  memory::Queue& compute_;
  bool is_on_device_;
  memory::Buffer values_, copy_;
};

/// A part of a rank's shard of a unit.
struct Part {
  UnitIndex unit;
  std::int64_t first, numel;
};

/// @param out zeros; what belongs to no parameter stays zero
void fill_part(StoreContext const& context, ParameterSubset const& subset, Part const& part,
               WeightFill const& fill, float* out) {
  auto const& layout = context.plan.unit(part.unit);
  for (auto const& extent : context.plan.extents(context.ownership.rank)) {
    if (extent.unit != part.unit) continue;
    std::int64_t const start = layout.shard_offset(extent.partition_offset).value(),
                       from = std::max(start, part.first),
                       to = std::min(start + extent.numel, part.first + part.numel);
    auto const& in_model = subset.in_model[position(part.unit)];
    if (from < to)
      fill(part.unit, static_cast<int>(in_model[static_cast<std::size_t>(extent.parameter)]),
           extent.parameter_offset.value() + (from - start), to - from, out + (from - part.first));
  }
}

}  // namespace

memory::TensorView shard_of(StoreContext const& context, UpdateRegions const& weights,
                            UnitIndex unit) {
  Dtype const dtype = context.config.dtype;
  auto* const region = static_cast<std::byte*>(weights.region_outside_step(unit));
  auto const offset = static_cast<std::size_t>(context.ownership.shard_offset(unit));
  return {region + offset * size_of(dtype), dtype, {context.plan.unit(unit).shard_numel}};
}

std::unique_ptr<WeightStore> make_weight_store(StageRules const& rules,
                                               StoreContext const& context) {
  return rules.shards_weights ? make_gathered_weights(context) : make_resident_weights(context);
}

void fill_shards(StoreContext const& context, UpdateRegions const& weights,
                 ParameterSubset const& subset, WeightFill const& fill) {
  LoadedValues const values(context);
  for (UnitIndex u = first_unit; u < context.plan.end_unit(); ++u) {
    auto const shard_numel = context.plan.unit(u).shard_numel;
    if (shard_numel == 0) continue;
    auto const shard = shard_of(context, weights, u);
    for (std::int64_t first = 0; first < shard_numel; first += loaded_numel) {
      std::int64_t const numel = std::min(loaded_numel, shard_numel - first);
      fill_part(context, subset, {u, first, numel}, fill, values.zeros(numel));
      values.store(part_of(shard, first, numel));
    }
  }
}

FrozenPart::FrozenPart(ParameterSubset subset, PartitionPlan plan, EngineConfig config,
                       StageRules const& rules, StoreContext const& like)
    : subset_(std::move(subset)),
      plan_(std::move(plan)),
      config_(std::move(config)),
      context_{config_, plan_, like.ownership, like.comm, like.compute} {
  context_.secondary = like.secondary;
  context_.ownership.plan = &plan_;
  context_.units = &subset_.units;
  store_ = make_weight_store(rules, context_);
}

void FrozenPart::set_prefetch_order(std::vector<UnitIndex> acquisitions) {
  std::erase_if(acquisitions, [&](UnitIndex unit) { return in_model(unit).empty(); });
  store_->set_prefetch_order(std::move(acquisitions));
}

void FrozenPart::fill(WeightFill const& values) {
  store_->prepare_update();
  store_->finish_transfers();
  fill_shards(context_, *store_, subset_, values);
}

void FrozenPart::distribute() {
  for (UnitIndex u = first_unit; u < plan_.end_unit(); ++u) store_->all_gather_updated(u);
  store_->synchronize();
}

std::vector<float> FrozenPart::shard(UnitIndex unit) const {
  auto const numel = plan_.unit(unit).shard_numel;
  std::vector<float> out(static_cast<std::size_t>(numel));
  if (numel == 0) return out;
  store_->finish_transfers();
  auto const weights = shard_of(context_, *store_, unit);
  if (!memory::on_device(weights.data())) {
    context_.compute.record().wait("frozen weights", compute_deadline);
    kernels::cast(*memory::make_inline_queue("frozen weights"), {out.data(), Dtype::fp32, {numel}},
                  weights);
    return out;
  }
  memory::Buffer const values("frozen weights", memory::Purpose::workspace,
                              out.size() * sizeof(float), memory::MemorySpace::device);
  memory::TensorView const fp32(values.data(), Dtype::fp32, {numel});
  kernels::cast(context_.compute, fp32, weights);
  memory::copy(context_.compute, out.data(), values.data(), out.size() * sizeof(float));
  context_.compute.record().wait("frozen weights", compute_deadline);
  return out;
}

}  // namespace tessera::zero::detail
