#include "tessera/core/host.hpp"

#include <unistd.h>

namespace tessera {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace tessera
