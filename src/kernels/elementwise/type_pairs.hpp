#pragma once
/// Pairs of element types of kernels whose operands are of the residual stream and of products.

#include "launch/convert.hpp"
#include "launch/element_types.hpp"
#include "launch/pack.hpp"

namespace tessera::kernels::detail {

/// Calls @p f with the Tags of @p wide and @p narrow: equal ones, or fp32 with a 16-bit type, as
/// under autocast.
/// @throws InternalError for other pairs
template <class F>
void with_types(Dtype wide, Dtype narrow, char const* kernel, F&& f) {
  if (wide == narrow) return with_type(wide, kernel, [&](auto tag) { f(tag, tag); });
  TESSERA_VALIDATE(wide == Dtype::fp32 && (narrow == Dtype::bf16 || narrow == Dtype::fp16),
                   InternalError, "kernel ", kernel, " got elements of types ", name_of(wide),
                   " and ", name_of(narrow), "; it handles equal ones, and fp32 with fp16 or bf16");
  if (narrow == Dtype::bf16)
    f(Tag<float>{}, Tag<bfloat16>{});
  else
    f(Tag<float>{}, Tag<float16>{});
}

/// to[i] = from[i] converted.
template <class To, class From>
TESSERA_FUNCTION void copy_converted(To* to, From const* from, int count) {
#pragma omp simd
  for (int i = 0; i < count; ++i) store(to[i], load(from[i]));
}

/// Converts the N elements of a pack to T and writes them in one access.
template <int N, class T, class Elements>
TESSERA_FUNCTION void write_converted(T* to, Elements const& from) {
  RowPack<T, N> out;
  TESSERA_UNROLL
  for (int i = 0; i < N; ++i) out.set(i, from.get(i));
  out.write(to);
}

}  // namespace tessera::kernels::detail
