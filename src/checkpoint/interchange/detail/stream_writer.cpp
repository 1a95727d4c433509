#include "interchange/detail/stream_writer.hpp"

#include <algorithm>

#include "interchange/detail/element_conversion.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint {

std::int64_t TensorHeader::numel() const {
  std::int64_t n = 1;
  for (auto d : shape) n *= d;
  return n;
}

namespace detail {
namespace {

constexpr std::int64_t gather_bytes = std::int64_t{1} << 20;
constexpr std::int64_t convert_numel = std::int64_t{1}
                                       << 19;  ///< 2 MiB of fp32: stays in the cache

}  // namespace

void SequentialFile::put(void const* data, std::int64_t bytes) {
  pending_.file().write(data, bytes, at_);
  pending_.file().start_writeback(at_, bytes);
  at_ += bytes;
}

void SequentialFile::flush() {
  if (!gathered_.empty()) put(gathered_.data(), static_cast<std::int64_t>(gathered_.size()));
  gathered_.clear();
}

void SequentialFile::write(void const* data, std::int64_t bytes) {
  auto const* from = static_cast<char const*>(data);
  bool const fits = static_cast<std::int64_t>(gathered_.size()) + bytes <= gather_bytes;
  if (!fits) flush();
  if (bytes >= gather_bytes)
    put(from, bytes);
  else
    gathered_.insert(gathered_.end(), from, from + bytes);
}

StreamWriter::StreamWriter(std::vector<TensorHeader> tensors, Dtype dtype)
    : tensors_(std::move(tensors)), dtype_(dtype) {
  check_model_dtype(dtype);
}

void StreamWriter::put_converted(float const* data, std::int64_t numel) {
  if (dtype_ == Dtype::fp32) {
    put(data, numel * 4);
    return;
  }
  converted_.resize(static_cast<std::size_t>(convert_numel));
  for (std::int64_t done = 0; done < numel;) {
    std::int64_t const count = std::min(numel - done, convert_numel);
    from_fp32(data + done, count, dtype_, converted_.data());
    put(converted_.data(), count * 2);
    done += count;
  }
}

void StreamWriter::write(float const* data, std::int64_t numel) {
  while (numel > 0) {
    TESSERA_VALIDATE(tensor_ < tensors_.size(), InternalError, numel,
                     " elements more than the announced tensors have");
    std::int64_t const total = tensors_[tensor_].numel(), count = std::min(numel, total - written_);
    if (written_ == 0) begin(tensor_);
    put_converted(data, count);
    written_ += count, data += count, numel -= count;
    if (written_ == total) {
      end(tensor_++);
      written_ = 0;
    }
  }
}

void StreamWriter::require_complete() const {
  TESSERA_VALIDATE(tensor_ == tensors_.size(), InternalError, "the model file ends in tensor ",
                   tensor_, " of ", tensors_.size());
}

}  // namespace detail
}  // namespace tessera::checkpoint
