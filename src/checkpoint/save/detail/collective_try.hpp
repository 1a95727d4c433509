#pragma once
/// Collective try: a step that may fail on some ranks; then all ranks throw the same error.

#include <functional>
#include <string>

#include "tessera/comm/base/collectives.hpp"

namespace tessera::checkpoint::detail {

/// What went wrong in a step on this rank, if anything.
struct Failure {
  int code = 0;  ///< exit code; 0: nothing
  std::string text;
};
/// Runs @p local and keeps its error. A PeerLostError is thrown on: the ranks can no longer agree.
Failure try_locally(std::function<void()> const& local);
/// The agreement of collective_try() about a step that has run already, on whichever thread.
void agree_on_failure(comm::Collectives& comm, Failure const& mine,
                      std::function<void()> const& failed = {});

/// Runs @p local on every rank, then agrees. When any rank failed, every rank throws the type of
/// the lowest failed rank's error with the texts of all failed ranks (at most eight) and their
/// hosts. Collective.
/// @param failed run on every rank before that throw, for what must be undone
void collective_try(comm::Collectives& comm, std::function<void()> const& local,
                    std::function<void()> const& failed = {});

/// An error of the type that belongs to an exit code.
[[noreturn]] void throw_as(int exit_code, std::string const& message);

}  // namespace tessera::checkpoint::detail
