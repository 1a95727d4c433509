#include "weights/frozen_weights.hpp"

#include <cmath>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/memory/device.hpp"
#include "weights/quantized_weights.hpp"

namespace tessera::zero::detail {

EngineConfig with_share_of_limits(EngineConfig config, PartitionPlan const& part,
                                  PartitionPlan const& other) {
  if (other.padded_count() == 0) return config;
  double const share = static_cast<double>(part.padded_count()) /
                       static_cast<double>(part.padded_count() + other.padded_count());
  auto* const weights = std::get_if<ShardedWeights>(&config.partition);
  if (!weights) return config;
  for (auto* limit : {&weights->prefetch_bucket_size, &weights->max_live_parameters})
    *limit = static_cast<std::int64_t>(share * static_cast<double>(*limit));
  // Rounded up: where all weights fit, each part does.
  if (auto& swap = weights->weight_swap)
    swap->memory_numel =
        static_cast<std::int64_t>(std::ceil(share * static_cast<double>(swap->memory_numel)));
  return config;
}

FrozenWeights::FrozenWeights(EngineConfig const& config, std::vector<memory::UnitSpec> const& units,
                             PartitionPlan const& trained, ShardGroups const& groups,
                             memory::Queue& compute)
    : plan_(frozen_parameters(units).units, groups.shards().size(), trained.alignment()),
      plan_of_values_(plan_) {
  auto const rules = rules_for(config, plan_.ranks(), memory::memory_space_of(compute));
  StoreContext like{config, plan_, {}, groups.shards(), compute};
  like.secondary = groups.secondary();
  like.ownership = {&plan_, Rank(groups.shards().rank()), !rules.shards_optimizer};
  auto const limits = with_share_of_limits(config, plan_, trained);
  auto values = frozen_parameters(units);
  if (config.quantized_base) {
    values = unquantized_parameters(units);
    plan_of_values_ = PartitionPlan(values.units, plan_.ranks(), trained.alignment());
    if (!quantized_parameters(units).empty())
      parts_.push_back(std::make_unique<QuantizedWeights>(limits, units, rules, like));
  }
  if (!values.empty())
    parts_.push_back(
        std::make_unique<FrozenPart>(std::move(values), plan_of_values_, limits, rules, like));
}

void FrozenWeights::set_prefetch_order(std::vector<UnitIndex> const& acquisitions) {
  for (auto const& part : parts_) part->set_prefetch_order(acquisitions);
}

memory::WeightLease FrozenWeights::acquire(UnitIndex unit, memory::WeightLease trained,
                                           memory::Queue& compute) {
  std::size_t const frozen = plan_.unit(unit).parameters.size(), count = trained.size() + frozen;
  if (frozen == 0) return trained;
  auto const leases = std::make_shared<std::vector<memory::WeightLease>>();
  std::vector<memory::ConstTensorView> views(count), copies(count);
  std::vector<std::uint64_t> versions(count);
  std::vector<bool> is_frozen(count);
  for (auto const& part : parts_) {
    auto const& at = part->in_model(unit);
    if (at.empty()) continue;
    auto const& lease = leases->emplace_back(part->acquire(unit, compute));
    for (std::size_t i = 0; i < at.size(); ++i) {
      views[at[i]] = lease[i];
      copies[at[i]] = lease.copy(i);
      versions[at[i]] = lease.version(i);
      is_frozen[at[i]] = true;
    }
  }
  for (std::size_t p = 0, next = 0; p < count; ++p) {
    if (is_frozen[p]) continue;
    views[p] = trained[next];
    copies[p] = trained.copy(next);
    versions[p] = trained.version(next++);
  }
  leases->push_back(std::move(trained));
  return {std::move(views), [leases] { leases->clear(); }, std::move(copies), std::move(versions)};
}

void FrozenWeights::fill(WeightFill const& values) {
  for (auto const& part : parts_) part->fill(values);
}

void FrozenWeights::distribute() {
  for (auto const& part : parts_) part->distribute();
}

std::vector<float> FrozenWeights::shard(UnitIndex unit) const {
  if (plan_.unit(unit).shard_numel == 0) return {};
  TESSERA_VALIDATE(parts_.size() == 1, InternalError, "values of weights that are kept as codes");
  return parts_.front()->shard(unit);
}

std::size_t FrozenWeights::formula_code_bytes(StageRules const& rules) const {
  std::int64_t bytes = 0;
  for (auto const& part : parts_) bytes += part->code_bytes();
  return static_cast<std::size_t>(bytes / (rules.shards_weights ? plan_.ranks() : 1));
}

void FrozenWeights::synchronize() {
  for (auto const& part : parts_) part->synchronize();
}

std::vector<WeightReport> FrozenWeights::reports() const {
  std::vector<WeightReport> out;
  for (auto const& part : parts_) out.push_back(part->report());
  return out;
}

}  // namespace tessera::zero::detail
