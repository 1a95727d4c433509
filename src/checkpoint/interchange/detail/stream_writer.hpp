#pragma once
/// What the writers of model files share: cutting the stream of elements into tensors and types,
/// and files written front to back; and one state of a checkpoint's shards as such a stream.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/detail/file.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/interchange/tensor_writer.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::checkpoint::detail {

/// A pending file written front to back: small parts are gathered into 1 MiB, large ones go
/// straight to the system.
class SequentialFile {
 public:
  /// @param expected_bytes reserved immediately; more may be written
  SequentialFile(std::filesystem::path path, std::int64_t expected_bytes)
      : pending_(std::move(path)) {
    pending_.file().reserve(expected_bytes);
  }
  PendingFile& pending() { return pending_; }
  std::int64_t position() const { return at_ + static_cast<std::int64_t>(gathered_.size()); }
  void write(void const* data, std::int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<std::int64_t>(text.size())); }
  void flush();

 private:
  void put(void const* data, std::int64_t bytes);
  PendingFile pending_;
  std::int64_t at_ = 0;  ///< bytes handed to the system
  std::vector<char> gathered_;
};

/// Calls begin, put (any number of times) and end for every tensor in order; elements arrive
/// converted.
class StreamWriter : public TensorWriter {
 public:
  StreamWriter(std::vector<TensorHeader> tensors, Dtype dtype);
  void write(float const* data, std::int64_t numel) final;

 protected:
  virtual void begin(std::size_t) {}
  virtual void put(void const* data, std::int64_t bytes) = 0;
  virtual void end(std::size_t) {}

  /// @throws InternalError unless every element has been written
  void require_complete() const;
  std::vector<TensorHeader> const& tensors() const { return tensors_; }
  Dtype dtype() const { return dtype_; }
  std::int64_t bytes_of(std::size_t tensor) const {
    return tensors_[tensor].numel() * static_cast<std::int64_t>(size_of(dtype_));
  }
  std::int64_t bytes_of(std::size_t first, std::size_t last) const {
    std::int64_t bytes = 0;
    for (std::size_t i = first; i < last; ++i) bytes += bytes_of(i);
    return bytes;
  }

 private:
  void put_converted(float const* data, std::int64_t numel);
  std::vector<TensorHeader> tensors_;
  Dtype dtype_;
  std::size_t tensor_ = 0;
  std::int64_t written_ = 0;  ///< elements of the current tensor
  std::vector<std::uint16_t> converted_;
};

/// Reads and checks all elements of a state and hands them to @p writer (not finished here). A
/// reader thread and the writer overlap; the first error of either ends both.
/// @return bytes read
std::int64_t stream_state(Manifest const& manifest, std::size_t state, TensorWriter& writer,
                          ProgressCall const& progress);

}  // namespace tessera::checkpoint::detail
