#pragma once
/// HDF5 with every return checked, closing included; its error stack becomes the text of the
/// exception.
///
/// Files are made with libver bounds v18..v110, so that h5dump, h5ls and h5py of any age since 1.10
/// read them. Data is never written through HDF5: datasets are contiguous and allocated early, the
/// caller writes at their offsets after the file is closed.

#include <hdf5.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/dtype.hpp"

namespace tessera::checkpoint::h5 {

/// Keeps HDF5 from running at exit (it may crash there after a failed write) and from loading
/// filter plugins; silences its prints.
void start();

/// "H5Dcreate2: unable to create dataset; ...": the innermost reasons of the last error.
std::string error_text();

[[noreturn]] void throw_error(std::string const& what);
/// Passes a result on or throws. @throws IoError "<what>: <error stack>"
template <class Result>
Result check(Result result, std::string const& what) {
  if (result < 0) throw_error(what);
  return result;
}

/// Owner of an identifier. close() checks, the destructor does not.
class Id {
 public:
  using Closer = herr_t (*)(hid_t);
  Id() = default;
  Id(hid_t id, Closer closer, std::string const& what) : id_(check(id, what)), closer_(closer) {}
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), closer_(other.closer_) {}
  Id& operator=(Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(closer_, other.closer_);
    return *this;
  }
  ~Id() {
    if (id_ >= 0) closer_(id_);
  }
  operator hid_t() const { return id_; }  // NOLINT(google-explicit-constructor)
  void close(std::string const& what) {
    if (id_ >= 0) check(closer_(std::exchange(id_, -1)), what);
  }

 private:
  hid_t id_ = -1;
  Closer closer_ = nullptr;
};

/// What a new file will hold, so that all its metadata precedes the data.
Id create_file(std::filesystem::path const& path, std::int64_t datasets);
Id open_file(std::filesystem::path const& path);

/// Without time stamps, so that equal content is equal bytes: groups, and property lists for
/// datasets.
void create_group(hid_t file, std::string const& path);
Id dataset_properties(std::string const& what);

/// Little-endian type of an element; bf16 is a real HDF5 float (1 sign, 8 exponent, 7 fraction
/// bits).
Id element_type(Dtype dtype);
/// Contiguous, allocated, unwritten. Groups on the way are made.
Id create_dataset(hid_t file, std::string const& path, std::vector<std::int64_t> const& shape,
                  Dtype dtype);
/// Bytes from the start of the file. @pre allocated
std::int64_t offset_of(hid_t dataset, std::string const& path);

void set_attribute(hid_t object, char const* name, std::string const& value);
void set_attribute(hid_t object, char const* name, std::int64_t value);
void set_attribute(hid_t object, char const* name, std::vector<std::int64_t> const& values);
/// @throws DataError when absent or of another kind
std::string string_attribute(hid_t object, char const* name);
std::int64_t integer_attribute(hid_t object, char const* name);

}  // namespace tessera::checkpoint::h5

namespace tessera::checkpoint::detail {

/// Runs of a tensor's elements as HDF5 hyperslabs.
constexpr std::size_t max_dimensions = 8;  ///< most dimensions of a tensor in a manifest

/// A run of a tensor's elements in row-major order that is a hyperslab (start, count) of its shape.
struct Hyperslab {
  std::array<std::uint64_t, max_dimensions> start{}, count{};
  std::int64_t first = 0, numel = 0;  ///< in row-major order
};

/// Cuts [first, first + numel) into hyperslabs in row-major order: a partial first row, full rows,
/// a partial last row, and so on inwards (at most 2 * dimensions - 1).
std::vector<Hyperslab> hyperslabs_of(std::vector<std::int64_t> const& shape, std::int64_t first,
                                     std::int64_t numel);

}  // namespace tessera::checkpoint::detail
