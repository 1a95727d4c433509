#include "save/detail/collective_try.hpp"

#include <vector>

#include "format/detail/file.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"

namespace tessera::checkpoint::detail {

Failure try_locally(std::function<void()> const& local) {
  try {
    local();
    return {};
  } catch (PeerLostError const&) {
    throw;
  } catch (Error const& e) {
    return {static_cast<int>(e.code()), e.what()};
  } catch (std::exception const& e) {
    Error const error = to_error(e);
    return {static_cast<int>(error.code()), error.what()};
  }
}

void throw_as(int exit_code, std::string const& message) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::bad_data:
      throw DataError(message);
    case ExitCode::bad_config:
      throw ConfigError(message);
    case ExitCode::usage:
      throw UsageError(message);
    case ExitCode::io:
      throw IoError(message);
    default:
      throw InternalError(message);
  }
}

void collective_try(comm::Collectives& comm, std::function<void()> const& local,
                    std::function<void()> const& failed) {
  agree_on_failure(comm, try_locally(local), failed);
}

void agree_on_failure(comm::Collectives& comm, Failure const& mine,
                      std::function<void()> const& failed) {
  if (comm::agree(comm, mine.code == 0)) return;
  std::string report;
  if (mine.code != 0)
    report =
        concat(static_cast<char>(mine.code),
               comm.size() > 1 ? concat("rank ", comm.rank(), " (host ", host_name(), "): ") : "",
               mine.text);
  auto const reports = comm::gather_bytes(comm, report, 0);
  std::string all;
  int told = 0, silent = 0;
  for (auto const& one : reports) {
    if (one.empty()) continue;
    if (all.empty())
      all = one;
    else if (told < 8)
      all += "; " + one.substr(1);
    else
      ++silent;
    ++told;
  }
  if (silent > 0) all += concat("; and ", silent, " more ranks");
  all = comm::broadcast_bytes(comm, std::move(all), 0);
  if (failed) failed();
  throw_as(all[0], all.substr(1));
}

}  // namespace tessera::checkpoint::detail
