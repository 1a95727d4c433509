#include "tessera/core/error.hpp"

#include <cstring>
#include <filesystem>
#include <new>

#include "tessera/core/files.hpp"

namespace tessera {

std::string with_errno(std::string const& what, int errno_value) {
  return what + ": " + std::strerror(errno_value);
}

namespace detail {
void contract_failed(char const* kind, char const* condition, char const* file, int line,
                     std::string const& message) {
  throw InternalError(concat(kind, " failed: ", condition, message.empty() ? "" : " (", message,
                             message.empty() ? "" : ")", " at ", file, ":", line,
                             "; this is a defect of Tessera, please report it"));
}
}  // namespace detail

Error to_error(std::exception const& exception) {
  if (auto const* e = dynamic_cast<std::filesystem::filesystem_error const*>(&exception)) {
    auto const& path = e->path2().empty() ? e->path1() : e->path2();
    bool const denied = e->code() == std::errc::permission_denied;
    return IoError(concat("cannot access ", path.string(), ": ", e->code().message(),
                          denied ? "; " + describe_denial(path) : ""));
  }
  if (dynamic_cast<std::bad_alloc const*>(&exception))
    return OutOfMemoryError(
        "out of memory; use a smaller batch, a higher ZeRO stage or more ranks");
  return InternalError(concat("unexpected exception: ", exception.what()));
}

}  // namespace tessera
