#include "text/byte_stream.hpp"

#include <zlib.h>
#ifdef TESSERA_HAVE_ZSTD
#include <zstd.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

#include "tessera/core/text.hpp"

namespace tessera::data::detail {
namespace {
constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
}  // namespace

ByteStream::ByteStream(std::filesystem::path file)
    : file_(std::move(file)), source_(open_source(file_)), buffer_(buffer_bytes) {
  require_narrow(available(), file_.string());
}

void ByteStream::skip_mark() {
  std::string_view const first = available();
  skip(first.size() - without_mark(first).size());
}

bool ByteStream::fill() {
  at_ = 0;
  end_ = source_->read(buffer_.data(), buffer_.size());
  return end_ > 0;
}

void ByteStream::unread(std::string_view bytes) {
  std::vector<char> joined(bytes.begin(), bytes.end());
  joined.insert(joined.end(), buffer_.begin() + static_cast<std::ptrdiff_t>(at_),
                buffer_.begin() + static_cast<std::ptrdiff_t>(end_));
  at_ = 0;
  end_ = joined.size();
  joined.resize(std::max(joined.size(), buffer_bytes));
  buffer_ = std::move(joined);
}

namespace {

namespace fs = std::filesystem;

/// Plain and gzip-compressed files: zlib detects which.
class GzipSource : public ByteSource {
 public:
  explicit GzipSource(fs::path file) : file_(std::move(file)) {
    errno = 0;
    handle_.reset(gzopen(file_.c_str(), "rb"));
    TESSERA_VALIDATE(handle_, IoError, path_error("cannot read", file_, errno));
    gzbuffer(handle_.get(), 1u << 17);
  }

  std::size_t read(char* out, std::size_t bytes) override {
    errno = 0;
    int const got = gzread(handle_.get(), out, static_cast<unsigned>(bytes));
    int error = Z_OK;
    char const* const message = gzerror(handle_.get(), &error);
    TESSERA_VALIDATE(error != Z_ERRNO, IoError, path_error("cannot read", file_, errno));
    TESSERA_VALIDATE(got >= 0 && error == Z_OK, DataError, file_.string(),
                     " is damaged or cut short: ", message);
    return static_cast<std::size_t>(got);
  }
  std::int64_t position() const override { return gzoffset(handle_.get()); }

 private:
  struct Close {
    void operator()(gzFile handle) const noexcept { gzclose_r(handle); }
  };
  fs::path file_;
  std::unique_ptr<gzFile_s, Close> handle_;
};

bool is_zstd(fs::path const& file) {
  constexpr unsigned char magic[4] = {0x28, 0xB5, 0x2F, 0xFD};
  unsigned char first[4] = {};
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> const in(std::fopen(file.c_str(), "rb"),
                                                           &std::fclose);
  return in && std::fread(first, 1, 4, in.get()) == 4 && std::memcmp(first, magic, 4) == 0;
}

#ifdef TESSERA_HAVE_ZSTD

class ZstdSource : public ByteSource {
 public:
  explicit ZstdSource(fs::path file)
      : file_(std::move(file)),
        in_(std::fopen(file_.c_str(), "rb"), &std::fclose),
        stream_(ZSTD_createDStream(), &ZSTD_freeDStream),
        stored_(ZSTD_DStreamInSize()) {
    TESSERA_VALIDATE(in_, IoError, path_error("cannot read", file_, errno));
    TESSERA_VALIDATE(stream_, OutOfMemoryError, "zstd has no memory for a stream");
  }

  std::size_t read(char* out, std::size_t bytes) override {
    ZSTD_outBuffer target{out, bytes, 0};
    while (target.pos == 0 && (input_.pos < input_.size || refill() || pending_ > 0)) {
      std::size_t const before = input_.pos;
      pending_ = ZSTD_decompressStream(stream_.get(), &target, &input_);
      TESSERA_VALIDATE(!ZSTD_isError(pending_), DataError, file_.string(),
                       " is damaged or cut short: ", ZSTD_getErrorName(pending_));
      TESSERA_VALIDATE(target.pos > 0 || input_.pos > before || pending_ == 0, DataError,
                       file_.string(), " is damaged or cut short: it ends inside a zstd frame");
    }
    return target.pos;
  }
  std::int64_t position() const override { return position_; }

 private:
  bool refill() {
    std::size_t const got = std::fread(stored_.data(), 1, stored_.size(), in_.get());
    TESSERA_VALIDATE(got > 0 || !std::ferror(in_.get()), IoError,
                     path_error("cannot read", file_, errno));
    position_ += static_cast<std::int64_t>(got);
    input_ = {stored_.data(), got, 0};
    return got > 0;
  }

  fs::path file_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> in_;
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_;
  std::vector<char> stored_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  std::size_t pending_ = 0;  ///< 0 between frames
  std::int64_t position_ = 0;
};

#endif

}  // namespace

std::unique_ptr<ByteSource> open_source(fs::path const& file) {
  TESSERA_VALIDATE(fs::exists(file), IoError, "cannot read ", file.string(),
                   ": there is no such file");
  if (!is_zstd(file)) return std::make_unique<GzipSource>(file);
#ifdef TESSERA_HAVE_ZSTD
  return std::make_unique<ZstdSource>(file);
#else
  throw ConfigError(
      concat("cannot read ", file.string(),
             ": it is compressed with zstd, and this Tessera was built without "
             "libzstd; decompress it with zstd -d, or build where libzstd is installed"));
#endif
}

}  // namespace tessera::data::detail
