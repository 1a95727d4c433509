#pragma once
/// A dtype that is known when a kernel runs, for rules with few instantiations.

#include <Kokkos_Core.hpp>
#include <type_traits>

#include "tessera/core/dtype.hpp"

namespace tessera::kernels::detail {

/// Calls @p to with @p data as a pointer to elements of @p dtype: fp32, fp16 or bf16.
template <class T, class To>
KOKKOS_INLINE_FUNCTION void for_type(Dtype dtype, T* data, To const& to) {
  using Half = std::conditional_t<std::is_const_v<T>, float16 const, float16>;
  using Brain = std::conditional_t<std::is_const_v<T>, bfloat16 const, bfloat16>;
  using Single = std::conditional_t<std::is_const_v<T>, float const, float>;
  if (dtype == Dtype::fp16)
    to(static_cast<Half*>(data));
  else if (dtype == Dtype::bf16)
    to(static_cast<Brain*>(data));
  else
    to(static_cast<Single*>(data));
}

}  // namespace tessera::kernels::detail
