/// The forms that test.kernels.portable is about are those without AVX.
#include "gemm/tile_product.hpp"
#include "launch/amx.hpp"
#include "launch/philox_batch.hpp"
#include "launch/stream_lines.hpp"

#if defined(__AVX__) || defined(TESSERA_AMX_TILES) || defined(TESSERA_STREAMS_LINES) || \
    defined(TESSERA_WIDE_PHILOX)
#error "compiled with AVX"
#endif

static_assert(tessera::kernels::detail::tile_lanes == 4);
