#pragma once
/// Functions that the implementations for device memory share.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/operation.hpp"
#include "tessera/comm/base/collectives.hpp"

namespace tessera::comm::detail {

/// Address of element @p index of a view.
template <class View>
auto element(View const& view, std::int64_t index) {
  return static_cast<typename View::Byte*>(view.data()) +
         static_cast<std::size_t>(index) * size_of(view.dtype());
}

/// What the kernels of a device add and convert.
bool is_16_or_32_bit_float(Dtype dtype);
/// @throws InternalError when @p data is not in device memory
void expect_on_device(Operation const& operation, void const* data);
/// @throws InternalError when a device cannot form the sum in the dtype of @p out
void expect_convertible(Operation const& operation, memory::TensorView in, memory::TensorView out,
                        memory::WriteMode mode);

/// @throws InternalError naming @p what when the shards of @p ranks ranks do not fit into @p numel
/// elements
void check_shards(char const* what, StridedShards const& shards, int ranks, std::int64_t numel);

/// Device memory on every rank. Collective.
/// @throws OutOfMemoryError on every rank when one rank has too little
std::shared_ptr<void> allocate_on_all_ranks(Collectives& comm, std::string const& name,
                                            memory::Purpose purpose, std::size_t bytes);

}  // namespace tessera::comm::detail
