#pragma once
/// The sources of a virtual dataset in the bytes that HDF5 stores for them (its file format
/// specification: "Global Heap Block for Virtual Datasets", "Dataspace Selection"). H5Pset_virtual
/// and H5Dcreate2 copy every source several times, 5 to 7 us in all; these functions need 0.2 us,
/// so that a view over thousands of shards costs no more than its bytes.

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tessera::checkpoint::detail {

constexpr std::size_t most_dimensions = 8;  ///< of a tensor in a manifest

/// A run of a tensor's elements in row-major order that is a box in its shape.
struct Box {
  std::array<std::uint64_t, most_dimensions> start{}, count{};
  std::int64_t first = 0, numel = 0;  ///< in row-major order
};

/// Cuts [first, first + numel) into boxes: a partial first row, whole rows, a partial last row, and
/// so on inwards (at most 2 * dims - 1).
std::vector<Box> boxes_of(std::vector<std::int64_t> const& shape, std::int64_t first,
                          std::int64_t numel);

/// The whole 1-D dataset of `file` stands for these boxes of the virtual dataset; all sources name
/// the same dataset.
struct VirtualSource {
  std::string const* file = nullptr;
  std::vector<Box> boxes;
};

/// False for shapes whose coordinates need more than 32 bits: HDF5 stores those in another way.
bool can_encode(std::vector<std::int64_t> const& shape);
std::int64_t encoded_bytes(std::vector<VirtualSource> const& sources, std::string const& dataset,
                           std::size_t dimensions);
std::string encode(std::vector<VirtualSource> const& sources, std::string const& dataset,
                   std::size_t dimensions);

/// A name that makes the list of one source "." (everything to everything) as long as @p bytes, and
/// tells which dataset it is.
/// @pre bytes >= smallest_placeholder
std::string placeholder_name(std::int64_t ordinal, std::int64_t bytes);
constexpr std::int64_t smallest_placeholder = 128;

/// Replaces every placeholder in a closed HDF5 file by the bytes that @p encoded returns for its
/// ordinal.
/// @return how many; a list of another length or layout than expected is left alone and not counted
std::int64_t fill_placeholders(std::filesystem::path const& file,
                               std::function<std::string(std::int64_t ordinal)> const& encoded);

/// Bob Jenkins' lookup3 with initial value 0: the checksum of HDF5's metadata.
std::uint32_t lookup3(void const* data, std::size_t bytes);

}  // namespace tessera::checkpoint::detail
