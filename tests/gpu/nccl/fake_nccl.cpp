#include "fake_nccl.hpp"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <utility>

#include "fake_state.hpp"
#include "tessera/core/error.hpp"

namespace tessera::test {
namespace {

void note_ctas(ncclConfig_t const* config) {
  std::lock_guard const lock(world().mutex);
  if (config) world().made_with_ctas.push_back({config->maxCTAs, config->CTAPolicy});
}

}  // namespace

NcclFaults& nccl_faults() {
  static NcclFaults faults;
  return faults;
}

NcclInUse nccl_in_use() {
  std::lock_guard const lock(world().mutex);
  NcclInUse out{static_cast<int>(world().communicators.size()), 0,
                static_cast<int>(world().blocks.size())};
  for (auto* const comm : world().communicators)
    for (auto const& [begin, memory] : comm->state->registered)
      ++(memory.window > 0 ? out.windows : out.registrations);
  return out;
}

std::vector<std::string> take_nccl_breaches() {
  std::lock_guard const lock(world().mutex);
  return std::exchange(world().breaches, {});
}

std::vector<std::string> take_nccl_launches() {
  std::lock_guard const lock(world().mutex);
  world().launch_count = 0;
  return std::exchange(world().launches, {});
}

std::vector<int> take_nccl_aborts() {
  std::lock_guard const lock(world().mutex);
  return std::exchange(world().abort_groups, {});
}

std::vector<NcclCtas> take_nccl_ctas() {
  std::lock_guard const lock(world().mutex);
  return std::exchange(world().made_with_ctas, {});
}

}  // namespace tessera::test

using namespace tessera::test;

extern "C" {

ncclResult_t ncclGetVersion(int* version) { return *version = nccl_faults().version, ncclSuccess; }
char const* ncclGetErrorString(ncclResult_t result) {
  static char const* const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "in progress"};
  return texts[result];
}
char const* ncclGetLastError(ncclComm_t) { return world().last_error; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> count{0};
  if (nccl_faults().no_unique_id) {
    world().last_error = "no socket interface was found";
    return ncclInternalError;
  }
  std::string const path = (std::filesystem::temp_directory_path() /
                            tessera::concat("fake-nccl-", getpid(), "-", ++count))
                               .string();
  *id = {};
  std::memcpy(id->internal, path.data(), path.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (nccl_faults().start_refused) {
    world().last_error = "no transport fits";
    return ncclSystemError;
  }
  if (!config || config->blocking != 0) breach("a communicator that blocks");
  note_ctas(config);
  auto const s = new_state(id.internal, ranks, rank, std::make_shared<Family>());
  *comm = make_comm(s);
  std::lock_guard const lock(s->mutex);
  if (!nccl_faults().start_hangs) s->exchange->join();
  return begin(s, Phase::starting);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  auto const s = find(comm, "ncclCommSplit");
  if (!s) return ncclInvalidArgument;
  std::lock_guard const lock(s->mutex);
  if (!ready(*s, "ncclCommSplit")) return ncclInvalidArgument;
  if (config && config->blocking != 0) breach("a communicator that blocks");
  note_ctas(config);
  if (s->queued > 0) breach("ncclCommSplit while operations are under way");
  ++s->splits;
  if (!nccl_faults().split_hangs) s->exchange->offer_split(s->splits, color, key);
  *made = nullptr;
  s->split_into = made;
  s->split = nullptr;
  s->split_color = color;
  begin(s, Phase::splitting);
  return ncclSuccess;  // as NCCL 2.28 does; ncclCommGetAsyncError says that it continues
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  auto const s = find(comm, "ncclCommGetAsyncError");
  if (!s) return ncclInvalidArgument;
  std::lock_guard const lock(s->mutex);
  advance(s);
  *error = status_of(*s);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  auto const s = find(comm, "ncclCommFinalize");
  if (!s) return ncclInvalidArgument;
  std::lock_guard const lock(s->mutex);
  if (!ready(*s, "ncclCommFinalize")) return ncclInvalidArgument;
  if (!s->registered.empty()) breach("ncclCommFinalize while memory is registered");
  return begin(s, Phase::finishing);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  auto const s = find(comm, "ncclCommDestroy");
  if (!s) return ncclInvalidArgument;
  if (s->phase != Phase::finished) breach("ncclCommDestroy before ncclCommFinalize was complete");
  std::lock_guard const lock(world().mutex);
  world().communicators.erase(comm);
  delete comm;
  return ncclSuccess;
}
}
