#include "detail/frozen_weights.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "detail/gathered_weights.hpp"
#include "detail/resident_weights.hpp"
#include "tessera/core/error.hpp"
#include "tessera/kernels/elementwise.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {
namespace {

/// This rank's shard of @p unit in the working weights.
memory::TensorView shard_of(StoreContext const& context, WeightStore const& weights,
                            UnitIndex unit) {
  Dtype const dtype = context.config.dtype;
  auto* const region = static_cast<std::byte*>(weights.settled_region(unit));
  auto const offset = static_cast<std::size_t>(context.ownership.shard_offset(unit));
  return {region + offset * size_of(dtype), dtype, {context.plan.unit(unit).shard_numel}};
}

std::int64_t largest_shard(PartitionPlan const& plan) {
  std::int64_t largest = 0;
  for (auto const& unit : plan.units()) largest = std::max(largest, unit.shard_numel);
  return largest;
}

}  // namespace

std::unique_ptr<WeightStore> make_weight_store(StageRules const& rules,
                                               StoreContext const& context) {
  return rules.shards_weights ? make_gathered_weights(context) : make_resident_weights(context);
}

void fill_shards(StoreContext const& context, WeightStore const& weights,
                 ParameterSubset const& subset, Engine::Fill const& fill) {
  auto const& plan = context.plan;
  auto const bytes = static_cast<std::size_t>(largest_shard(plan)) * sizeof(float);
  memory::Buffer const values("weights that are loaded", memory::Purpose::workspace, bytes);
  auto const space = memory::memory_space_of(context.compute);
  memory::Buffer const copy("weights that are loaded", memory::Purpose::workspace,
                            space == memory::MemorySpace::device ? bytes : 0, space);
  auto const extents = plan.extents(context.ownership.rank);
  for (UnitIndex u = first_unit; u < plan.end_unit(); ++u) {
    auto const numel = plan.unit(u).shard_numel;
    if (numel == 0) continue;
    auto* const out = static_cast<float*>(values.data());
    std::fill_n(out, numel, 0.0f);
    for (auto const& p : extents)
      if (p.unit == u)
        fill(u,
             static_cast<int>(subset.in_model[position(u)][static_cast<std::size_t>(p.parameter)]),
             p.parameter_offset.value(), p.numel,
             out + plan.unit(u).shard_offset(p.partition_offset).value());
    auto const shard = shard_of(context, weights, u);
    if (memory::memory_space_of(context.compute) == memory::MemorySpace::device &&
        !memory::on_device(shard.data())) {
      context.compute.record().wait("weights that are loaded", compute_deadline);
      kernels::cast(*memory::make_inline_queue("weights that are loaded"), shard,
                    memory::TensorView(out, Dtype::fp32, {numel}));
      continue;
    }
    void* from = out;
    if (copy.bytes() > 0) {
      from = copy.data();
      memory::copy(context.compute, from, out, static_cast<std::size_t>(numel) * sizeof(float));
    }
    kernels::cast(context.compute, shard, memory::TensorView(from, Dtype::fp32, {numel}));
    context.compute.record().wait("weights that are loaded", compute_deadline);
  }
}

EngineConfig with_share_of_limits(EngineConfig config, PartitionPlan const& part,
                                  PartitionPlan const& other) {
  if (other.padded_count() == 0) return config;
  double const share = static_cast<double>(part.padded_count()) /
                       static_cast<double>(part.padded_count() + other.padded_count());
  for (auto* limit : {&config.prefetch_bucket_size, &config.max_live_parameters})
    *limit = static_cast<std::int64_t>(share * static_cast<double>(*limit));
  // Rounded up: where all weights fit, each part does.
  if (auto& swap = config.weight_swap)
    swap->memory_numel =
        static_cast<std::int64_t>(std::ceil(share * static_cast<double>(swap->memory_numel)));
  return config;
}

FrozenWeights::FrozenWeights(EngineConfig const& config, std::vector<memory::UnitSpec> const& units,
                             PartitionPlan const& trained, ShardGroups const& groups,
                             memory::Queue& compute)
    : subset_(frozen_parameters(units)),
      plan_(subset_.units, groups.shards().size(), trained.alignment()),
      context_{config_, plan_, {}, groups.shards(), compute} {
  context_.secondary = groups.secondary();
  config_ = with_share_of_limits(config, plan_, trained);
  auto const rules = rules_for(config_, plan_.ranks(), memory::memory_space_of(compute));
  context_.ownership = {&plan_, Rank(groups.shards().rank()), !rules.shards_optimizer};
  if (!subset_.empty()) store_ = make_weight_store(rules, context_);
}

void FrozenWeights::set_prefetch_order(std::vector<UnitIndex> acquisitions) {
  if (!store_) return;
  std::erase_if(acquisitions, [&](UnitIndex unit) { return !has(unit); });
  store_->set_prefetch_order(std::move(acquisitions));
}

memory::WeightLease FrozenWeights::acquire(UnitIndex unit, memory::WeightLease trained,
                                           memory::Queue& compute) {
  if (!has(unit)) return trained;
  auto frozen = store_->acquire(unit, compute);
  std::size_t const count = trained.size() + frozen.size();
  auto const& at = subset_.in_model[position(unit)];
  std::vector<memory::ConstTensorView> views;
  for (std::size_t p = 0, next = 0; p < count; ++p) {
    bool const is_frozen = next < at.size() && at[next] == p;
    views.push_back(is_frozen ? frozen[next] : trained[p - next]);
    if (is_frozen) ++next;
  }
  using Leases = std::array<memory::WeightLease, 2>;
  auto const both = std::make_shared<Leases>(Leases{std::move(trained), std::move(frozen)});
  return {std::move(views), [both] { *both = Leases{}; }};
}

void FrozenWeights::fill(Engine::Fill const& values) {
  if (!store_) return;
  store_->prepare_update();
  store_->settle();
  fill_shards(context_, *store_, subset_, values);
}

void FrozenWeights::distribute() {
  if (!store_) return;
  for (UnitIndex u = first_unit; u < plan_.end_unit(); ++u) store_->all_gather_updated(u);
  store_->synchronize();
}

std::vector<float> FrozenWeights::shard(UnitIndex unit) const {
  auto const numel = plan_.unit(unit).shard_numel;
  std::vector<float> out(static_cast<std::size_t>(numel));
  if (numel == 0) return out;
  store_->settle();
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

void FrozenWeights::synchronize() {
  if (store_) store_->synchronize();
}

}  // namespace tessera::zero::detail
