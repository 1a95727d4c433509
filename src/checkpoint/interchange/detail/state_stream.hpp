#pragma once
/// One state of a checkpoint's shards as a stream of tensors in order.

#include <cstddef>
#include <cstdint>

#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/format/progress.hpp"
#include "tessera/checkpoint/interchange/tensor_writer.hpp"

namespace tessera::checkpoint::detail {

/// Reads and checks all elements of a state and hands them to @p writer (not finished here). A
/// reader thread and the writer overlap; the first error of either ends both.
/// @return bytes read
std::int64_t stream_state(Manifest const& manifest, std::size_t state, TensorWriter& writer,
                          ProgressCall const& progress);

}  // namespace tessera::checkpoint::detail
