#include "tessera/topology/cores.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace tessera::topology {
namespace {

/// "200000 100000" of cpu.max, or the two files of version 1; 0: no limit, or no file.
double quota_in(std::string const& directory, bool unified) {
  double quota = -1.0, period = 0.0;
  if (unified) {
    std::ifstream(directory + "/cpu.max") >> quota >> period;  // "max 100000" reads no number
  } else {
    std::ifstream(directory + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(directory + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0.0 && period > 0.0 ? quota / period : 0.0;
}

}  // namespace

int share_of_cores(CoreFacts const& facts) {
  if (facts.wanted > 0) return facts.wanted;
  double share = 0.0;
  for (int const core : facts.masks[static_cast<std::size_t>(facts.rank)]) {
    auto const sharing = std::ranges::count_if(
        facts.masks, [&](auto const& mask) { return std::ranges::binary_search(mask, core); });
    share += 1.0 / static_cast<double>(sharing);
  }
  double const cores = std::floor(share + 1e-6);  // three thirds are one
  double const allowed =
      facts.quota > 0.0 ? std::ceil(facts.quota / facts.quota_sharers - 1e-6) : cores;
  return std::max(1, static_cast<int>(std::min(cores, allowed)));
}

/// Any ancestor of the process's group may have a limit; the smallest counts. cgroups(7):
/// "hierarchy:controllers:path" lines.
double quota_of_control_groups() {
  double tightest = 0.0;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    auto const first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string const controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    bool const unified = controllers == ",,";
    if (!unified && controllers.find(",cpu,") == std::string::npos) continue;
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      double const quota = quota_in(
          (unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu") + (path == "/" ? "" : path), unified);
      if (quota > 0.0 && (tightest == 0.0 || quota < tightest)) tightest = quota;
      if (path.size() <= 1) break;
    }
  }
  return tightest;
}

}  // namespace tessera::topology
