#include "tessera/core/process.hpp"

#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <sstream>

namespace tessera {

/// "pid (comm) state ppid ...": comm may contain any character, so fields count from the last
/// parenthesis.
std::optional<ProcessStat> parse_process_stat(std::string const& text) {
  auto const close = text.rfind(')');
  if (close == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(close + 1));
  ProcessStat out;
  fields >> out.state >> out.parent;
  std::string skipped;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  return fields >> out.started ? std::optional(out) : std::nullopt;
}

std::optional<ProcessStat> process_stat(std::int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  return std::getline(file, line) ? parse_process_stat(line) : std::nullopt;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

namespace {

/// Bits of an affinity mask; no kernel supports more cores today.
constexpr int max_cores = 8192;
struct Mask {
  alignas(cpu_set_t) unsigned char bits[max_cores / 8] = {};
  cpu_set_t* get() { return reinterpret_cast<cpu_set_t*>(bits); }
};

std::vector<int> cores_of_thread() {
  Mask mask;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof mask.bits, mask.get()) == 0)
    for (int c = 0; c < max_cores; ++c)
      if (CPU_ISSET_S(static_cast<std::size_t>(c), sizeof mask.bits, mask.get()))
        cores.push_back(c);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

std::vector<int> cores_of_places() {
  std::vector<int> cores;
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> ids(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, ids.data());
    cores.insert(cores.end(), ids.begin(), ids.end());
  }
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

}  // namespace

std::vector<int> allowed_cores() {
  auto const places = cores_of_places();
  return places.empty() ? cores_of_thread() : places;
}

void use_allowed_cores() {
  auto const cores = allowed_cores();
  if (cores != cores_of_thread()) use_cores(cores);
}

void use_cores(std::vector<int> const& cores) {
  Mask mask;
  for (int const c : cores) CPU_SET_S(static_cast<std::size_t>(c), sizeof mask.bits, mask.get());
  sched_setaffinity(0, sizeof mask.bits, mask.get());
}

}  // namespace tessera
