#include "detail/byte_stream.hpp"

#include <zlib.h>

#include <cerrno>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

namespace tessera::data::detail {
namespace {
constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
gzFile handle_of(void* handle) { return static_cast<gzFile>(handle); }
}  // namespace

void ByteStream::Close::operator()(void* handle) const noexcept { gzclose_r(handle_of(handle)); }

ByteStream::ByteStream(std::filesystem::path file) : file_(std::move(file)), buffer_(buffer_bytes) {
  TESSERA_VALIDATE(std::filesystem::exists(file_), IoError, "cannot read ", file_.string(),
                   ": there is no such file");
  errno = 0;
  handle_.reset(gzopen(file_.c_str(), "rb"));
  TESSERA_VALIDATE(handle_, IoError, path_error("cannot read", file_, errno));
  gzbuffer(handle_of(handle_.get()), 1u << 17);
}

bool ByteStream::fill() {
  at_ = end_ = 0;
  errno = 0;
  int const got =
      gzread(handle_of(handle_.get()), buffer_.data(), static_cast<unsigned>(buffer_.size()));
  int error = Z_OK;
  char const* const message = gzerror(handle_of(handle_.get()), &error);
  TESSERA_VALIDATE(error != Z_ERRNO, IoError, path_error("cannot read", file_, errno));
  TESSERA_VALIDATE(got >= 0 && error == Z_OK, DataError, file_.string(),
                   " is damaged or cut short: ", message);
  end_ = static_cast<std::size_t>(got);
  return got > 0;
}

}  // namespace tessera::data::detail
