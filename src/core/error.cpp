#include "tessera/core/error.hpp"

#include <cstring>

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

}  // namespace tessera
