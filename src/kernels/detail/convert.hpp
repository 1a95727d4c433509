#pragma once
/// Elements to fp32 and back inside vectorised loops.

#include "tessera/core/dtype.hpp"

namespace tessera::kernels::detail {

TESSERA_FUNCTION inline float load(float value) { return value; }
TESSERA_FUNCTION inline float load(float16 value) { return value; }
TESSERA_FUNCTION inline float load(bfloat16 value) { return value; }

/// The bits are written, not an object: copies of class objects keep compilers from vectorising the loop around them.
TESSERA_FUNCTION inline void store(float& out, float value) { out = value; }
TESSERA_FUNCTION inline void store(float16& out, float value) { out.bits = float16::round(value); }
TESSERA_FUNCTION inline void store(bfloat16& out, float value) { out.bits = bfloat16::round(value); }

}  // namespace tessera::kernels::detail
