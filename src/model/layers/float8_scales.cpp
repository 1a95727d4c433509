#include "layers/float8_scales.hpp"

#include "tessera/memory/device.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::model::detail {

void compute_float8_scale(PassContext const& pass, kernels::Float8Scale const& scale, Float8 format,
                          ConstTensorView in) {
  ArenaScope const scope(pass.arena);
  kernels::float8_scale(pass.compute, scale, format, in,
                        pass.allocate_fp32(kernels::float8_scale_workspace(in.numel())));
}

kernels::Float8Scale float8_scale(PassContext const& pass, Float8 format, ConstTensorView in) {
  kernels::Float8Scale const scale{pass.allocate_fp32(kernels::Float8Scale::numel)};
  compute_float8_scale(pass, scale, format, in);
  return scale;
}

kernels::Float8Scale Float8Scales::of(PassContext const& pass, VersionedWeight const& weight) {
  // A pass that is only planned has no memory to keep, and one of 32 bytes more in its arena.
  if (weight.version == 0 || memory::ArenaPlanning::active())
    return float8_scale(pass, Float8::e4m3, weight.values);
  Entry& entry = entries_[weight.name];
  if (entry.buffer.bytes() == 0)
    entry.buffer = memory::Buffer("scale of fp8 weights", memory::Purpose::workspace,
                                  kernels::Float8Scale::numel * sizeof(float),
                                  memory::memory_space_of(pass.compute));
  kernels::Float8Scale const scale{entry.buffer.view(Dtype::fp32, {kernels::Float8Scale::numel})};
  if (entry.version == weight.version) return scale;
  compute_float8_scale(pass, scale, Float8::e4m3, weight.values);
  entry.enqueued = weight.version;
  pending_.push_back(&entry);
  return scale;
}

void Float8Scales::commit() {
  for (Entry* const entry : pending_) entry->version = entry->enqueued;
  pending_.clear();
}

}  // namespace tessera::model::detail
