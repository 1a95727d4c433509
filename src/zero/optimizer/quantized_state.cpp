#include "optimizer/quantized_state.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "layout/unit_views.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/planning.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {
namespace {

constexpr std::int64_t value_alignment = 16;  ///< a cache line

bool has_quantized(UnitLayout const& unit) {
  return std::any_of(unit.parameters.begin(), unit.parameters.end(),
                     [&](ParameterSlot const& p) { return is_quantized(unit, p); });
}

/// The bytes of a buffer in host memory: the buffer itself, or a copy of it.
class HostBytes {
 public:
  explicit HostBytes(memory::Buffer const& buffer) : buffer_(buffer) {
    if (buffer.space() == memory::MemorySpace::device)
      copy_ = {"host copy of codes", memory::Purpose::data, buffer.bytes(),
               memory::MemorySpace::host};
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(copy_.bytes() ? copy_.data() : buffer_.data());
  }
  void load(memory::Queue& queue) {
    if (copy_.bytes()) memory::copy(queue, copy_.data(), buffer_.data(), copy_.bytes());
  }
  void store(memory::Queue& queue) {
    if (copy_.bytes()) memory::copy(queue, buffer_.data(), copy_.data(), copy_.bytes());
  }

 private:
  memory::Buffer const& buffer_;
  memory::Buffer copy_;
};

}  // namespace

bool is_quantized(UnitLayout const& unit, ParameterSlot const& parameter) {
  bool const is_embedding = unit.name == "embedding" && parameter.shape.size() > 1;
  return parameter.numel >= min_quantized_numel && !is_embedding;
}

std::int64_t quantized_bytes(UnitLayout const& unit) {
  std::int64_t bytes = has_quantized(unit) ? unit.numel : 0;
  for (auto const& p : unit.parameters)
    if (!is_quantized(unit, p)) bytes += p.numel * static_cast<std::int64_t>(sizeof(float));
  return bytes;
}

QuantizedState::QuantizedState(optim::StateSpec const& spec, Ownership const& ownership,
                               memory::MemorySpace space)
    : ownership_(ownership),
      map_(spec.encoding == optim::Encoding::signed_codes ? kernels::DynamicMap::signed_values
                                                          : kernels::DynamicMap::unsigned_values) {
  std::int64_t codes = 0, values = 0;
  auto const& plan = *ownership.plan;
  for (UnitIndex u = first_unit; u < plan.end_unit(); ++u) {
    auto const& unit = plan.unit(u);
    code_begins_.push_back(has_quantized(unit) ? codes : -1);
    if (has_quantized(unit)) codes += ownership.numel(u);
    auto& begins = value_begins_.emplace_back();
    UnitOffset const begin = ownership.begin(u), end = begin + ownership.numel(u);
    for (auto const& p : unit.parameters) {
      begins.push_back(is_quantized(unit, p) ? -1 : values);
      std::int64_t const numel = std::min(end, p.end()) - std::max(begin, p.offset);
      if (!is_quantized(unit, p) && numel > 0) values += round_up(numel, value_alignment);
    }
  }
  auto const purpose = memory::Purpose::optimizer_state;
  codes_ = {spec.name, purpose, static_cast<std::size_t>(codes), space};
  values_ = {spec.name, purpose, static_cast<std::size_t>(values) * sizeof(float), space};
}

std::uint8_t* QuantizedState::codes(UnitIndex unit) const {
  std::int64_t const begin = code_begins_[position(unit)];
  return begin < 0 ? nullptr : static_cast<std::uint8_t*>(codes_.data()) + begin;
}

float* QuantizedState::values(UnitIndex unit, std::size_t parameter, UnitOffset at) const {
  std::int64_t const begin = value_begins_[position(unit)][parameter];
  if (begin < 0) return nullptr;
  UnitOffset const first =
      std::max(ownership_.begin(unit), ownership_.plan->unit(unit).parameters[parameter].offset);
  return static_cast<float*>(values_.data()) + begin + (at - first);
}

