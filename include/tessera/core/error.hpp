#pragma once
/// Errors, exit codes and contract checks. Every message says what failed with its values, why that
/// is wrong, and what to try.

#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "tessera/core/text.hpp"

namespace tessera {

/// Exit codes of all programs (sysexits.h where one fits). docs/reference/exit-codes.md explains
/// each to users.
enum class ExitCode : int {
  done = 0,
  usage = 64,          ///< unknown or contradictory argument
  bad_data = 65,       ///< input or checkpoint malformed or damaged
  peer_lost = 69,      ///< a rank died or missed a deadline
  internal = 70,       ///< a bug, or out of memory
  io = 74,             ///< a file could not be read or written
  stopped_early = 75,  ///< saved a checkpoint; run the job again
  bad_config = 78,     ///< a configuration that cannot work
};

/// Base of all errors that end a program with an exit code; only the cli layer catches it.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string const& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// A command line that is wrong.
struct UsageError : Error {
  explicit UsageError(std::string const& message) : Error(ExitCode::usage, message) {}
};
/// A file whose contents are wrong or damaged.
struct DataError : Error {
  explicit DataError(std::string const& message) : Error(ExitCode::bad_data, message) {}
};
/// A configuration that is wrong or that this build cannot run.
struct ConfigError : Error {
  explicit ConfigError(std::string const& message) : Error(ExitCode::bad_config, message) {}
};
/// A file that is missing, or cannot be read or written.
struct IoError : Error {
  explicit IoError(std::string const& message) : Error(ExitCode::io, message) {}
};
/// A broken contract inside Tessera.
struct InternalError : Error {
  explicit InternalError(std::string const& message) : Error(ExitCode::internal, message) {}
};
/// An allocation that failed or exceeds a limit.
struct OutOfMemoryError : Error {
  explicit OutOfMemoryError(std::string const& message) : Error(ExitCode::internal, message) {}
};
/// A rank that died or missed a deadline; `rank` is -1 when the rank is unknown.
struct PeerLostError : Error {
  PeerLostError(int suspect_rank, std::string const& message)
      : Error(ExitCode::peer_lost, message), rank(suspect_rank) {}
  int rank;
};

namespace detail {
template <class Arg>
void put(std::ostream& out, Arg const& arg) {
  if constexpr (std::is_floating_point_v<Arg>)
    out << number_text(arg);
  else
    out << arg;
}
}  // namespace detail

/// Streams its arguments into one string: concat("step ", 3, " of ", n). Floating-point numbers are
/// written as number_text() does.
template <class... Args>
std::string concat(Args const&... args) {
  std::ostringstream out;
  (detail::put(out, args), ...);
  return out.str();
}

/// "<what>: <strerror(errno_value)>", for messages about system calls.
std::string with_errno(std::string const& what, int errno_value);

namespace detail {
[[noreturn]] void contract_failed(char const* kind, char const* condition, char const* file,
                                  int line, std::string const& message);
}

}  // namespace tessera

/// Input, files and environment: always on. TESSERA_VALIDATE(n > 0, ConfigError, "train_batch_size
/// is ", n, "; it must be positive")
#define TESSERA_VALIDATE(condition, error_type, ...)                               \
  do {                                                                             \
    if (!(condition)) throw ::tessera::error_type(::tessera::concat(__VA_ARGS__)); \
  } while (false)

/// Contracts between functions: on in builds with TESSERA_ASSERTIONS (host-debug), free otherwise.
#ifdef TESSERA_ASSERTIONS
#define TESSERA_CONTRACT_(kind, condition, ...)                                             \
  do {                                                                                      \
    if (!(condition))                                                                       \
      ::tessera::detail::contract_failed(kind, #condition, __FILE__, __LINE__,              \
                                         ::tessera::concat("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)
#else
#define TESSERA_CONTRACT_(kind, condition, ...) \
  do {                                          \
  } while (false && (condition))
#endif
#define TESSERA_EXPECT(condition, ...) TESSERA_CONTRACT_("precondition", condition, __VA_ARGS__)
#define TESSERA_ENSURE(condition, ...) TESSERA_CONTRACT_("postcondition", condition, __VA_ARGS__)

namespace tessera {

/// The error that an exception other than Error is reported as: IoError (74) naming the file for
/// one of the file system, OutOfMemoryError (70) for a failed allocation, else InternalError (70).
Error to_error(std::exception const& exception);

}  // namespace tessera
