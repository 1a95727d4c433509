#pragma once
/// Processes: other ones of this node as /proc describes them, and the host and cores of this one.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// A process id is used again after a process has ended; the pair of id and start time is not.
struct ProcessStat {
  char state = '?';          ///< 'R', 'S', ... 'Z': a zombie, which has ended
  std::int64_t started = 0;  ///< clock ticks since boot
  std::int64_t parent = 0;   ///< process id of the parent
  bool has_ended() const { return state == 'Z' || state == 'X'; }
  bool operator==(ProcessStat const&) const = default;
};

/// Fields 3, 4 and 22 of the text of /proc/<pid>/stat, see proc(5); nothing when the text is not
/// complete.
std::optional<ProcessStat> parse_process_stat(std::string const& text);

/// Nothing when there is no such process, or when /proc does not show it.
std::optional<ProcessStat> process_stat(std::int64_t pid);

/// The host's name for messages and for the names of files; "unknown" when the system does not
/// tell.
std::string host_name();

/// The kernel's id of this boot of the node; empty when the system does not tell. All processes of
/// a node have the same, also in containers with host names of their own.
std::string boot_id();

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
