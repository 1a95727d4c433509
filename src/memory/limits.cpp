#include "tessera/memory/limits.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::memory {
namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
constexpr std::size_t unchecked_bytes = std::size_t{1} << 20;

std::optional<std::size_t> number_in(std::string const& path) {
  std::ifstream file(path);
  std::size_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// Value of a "key value" line, kB when the file says so ("MemAvailable:   123 kB", "inactive_file
/// 4096").
std::optional<std::size_t> entry_of(std::string const& path, std::string const& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, unit;
    std::size_t value = 0;
    if (words >> name >> value && name == key)
      return words >> unit && unit == "kB" ? value * 1024 : value;
  }
  return std::nullopt;
}

/// Free bytes of one control group: limit minus usage, where inactive file pages count as free.
std::size_t free_in_group(std::string const& directory, char const* limit_file,
                          char const* use_file, char const* inactive) {
  auto const limit = number_in(directory + "/" + limit_file);
  auto const use = number_in(directory + "/" + use_file);
  if (!limit || !use) return unlimited;
  std::size_t const reclaimable =
      std::min(*use, entry_of(directory + "/memory.stat", inactive).value_or(0));
  std::size_t const used = *use - reclaimable;
  return *limit > used ? *limit - used : 0;
}

/// Minimum over the control group of the process and its ancestors. cgroups(7): lines are
/// "hierarchy:controllers:path".
std::size_t free_in_groups() {
  std::size_t left = unlimited;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    auto const first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string const controllers = line.substr(first + 1, second - first - 1);
    bool const unified = controllers.empty();
    if (!unified && controllers.find("memory") == std::string::npos) continue;
    std::string const root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::string path = line.substr(second + 1);;) {
      std::string const directory = root + (path == "/" ? "" : path);
      left = std::min(
          left, unified ? free_in_group(directory, "memory.max", "memory.current", "inactive_file")
                        : free_in_group(directory, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                        "total_inactive_file"));
      if (path.size() <= 1) break;
      path.resize(path.rfind('/'));
    }
  }
  return left;
}

std::string size_text(std::size_t bytes) { return human_bytes(static_cast<std::int64_t>(bytes)); }

struct Use {
  std::size_t mapped = 0, resident = 0;
};
Use own_use() {
  std::ifstream file("/proc/self/statm");
  auto const page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  Use use;
  file >> use.mapped >> use.resident;
  return {use.mapped * page, use.resident * page};
}

std::size_t free_address_space(Use const& use) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return unlimited;
  return limit.rlim_cur > use.mapped ? limit.rlim_cur - use.mapped : 0;
}

std::atomic<std::size_t>& limit_of(MemorySpace space) {
  static std::atomic<std::size_t> host{0}, device{0};
  return space == MemorySpace::device ? device : host;
}

}  // namespace

void limit_memory(MemorySpace space, std::size_t bytes) { limit_of(space) = bytes; }
std::size_t memory_limit(MemorySpace space) { return limit_of(space); }
std::size_t left_of_limit(MemorySpace space) {
  std::size_t const limit = limit_of(space);
  if (limit == 0) return unlimited;
  std::size_t const held = MemoryTracker::of(space).current_total();
  return limit > held ? limit - held : 0;
}

AvailableMemory available_memory(std::size_t processes) {
  Use const use = own_use();
  std::size_t const allocated = MemoryTracker::of_process().current_total();
  std::size_t const untouched = allocated > use.resident ? allocated - use.resident : 0;
  auto const less_untouched = [&](std::size_t bytes) {
    return bytes == unlimited ? bytes : bytes > untouched ? bytes - untouched : 0;
  };
  auto const share = [&](std::size_t bytes) {
    return bytes == unlimited ? bytes : less_untouched(bytes / processes);
  };

  AvailableMemory out{share(entry_of("/proc/meminfo", "MemAvailable:").value_or(unlimited)),
                      "MemAvailable of the node"};
  if (auto const left = share(free_in_groups()); left < out.bytes)
    out = {left, "memory limit of the control group"};
  if (auto const left = free_address_space(use); left < out.bytes)
    out = {left, "address space limit (ulimit -v)"};
  if (auto const left = left_of_limit(MemorySpace::host); left < out.bytes)
    out = {left, "--host_memory"};
  return out;
}

void require_available(std::string const& name, std::size_t bytes, std::size_t copies) {
  if (bytes < unchecked_bytes && bytes <= left_of_limit(MemorySpace::host)) return;
  auto const available = available_memory(copies);
  TESSERA_VALIDATE(available.bytes >= bytes, OutOfMemoryError, "cannot allocate ", size_text(bytes),
                   " for ", name,
                   copies > 1 ? concat(" on each of ", copies, " ranks") : std::string(), ": ",
                   size_text(available.bytes), copies > 1 ? " per rank" : "", " are left (",
                   available.limited_by, "), this process has allocated ",
                   size_text(MemoryTracker::of_process().current_total()), " (",
                   bytes_by_purpose(MemorySpace::host),
                   "); use a smaller batch, a higher ZeRO stage or more ranks",
                   memory_limit(MemorySpace::host) > 0 ? ", or raise --host_memory" : "");
}

namespace {

SpaceUse use_of(MemoryTracker const& tracker) {
  return {tracker.current_total(), tracker.peak_total()};
}

}  // namespace

PinnedCounter& PinnedCounter::of_process() {
  static PinnedCounter counter;
  return counter;
}

void PinnedCounter::add(std::size_t bytes) {
  std::size_t const now = now_ += bytes;
  for (std::size_t peak = peak_; peak < now && !peak_.compare_exchange_weak(peak, now);) {
  }
}

MemoryUse memory_use() {
  return {use_of(MemoryTracker::of_device()), use_of(MemoryTracker::of_process()),
          PinnedCounter::of_process().use()};
}

std::string bytes_by_purpose(MemorySpace space) {
  auto const& tracker = MemoryTracker::of(space);
  std::vector<std::pair<std::size_t, Purpose>> held;
  for (int p = 0; p < purpose_count; ++p)
    if (auto const bytes = tracker.current(static_cast<Purpose>(p)); bytes > 0)
      held.emplace_back(bytes, static_cast<Purpose>(p));
  std::sort(held.rbegin(), held.rend());
  std::string out;
  for (auto const& [bytes, purpose] : held)
    out += concat(out.empty() ? "" : ", ", name_of(purpose), " ",
                  human_bytes(static_cast<std::int64_t>(bytes)));
  return out.empty() ? "nothing" : out;
}

}  // namespace tessera::memory
