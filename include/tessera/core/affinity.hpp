#pragma once
/// The cores that this process may use.

#include <vector>

namespace tessera {

/// Numbers of the cores in the affinity mask that the process was started with, in ascending order,
/// at least one. With OMP_PROC_BIND the OpenMP runtime narrows the mask of the first thread to one
/// core before main(): then its places count.
std::vector<int> allowed_cores();

/// Lets the calling thread run on any of allowed_cores(): threads inherit the narrow mask of the
/// thread that starts them.
void use_allowed_cores();

/// The calling thread, and those that it starts from now on, run on these cores alone; nothing
/// changes when the system refuses.
void use_cores(std::vector<int> const& cores);

}  // namespace tessera
