#pragma once
/// Finds the type of a view's dtype.

#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"

namespace tessera::kernels::detail {

/// Names a type in a call: `with_type(dtype, "gelu_new", [&](auto tag) { launch<typename
/// decltype(tag)::type>(...); })`.
template <class T>
struct Tag {
  using type = T;
};

/// Calls @p f with the Tag of a floating-point element type.
/// @throws InternalError for any other dtype, naming @p kernel
template <class F>
void with_type(Dtype dtype, char const* kernel, F&& f) {
  switch (dtype) {
    case Dtype::fp32:
      f(Tag<float>{});
      return;
    case Dtype::fp16:
      f(Tag<float16>{});
      return;
    case Dtype::bf16:
      f(Tag<bfloat16>{});
      return;
    default:
      break;
  }
  throw InternalError(concat("kernel ", kernel, " got elements of type ", name_of(dtype),
                             "; it handles fp32, fp16 and bf16"));
}

}  // namespace tessera::kernels::detail
