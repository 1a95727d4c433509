#pragma once
/// Exceptions of the standard library as errors with an exit code.

#include <exception>

#include "tessera/core/error.hpp"

namespace tessera {

/// The error that an exception other than Error stands for: IoError (74) naming the file for one of
/// the file system, OutOfMemoryError (70) for a failed allocation, else InternalError (70).
Error to_error(std::exception const& exception);

}  // namespace tessera
