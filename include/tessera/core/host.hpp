#pragma once
/// Where this process runs.

#include <string>

namespace tessera {

/// The host's name for messages and for the names of files; "unknown" when the system does not
/// tell.
std::string host_name();

/// The kernel's id of this boot of the node; empty when the system does not tell. All processes of
/// a node have the same, also in containers with host names of their own.
std::string boot_id();

}  // namespace tessera
