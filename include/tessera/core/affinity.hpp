#pragma once
/// CPU affinity: the cores that this process may use.

#include <vector>

namespace tessera {

/// The cores in the affinity mask that the process was started with, ascending, at least one. With
/// OMP_PROC_BIND the OpenMP runtime narrows the mask of the first thread to one core before main();
/// then these are the cores of the OpenMP places.
std::vector<int> allowed_cores();

/// Lets the calling thread run on any of allowed_cores(). A thread inherits the mask of the thread
/// that creates it, which may be narrower.
void use_allowed_cores();

/// Restricts the calling thread, and threads it creates later, to these cores. Has no effect if the
/// system refuses.
void use_cores(std::vector<int> const& cores);

}  // namespace tessera
