#include "interchange/detail/element_conversion.hpp"

#include <cstring>

#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

template <class To, class From>
void convert(From const* in, std::int64_t numel, To* out) {
  for (std::int64_t i = 0; i < numel; ++i) out[i] = static_cast<To>(in[i]);
}

}  // namespace

void from_fp32(float const* in, std::int64_t numel, Dtype dtype, void* out) {
  switch (dtype) {
    case Dtype::fp32:
      std::memcpy(out, in, static_cast<std::size_t>(numel) * 4);
      return;
    case Dtype::bf16:
      convert(in, numel, static_cast<bfloat16*>(out));
      return;
    case Dtype::fp16:
      convert(in, numel, static_cast<float16*>(out));
      return;
    default:
      throw InternalError(concat("no conversion from fp32 to ", name_of(dtype)));
  }
}

void to_fp32(void const* in, std::int64_t numel, Dtype dtype, float* out) {
  switch (dtype) {
    case Dtype::fp32:
      std::memcpy(out, in, static_cast<std::size_t>(numel) * 4);
      return;
    case Dtype::fp64:
      convert(static_cast<double const*>(in), numel, out);
      return;
    case Dtype::bf16:
      convert(static_cast<bfloat16 const*>(in), numel, out);
      return;
    case Dtype::fp16:
      convert(static_cast<float16 const*>(in), numel, out);
      return;
    default:
      throw InternalError(concat("no conversion from ", name_of(dtype), " to fp32"));
  }
}

void check_model_dtype(Dtype dtype) {
  TESSERA_VALIDATE(dtype == Dtype::fp32 || dtype == Dtype::bf16 || dtype == Dtype::fp16,
                   ConfigError, "models are not written in ", name_of(dtype),
                   "; use fp32, bf16 or fp16");
}

}  // namespace tessera::checkpoint::detail
