#pragma once
/// A small program run beside the job.

#include <chrono>
#include <string>
#include <vector>

namespace tessera::topology::detail {

/// Standard output of a program found in PATH, run without a shell. Empty when it is absent, fails, or takes longer than @p limit (it
/// is killed then).
std::string output_of(std::vector<std::string> const& words, std::chrono::milliseconds limit);

}  // namespace tessera::topology::detail
