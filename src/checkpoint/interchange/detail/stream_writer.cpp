#include "interchange/detail/stream_writer.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "format/detail/checksum.hpp"
#include "format/detail/chunk_reader.hpp"
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

namespace tessera::checkpoint::detail {
namespace {

/// Memory of all chunks on the way from the reader to the writer.
constexpr std::int64_t buffer_bytes = std::int64_t{64} << 20;
/// How far ahead of the reader the page cache is asked to fetch.
constexpr std::int64_t read_ahead_bytes = std::int64_t{32} << 20;

struct Chunk {
  std::vector<float> data;
  std::int64_t numel = 0;
};

/// Chunks in order from one thread to another, through a fixed number of buffers. Either side may
/// end it.
class Pipe {
 public:
  Pipe(std::int64_t chunk_bytes, std::size_t buffers) {
    for (std::size_t i = 0; i < buffers; ++i)
      free_.push_back({std::vector<float>(static_cast<std::size_t>(chunk_bytes / 4)), 0});
  }
  /// False when the other side has ended.
  bool take_free(Chunk& chunk) {
    return take(free_, chunk, [] { return false; });
  }
  bool take_full(Chunk& chunk) {
    return take(full_, chunk, [this] { return finished_; });
  }
  void give_free(Chunk chunk) { give(free_, std::move(chunk)); }
  void give_full(Chunk chunk) { give(full_, std::move(chunk)); }
  void finish() {
    std::lock_guard const lock(mutex_);
    finished_ = true;
    changed_.notify_all();
  }
  void fail(std::exception_ptr error) {
    std::lock_guard const lock(mutex_);
    if (!error_) error_ = std::move(error);
    failed_ = true;
    changed_.notify_all();
  }
  std::exception_ptr error() const { return error_; }

 private:
  template <class Ended>
  bool take(std::deque<Chunk>& from, Chunk& chunk, Ended ended) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failed_ || !from.empty() || ended(); });
    if (failed_ || from.empty()) return false;
    chunk = std::move(from.front());
    from.pop_front();
    return true;
  }
  void give(std::deque<Chunk>& to, Chunk chunk) {
    std::lock_guard const lock(mutex_);
    to.push_back(std::move(chunk));
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Chunk> free_, full_;
  bool finished_ = false, failed_ = false;
  std::exception_ptr error_;
};

/// One checksum chunk of the state that is read.
struct Source {
  detail::ExtentState extent;
  std::int64_t chunk = 0;
};

/// Chunks of all tensors in order, as an iteration: a list of them would grow with the model.
class Sources {
 public:
  Sources(Manifest const& manifest, std::size_t state) : manifest_(manifest), state_(state) {}
  bool next(Source& out) {
    while (tensor_ < manifest_.tensors.size()) {
      auto const& tensor = manifest_.tensors[tensor_];
      if (extent_ == tensor.extents.size()) {
        ++tensor_, extent_ = 0;
        continue;
      }
      auto const& extent = tensor.extents[extent_];
      if (block_ < detail::chunk_count(extent.numel * 4, manifest_.checksum_chunk)) {
        out = {{&tensor, &extent, state_}, block_++};
        return true;
      }
      ++extent_, block_ = 0;
    }
    return false;
  }

 private:
  Manifest const& manifest_;
  std::size_t state_, tensor_ = 0, extent_ = 0;
  std::int64_t block_ = 0;
};

/// Asks for the chunks ahead, reads, checks, hands over.
void read_all(Manifest const& manifest, std::size_t state, Pipe& pipe) {
  detail::ShardFiles files(manifest);
  Sources sources(manifest, state), ahead(manifest, state);
  std::int64_t asked = 0, read = 0;
  Source source, later;
  Chunk chunk;
  while (sources.next(source)) {
    while (asked - read < read_ahead_bytes && ahead.next(later)) {
      auto const place = detail::location_of(manifest, later.extent, later.chunk);
      files.open(later.extent.extent->shard).read_ahead(place.offset, place.bytes);
      asked += std::min(manifest.checksum_chunk,
                        later.extent.extent->numel * 4 - later.chunk * manifest.checksum_chunk);
    }
    if (!pipe.take_free(chunk)) return;
    std::int64_t const bytes =
        detail::read_chunk(manifest, files, source.extent, source.chunk, chunk.data.data());
    read += bytes;
    chunk.numel = bytes / 4;
    pipe.give_full(std::move(chunk));
  }
  pipe.finish();
}

}  // namespace

std::int64_t stream_state(Manifest const& manifest, std::size_t state, TensorWriter& writer,
                          ProgressCall const& progress) {
  Pipe pipe(manifest.checksum_chunk, static_cast<std::size_t>(std::max<std::int64_t>(
                                         2, buffer_bytes / manifest.checksum_chunk)));
  std::thread reader([&] {
    try {
      read_all(manifest, state, pipe);
    } catch (...) {
      pipe.fail(std::current_exception());
    }
  });
  std::int64_t const total = manifest.parameter_count() * 4;
  std::int64_t bytes = 0;
  try {
    Chunk chunk;
    while (pipe.take_full(chunk)) {
      writer.write(chunk.data.data(), chunk.numel);
      bytes += chunk.numel * 4;
      if (progress) progress(bytes, total);
      pipe.give_free(std::move(chunk));
    }
  } catch (...) {
    pipe.fail(std::current_exception());
  }
  reader.join();
  if (pipe.error()) std::rethrow_exception(pipe.error());
  return bytes;
}

}  // namespace tessera::checkpoint::detail
