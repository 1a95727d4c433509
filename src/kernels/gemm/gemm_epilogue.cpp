#include "gemm/gemm_epilogue.hpp"

#include <cstddef>

#include "gemm/gemm_rules.hpp"
#include "launch/launch.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels::detail {

GemmProblem without_activation(GemmProblem p) {
  if (p.activation == GemmActivation::gelu) p.c = p.gelu_input;
  p.activation = GemmActivation::none;
  p.gelu_input = nullptr;
  return p;
}

void apply_activation(memory::Queue& q, GemmProblem const& p) {
  TensorView const c(p.c, p.out, {p.m, p.n}), input(p.gelu_input, p.out, {p.m, p.n});
  if (p.activation == GemmActivation::gelu) gelu_new(q, c, input);
  if (p.activation == GemmActivation::gelu_slope) gelu_new_backward(q, c, c, input);
}

void begin_with_bias(memory::Queue& q, GemmProblem const& p) {
  with_type(p.bias_dtype(), "gemm", [&](auto tag) {
    using T = typename decltype(tag)::type;
    char const* const name = "tessera::kernels::gemm_bias";
    auto const* const bias = static_cast<T const*>(p.bias);
    if (p.out == Dtype::fp32)
      parallel_rows(
          q, name, p.m,
          BeginWithBias<float, T>{static_cast<float*>(p.c), bias, p.n, p.ldc(), p.accumulate});
    else
      parallel_rows(q, name, p.m,
                    BeginWithBias<T, T>{static_cast<T*>(p.c), bias, p.n, p.ldc(), p.accumulate});
  });
}

GeluKernel faster_gelu(int capability_major, std::size_t cublaslt_version) {
  return capability_major >= 9 && cublaslt_version >= 120500 ? GeluKernel::epilogue
                                                             : GeluKernel::separate;
}

GeluKernel choose_gelu(DeviceGelu wanted, Dtype out, GeluKernel faster) {
  switch (wanted) {
    case DeviceGelu::fused:
      return GeluKernel::epilogue;
    case DeviceGelu::separate:
      return GeluKernel::separate;
    case DeviceGelu::automatic:
      break;
  }
  return out != Dtype::fp32 ? faster : GeluKernel::separate;
}

std::uint32_t alignment_of(void const* data) {
  auto const address = reinterpret_cast<std::uintptr_t>(data);
  return address == 0
             ? 256u
             : static_cast<std::uint32_t>(std::min<std::uintptr_t>(256, address & (~address + 1)));
}

bool fits_one_call(GemmProblem const& p, GeluKernel gelu) {
  if (p.k == 0 || (p.bias && p.bias_dtype() != p.out)) return false;
  if (p.activation == GemmActivation::none) return true;
  return gelu == GeluKernel::epilogue && p.in == p.out && p.n % 8 == 0 &&
         alignment_of(p.gelu_input) >= 16 &&
         !(p.bias && p.activation == GemmActivation::gelu_slope);
}

namespace {

void const* moved(void const* data, Dtype dtype, std::int64_t elements) {
  return static_cast<std::byte const*>(data) + elements * static_cast<std::int64_t>(size_of(dtype));
}
void* moved(void* data, Dtype dtype, std::int64_t elements) {
  return const_cast<void*>(moved(static_cast<void const*>(data), dtype, elements));
}

/// Where a dimension is cut, so that the first part is a multiple of the tensor cores' tiles; 0:
/// nowhere. Small products gain nothing.
std::int64_t cut_of(std::int64_t dimension) {
  return dimension >= 1024 && dimension % 8 != 0 ? dimension / 64 * 64 : 0;
}

}  // namespace

std::optional<SplitProduct> split_unaligned(GemmProblem const& p) {
  if (p.is_fp8() || size_of(p.in) != 2 || p.activation != GemmActivation::none) return {};
  if (p.lda() % 8 != 0 || p.ldb() % 8 != 0 || p.ldc() % 8 != 0) return {};
  GemmProblem whole = p;
  whole.row_a = p.lda(), whole.row_b = p.ldb(), whole.row_c = p.ldc();
  SplitProduct out{whole, whole};
  auto& [rest, aligned] = out;
  if (std::int64_t const cut = cut_of(p.m)) {
    aligned.m = cut, rest.m = p.m - cut;
    rest.a = moved(p.a, p.in, p.transpose_a ? cut : cut * whole.row_a);
    rest.c = moved(p.c, p.out, cut * whole.row_c);
  } else if (std::int64_t const cut = cut_of(p.n)) {
    aligned.n = cut, rest.n = p.n - cut;
    rest.b = moved(p.b, p.in, p.transpose_b ? cut * whole.row_b : cut);
    rest.c = moved(p.c, p.out, cut);
    if (p.bias) rest.bias = moved(p.bias, p.bias_dtype(), cut);
  } else if (std::int64_t const cut = cut_of(p.k)) {
    aligned.k = cut, rest.k = p.k - cut;
    rest.a = moved(p.a, p.in, p.transpose_a ? cut * whole.row_a : cut);
    rest.b = moved(p.b, p.in, p.transpose_b ? cut : cut * whole.row_b);
    aligned.bias = nullptr, aligned.accumulate = true;
  } else {
    return {};
  }
  return out;
}

}  // namespace tessera::kernels::detail
