#pragma once
/// Model files written as a stream: tensors go in one after the other as fp32, the file appears
/// when it is complete.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::checkpoint {

struct TensorHeader {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t numel() const;
};

/// A further name of a tensor; both share its storage.
struct TensorAlias {
  std::string name;
  std::size_t tensor = 0;  ///< index in the announced tensors
};

/// Takes the announced tensors in order and writes them as fp32, bf16 or fp16, rounding to nearest
/// even in small chunks. Without finish() nothing stays behind. @throws IoError with path, bytes
/// and reason
class TensorWriter {
 public:
  virtual ~TensorWriter() = default;
  /// The next elements, in any number of parts; a part may end inside a tensor or go over several.
  virtual void write(float const* data, std::int64_t numel) = 0;
  /// Makes the files durable and gives them their names. @throws InternalError when elements are
  /// missing
  /// @return the files
  virtual std::vector<std::filesystem::path> finish() = 0;
};

}  // namespace tessera::checkpoint
