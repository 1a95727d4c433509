#pragma once
/// Processes of this node as /proc describes them.

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

/// A process id is used again after a process has ended; the pair of id and start time is not.
struct ProcessStat {
  char state = '?';          ///< 'R', 'S', ... 'Z': a zombie, which has ended
  std::int64_t started = 0;  ///< clock ticks since boot
  bool has_ended() const { return state == 'Z' || state == 'X'; }
  bool operator==(ProcessStat const&) const = default;
};

/// Fields 3 and 22 of the text of /proc/<pid>/stat, see proc(5); nothing when the text is not
/// complete.
std::optional<ProcessStat> parse_process_stat(std::string const& text);

/// Nothing when there is no such process, or when /proc does not show it.
std::optional<ProcessStat> process_stat(std::int64_t pid);

}  // namespace tessera
