#include "tessera/core/exceptions.hpp"

#include <filesystem>
#include <new>

#include "tessera/core/files.hpp"

namespace tessera {

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
