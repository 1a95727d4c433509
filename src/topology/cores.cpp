#include "tessera/topology/cores.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "detail/mpi_comm.hpp"
#include "tessera/core/affinity.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace tessera::topology {
namespace {

/// What each rank sends to the ranks of its node: its cores, as a mask of up to 8192, and its
/// quota.
struct Card {
  std::array<std::uint64_t, 128> mask{};
  double quota = 0.0;
};

/// First number of OMP_NUM_THREADS (a list for nested parallel regions); 0 when it is not set.
int wanted_by_environment() {
  char const* const text = std::getenv("OMP_NUM_THREADS");
  return text ? std::max(0, std::atoi(text)) : 0;
}

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

int cores_of_rank(MpiSession const& session) {
  MPI_Comm const node = from_handle(session.node());
  Card own;
  for (int const c : allowed_cores())
    own.mask[static_cast<std::size_t>(c) / 64] |= std::uint64_t{1} << (c % 64);
  own.quota = quota_of_control_groups();
  std::vector<Card> all(static_cast<std::size_t>(session.info().local_size));
  MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, node);

  CoreFacts facts;
  for (auto const& card : all) {
    auto& mask = facts.masks.emplace_back();
    for (int c = 0; c < static_cast<int>(card.mask.size() * 64); ++c)
      if (card.mask[static_cast<std::size_t>(c) / 64] >> (c % 64) & 1) mask.push_back(c);
  }
  facts.rank = session.info().local_rank;
  facts.wanted = wanted_by_environment();
  facts.quota = own.quota;
  facts.quota_sharers = std::max(1, static_cast<int>(std::ranges::count_if(
                                        all, [](Card const& card) { return card.quota > 0.0; })));
  return share_of_cores(facts);
}

}  // namespace tessera::topology
