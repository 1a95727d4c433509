#include "tessera/topology/mpi_session.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <utility>

#include "detail/comm_handle.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"
#include "tessera/topology/cores.hpp"
#include "tessera/topology/heartbeat_monitor.hpp"
#include "tessera/topology/rank_groups.hpp"

namespace tessera::topology {
namespace {

std::atomic<bool> skip_finalize{false};

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

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv) {
  int granted = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &granted);
  TESSERA_VALIDATE(granted >= MPI_THREAD_SERIALIZED, ConfigError, "MPI grants thread level ",
                   granted,
                   " but MPI_THREAD_SERIALIZED is needed; use an MPI built with thread support");
  MPI_Comm_rank(MPI_COMM_WORLD, &info_.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &info_.world_size);
  node_ = split_by_node();
  MPI_Comm const node_comm = from_handle(node_);
  MPI_Comm_rank(node_comm, &info_.local_rank);
  MPI_Comm_size(node_comm, &info_.local_size);
  number_nodes();
  gather_hosts();
  bool const simulated = std::ranges::count(hosts_, info_.host) > info_.local_size;
  ranks_have_own_cores_ = topology::ranks_have_own_cores(core_facts(*this)) && !simulated;
}

CommHandle MpiSession::split_by_node() const {
  MPI_Comm node_comm = MPI_COMM_NULL;
  if (char const* const sizes = std::getenv("TESSERA_SIMULATED_NODES")) {
    auto const nodes = nodes_of_sizes(sizes, info_.world_size);
    MPI_Comm_split(MPI_COMM_WORLD, static_cast<int>(nodes[static_cast<std::size_t>(info_.rank)]),
                   info_.rank, &node_comm);
  } else {
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, info_.rank, MPI_INFO_NULL,
                        &node_comm);
  }
  return to_handle(node_comm);
}

void MpiSession::number_nodes() {
  int const leader = info_.local_rank == 0 ? 1 : 0;
  int leaders_before = 0;
  MPI_Exscan(&leader, &leaders_before, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  int node = info_.rank == 0 ? 0 : leaders_before;
  MPI_Bcast(&node, 1, MPI_INT, 0, from_handle(node_));
  info_.node = NodeIndex(node);
  MPI_Allreduce(&leader, &info_.node_count, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  std::vector<int> nodes(static_cast<std::size_t>(info_.world_size));
  MPI_Allgather(&node, 1, MPI_INT, nodes.data(), 1, MPI_INT, MPI_COMM_WORLD);
  leaders_.assign(static_cast<std::size_t>(info_.node_count), -1);
  for (int r = info_.world_size; r-- > 0;)
    leaders_[static_cast<std::size_t>(nodes[static_cast<std::size_t>(r)])] = r;
  for (int const of_rank : nodes) nodes_.push_back(NodeIndex(of_rank));
}

void MpiSession::gather_hosts() {
  char name[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  MPI_Get_processor_name(name, &length);
  info_.host = name;
  // Each rank receives the names of all, so that a slot has the size of the longest name.
  int stride = length + 1;
  MPI_Allreduce(MPI_IN_PLACE, &stride, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  std::vector<char> all(static_cast<std::size_t>(info_.world_size) *
                        static_cast<std::size_t>(stride));
  MPI_Allgather(name, stride, MPI_CHAR, all.data(), stride, MPI_CHAR, MPI_COMM_WORLD);
  for (std::size_t at = 0; at < all.size(); at += static_cast<std::size_t>(stride))
    hosts_.emplace_back(all.data() + at);
}

MpiSession::~MpiSession() {
  heartbeat_monitor_.reset();
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized || skip_finalize) return;
  MPI_Comm node_comm = from_handle(node_);
  MPI_Comm_free(&node_comm);
  MPI_Finalize();
}

CommHandle MpiSession::world() const { return to_handle(MPI_COMM_WORLD); }
CommHandle MpiSession::node() const { return node_; }

void MpiSession::start_heartbeat_monitor(std::chrono::milliseconds timeout) {
  node_timeout_ = timeout;
  heartbeat_monitor_ = topology::start_heartbeat_monitor(*this, timeout);
}

int MpiSession::rank_of_lost_node() const {
  auto const node = heartbeat_monitor_ ? heartbeat_monitor_->lost_node() : std::nullopt;
  return node ? leaders_[position(*node)] : -1;
}

std::string MpiSession::broadcast(std::string text) const {
  return broadcast_text(MPI_COMM_WORLD, std::move(text));
}

void MpiSession::leave_without_finalize() { skip_finalize = true; }

bool MpiSession::all_arrive(std::chrono::milliseconds deadline) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return false;
  auto const end = std::chrono::steady_clock::now() + deadline;
  for (int arrived = 0;; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
    if (MPI_Test(&request, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (arrived) return true;
    if (std::chrono::steady_clock::now() > end) return false;
  }
}

void MpiSession::abort(int exit_code) {
  std::thread([exit_code] {  // ends this process if the launcher does not respond
    std::this_thread::sleep_for(std::chrono::seconds(10));
    std::_Exit(exit_code);
  })
      .detach();
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::abort();
}

std::string MpiSession::library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string version(text);
  bool const has_pmix =
      version.find("--with-pmix") != std::string::npos;  // MPICH tells how it was configured
  version.resize(std::min(version.find_first_of(",\n"), version.size()));
  std::string const label = "MPICH Version:";  // a tab follows
  if (version.starts_with(label))
    version = concat("MPICH ", version.substr(version.find_first_not_of(" \t", label.size())),
                     has_pmix ? " with PMIx" : "");
  return version;
}

std::string MpiSession::thread_level() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  switch (level) {
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    case MPI_THREAD_MULTIPLE:
      return "MPI_THREAD_MULTIPLE";
    default:
      return "MPI_THREAD_SINGLE";
  }
}

CoreFacts core_facts(MpiSession const& session) {
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
  return facts;
}

int cores_of_rank(MpiSession const& session) { return share_of_cores(core_facts(session)); }

}  // namespace tessera::topology
