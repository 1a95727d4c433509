#pragma once
/// Files of torch.save, both formats, read without torch: the pickle as data, tensors as places in
/// the file.
///
/// Zip:    <root>/data.pkl | <root>/byteorder | <root>/data/<key> a storage each | <root>/version
/// Legacy: pickle(magic) pickle(1001) pickle(system) pickle(object) pickle(keys), then per key i64
/// numel | elements

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "format/detail/file.hpp"
#include "interchange/detail/pickle_reader.hpp"
#include "interchange/detail/zip_reader.hpp"

namespace tessera::checkpoint::detail {

enum class ElementType : std::uint8_t {
  fp32,
  fp16,
  bf16,
  fp64,
  int64,
  int32,
  int16,
  int8,
  uint8,
  boolean
};
std::int64_t bytes_of(ElementType type);

/// A tensor as a place in a file. Every element it can reach lies inside its storage, and the
/// storage inside the file.
struct TensorLocation {
  ElementType type = ElementType::fp32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< elements; empty: contiguous
  std::int64_t file_offset = 0;       ///< bytes, of the first element
  std::int64_t numel = 0;
  std::uint64_t storage = 0;  ///< number of the storage, equal for tensors that share it
  bool same_as(TensorLocation const& other) const {
    return file_offset == other.file_offset && shape == other.shape;
  }
};

/// Elements [first, first + numel) of a tensor in row-major order, as fp32. @pre inside the tensor
void read_as_fp32(File const& file, TensorLocation const& place, std::int64_t first,
                  std::int64_t numel, float* out);

enum class CrcCheck { pickle, everything };

class TorchFile {
 public:
  /// @throws IoError, DataError naming file and place
  explicit TorchFile(std::filesystem::path const& path, CrcCheck check = CrcCheck::pickle);
  ~TorchFile();
  TorchFile(TorchFile&&) noexcept;

  /// The saved object.
  PickleValue root() const;
  Pickle const& pickle() const { return *pickle_; }
  File const& file() const { return file_; }
  /// Folder in the archive: the stem of the name that torch.save was given, or "archive"; empty for
  /// the legacy format.
  std::string const& saved_name() const { return saved_name_; }
  std::filesystem::path const& path() const { return file_.path(); }
  /// A tensor or parameter; nothing for other values. @throws DataError when it is a tensor of a
  /// kind that is not read, or a broken one
  std::optional<TensorLocation> find_tensor(PickleValue value) const;
  TensorLocation tensor(PickleValue value) const;
  /// A number: an integer, a float, or a tensor with one element.
  double number(PickleValue value) const;

 private:
  struct Storage {
    ElementType type = ElementType::fp32;
    std::int64_t numel = 0, file_offset = 0;
  };
  void open_zip(CrcCheck check);
  void open_legacy();
  Storage storage_of(PickleValue reference) const;
  Storage legacy_storage(PickleValue arguments, ElementType type) const;
  Storage zip_storage(PickleValue arguments, ElementType type) const;

  File file_;
  std::unique_ptr<ZipReader> zip_;
  std::string saved_name_;
  std::map<std::string, Storage> legacy_storages_;
  std::unique_ptr<Pickle> pickle_;
};

/// torch.Size, tuple or list of non-negative integers, at most 32 of them.
std::vector<std::int64_t> read_shape(PickleValue value);
/// Product of the dimensions. @throws DataError when it is too large
std::int64_t numel_of(std::vector<std::int64_t> const& shape, PickleValue const& source);

}  // namespace tessera::checkpoint::detail