std::vector<QuantizedState::Run> QuantizedState::runs_of(UnitIndex unit) const {
  auto const& layout = ownership_.plan->unit(unit);
  UnitOffset const region = ownership_.begin(unit), shard = ownership_.shard_begin(unit);
  UnitOffset const end = shard + layout.shard_numel;
  std::vector<Run> runs;
  for (std::size_t p = 0; p < layout.parameters.size(); ++p) {
    auto const& slot = layout.parameters[p];
    UnitOffset const first = std::max(shard, slot.offset), last = std::min(end, slot.end());
    if (first >= last) continue;
    auto& run = runs.emplace_back(Run{first - shard, last - first});
    if (is_quantized(layout, slot))
      run.code = code_begins_[position(unit)] + (first - region);
    else
      run.value = value_begins_[position(unit)][p] + (first - std::max(region, slot.offset));
  }
  return runs;
}

void QuantizedState::read(memory::Queue& queue, std::vector<float*> const& absmax,
                          std::vector<float*> const& out) const {
  HostBytes codes(codes_), values(values_);
  if (memory::BufferPlanning::active()) return;  // they are counted, but have no memory
  codes.load(queue), values.load(queue);
  queue.record().wait("copies of the optimizer state", compute_deadline);
  for (UnitIndex u = first_unit; u < ownership_.plan->end_unit(); ++u)
    for (auto const& run : runs_of(u)) {
      float* const to = out[position(u)] + run.shard_offset;
      auto const numel = static_cast<std::size_t>(run.numel);
      if (run.value >= 0)
        std::memcpy(to, values.as<float>() + run.value, numel * sizeof(float));
      else
        kernels::dequantize({codes.as<std::uint8_t>() + run.code,
                             absmax[position(u)] + run.shard_offset / kernels::quantization_chunk},
                            map_, {to, numel});
    }
}

void QuantizedState::write(memory::Queue& queue, std::vector<float*> const& absmax,
                           std::vector<float*> const& values) {
  queue.record().wait("updates of the optimizer state", compute_deadline);
  HostBytes codes(codes_), plain(values_);
  // zero outside the shard: replicate() adds
  if (values_.bytes()) std::memset(plain.as<float>(), 0, values_.bytes());
  for (UnitIndex u = first_unit; u < ownership_.plan->end_unit(); ++u)
    for (auto const& run : runs_of(u)) {
      float const* const from = values[position(u)] + run.shard_offset;
      auto const numel = static_cast<std::size_t>(run.numel);
      if (run.value >= 0)
        std::memcpy(plain.as<float>() + run.value, from, numel * sizeof(float));
      else
        kernels::quantize({from, numel}, map_,
                          {codes.as<std::uint8_t>() + run.code,
                           absmax[position(u)] + run.shard_offset / kernels::quantization_chunk});
    }
  codes.store(queue), plain.store(queue);
  queue.record().wait("copies of the optimizer state", compute_deadline);
}

void QuantizedState::replicate(comm::Collectives& comm, std::int64_t bucket_size,
                               memory::Event const& after) {
  if (!ownership_.replicated) return;
  auto const& plan = *ownership_.plan;
  std::optional<comm::Pending> last;
  for (UnitIndex u = first_unit; u < plan.end_unit(); ++u) {
    if (!codes(u)) continue;
    auto const& layout = plan.unit(u);
    memory::TensorView const all(codes(u), Dtype::uint8, {layout.padded_numel});
    for (auto const& shards : cut_blocks(layout, plan.ranks(), bucket_size))
      last = comm.all_gather(all, shards, after);
  }
  if (last) comm.wait(*last);
  auto const numel = static_cast<std::int64_t>(values_.bytes() / sizeof(float));
  if (numel > 0)
    comm.wait(comm.all_reduce({values_.data(), Dtype::fp32, {numel}}, comm::ReduceOp::sum, after));
}

}  // namespace tessera::zero::detail
