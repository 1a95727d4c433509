#include "detail/half_values.hpp"

#include "detail/weight_store.hpp"
#include "tessera/kernels/elementwise.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {

HalfValues::HalfValues(memory::Queue& queue, memory::MemorySpace space, Dtype dtype,
                       std::int64_t most)
    : queue_(queue),
      dtype_(dtype),
      is_on_device_(space == memory::MemorySpace::device),
      staging_("16-bit values of a state", memory::Purpose::workspace,
               is_on_device_ ? bytes_of(most) : 0),
      conversions_(memory::make_inline_queue("conversions")) {}

std::size_t HalfValues::bytes_of(std::int64_t numel) const {
  return static_cast<std::size_t>(numel) * size_of(dtype_);
}

void HalfValues::wait() { queue_.record().wait("copies of the optimizer state", compute_deadline); }

void HalfValues::read(float* to, void const* from, std::int64_t numel) {
  if (is_on_device_) memory::copy(queue_, staging_.data(), from, bytes_of(numel));
  wait();
  void const* const half = is_on_device_ ? staging_.data() : from;
  kernels::cast(*conversions_, memory::TensorView(to, Dtype::fp32, {numel}),
                memory::ConstTensorView(half, dtype_, {numel}));
}

void HalfValues::write(void* to, float const* from, std::int64_t numel) {
  wait();
  void* const half = is_on_device_ ? staging_.data() : to;
  kernels::cast(*conversions_, memory::TensorView(half, dtype_, {numel}),
                memory::ConstTensorView(from, Dtype::fp32, {numel}));
  if (is_on_device_) memory::copy(queue_, to, half, bytes_of(numel));
  wait();
}

}  // namespace tessera::zero::detail
