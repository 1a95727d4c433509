#pragma once
/// Where this process runs.

#include <string>

namespace tessera {

/// The host's name for messages and for the names of files; "unknown" when the system does not
/// tell.
std::string host_name();

}  // namespace tessera
