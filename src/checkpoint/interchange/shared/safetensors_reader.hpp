#pragma once
/// safetensors files, single or sharded with model.safetensors.index.json. The reader trusts
/// nothing in them. Layout: u64 header bytes | JSON header {name: {dtype, shape, data_offsets}} |
/// data, without holes.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::checkpoint {

struct SafetensorsEntry {
  std::string dtype;  ///< as in the file: "F32", "BF16", ...
  std::vector<std::int64_t> shape;
  std::int64_t numel = 0;
  int file = 0;                  ///< index in files()
  std::int64_t file_offset = 0;  ///< bytes from the start of the file
  std::int64_t bytes = 0;
};

/// An open safetensors model. Reads are positional: threads may share it.
class SafetensorsReader {
 public:
  /// @param path a .safetensors file, an index file, or a directory with model.safetensors or
  /// model.safetensors.index.json
  /// @throws IoError, or DataError naming file and entry (checks: docs/reference/checkpoint.md)
  explicit SafetensorsReader(std::filesystem::path const& path);
  /// The reader of another process, from its layout() and descriptors of its files() (owned from
  /// here on): reads no header.
  SafetensorsReader(ConfigTree const& layout, std::vector<int> const& descriptors);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) noexcept;

  std::map<std::string, SafetensorsEntry> const& entries() const;
  std::vector<std::filesystem::path> const& files() const;
  ConfigTree layout() const;
  SafetensorsEntry const* find(std::string const& name) const;
  /// Elements [first, first + numel) of a tensor as fp32 (from F64, F32, F16 or BF16).
  /// @throws DataError when the tensor is missing, is of another dtype or is shorter
  void read_as_fp32(std::string const& name, std::int64_t first, std::int64_t numel,
                    float* out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::checkpoint
