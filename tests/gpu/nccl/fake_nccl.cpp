#include "fake_nccl.hpp"

#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>

#include "fake_device.hpp"
#include "fake_launch.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::test {
namespace {

enum class Phase { starting, ready, launching, splitting, registering, finishing, finished };

/// Shared by a communicator and all that were split from it.
struct Family {
  std::uint64_t launches = 0;
  int members = 0;
};

struct State {
  std::mutex mutex;
  int number = 0;
  std::shared_ptr<Family> family;
  std::string path;
  std::shared_ptr<Exchange> exchange;
  std::atomic<bool> ended{false};
  std::atomic<int> queued{0};
  std::atomic<ncclResult_t> error{ncclSuccess};
  Phase phase = Phase::starting;
  int looks = 0;  ///< that still find it in progress
  NcclLaunch launch;
  cudaStream_t stream = nullptr;
  ncclComm_t* split_into = nullptr;
  ncclComm_t split = nullptr;  ///< made when every rank has called
  int split_color = 0;
  int splits = 0;
  struct Registered {
    std::size_t bytes;
    int window;  ///< number among the windows of the communicator; 0: of ncclCommRegister
  };
  std::map<std::byte*, Registered> registered;
  int windows = 0;
  std::byte* registering = nullptr;
  ncclWindow_t* window_into = nullptr;

  int ranks() const { return exchange->ranks(); }
  int rank() const { return exchange->rank(); }
};

std::mutex world_mutex;
std::set<ncclComm_t> communicators;
std::map<void*, std::size_t> blocks;
std::vector<std::string> breaches, launches;
std::vector<NcclCtas> made_with_ctas;
std::vector<int> abort_groups;
int launch_count = 0;
thread_local int depth = 0;
thread_local std::vector<std::pair<std::shared_ptr<State>, NcclCall>> grouped;
thread_local cudaStream_t grouped_stream = nullptr;
thread_local std::vector<std::shared_ptr<State>> grouped_aborts;
char const* last_error = "nothing is known";

void note_ctas(ncclConfig_t const* config) {
  std::lock_guard const lock(world_mutex);
  if (config) made_with_ctas.push_back({config->maxCTAs, config->CTAPolicy});
}
void breach(std::string text) {
  std::lock_guard const lock(world_mutex);
  breaches.push_back(std::move(text));
}

unsigned draw() {
  static std::mutex mutex;
  static std::mt19937 random(static_cast<unsigned>(getpid()));
  std::lock_guard const lock(mutex);
  return static_cast<unsigned>(random());
}
/// How often somebody must look before a call is taken up.
int some_looks() { return static_cast<int>(draw() % 4); }

FakeDevice& device() { return dynamic_cast<FakeDevice&>(memory::detail::device_api()); }
bool in_device_memory(NcclRange range) { return device().covers(range.begin, range.bytes); }

bool is_registered(State const& s, NcclRange range) {
  if (range.bytes == 0) return true;
  for (auto const& [begin, memory] : s.registered)
    if (range.begin >= begin && range.begin + range.bytes <= begin + memory.bytes) return true;
  return false;
}

/// The place in a symmetric window; -1: in none.
std::int64_t place(State const& s, NcclRange range) {
  if (range.bytes == 0) return -1;
  for (auto const& [begin, memory] : s.registered)
    if (memory.window > 0 && range.begin >= begin &&
        range.begin + range.bytes <= begin + memory.bytes)
      return (std::int64_t{memory.window} << 40) + (range.begin - begin);
  return -1;
}

/// In place, one operand follows from the other, and its offset from the rank.
void note_places(State const& s, NcclCall& c) {
  auto const in = read_by(c, s.ranks(), s.rank()), out = written_by(c, s.ranks(), s.rank());
  bool const in_place = overlap(in, out);
  if (!in_place || c.kind != NcclKind::all_gather) c.send_at = place(s, in);
  if (!in_place || c.kind != NcclKind::reduce_scatter) c.receive_at = place(s, out);
}

}  // namespace
}  // namespace tessera::test

struct ncclComm {
  std::shared_ptr<tessera::test::State> state;
};

namespace tessera::test {
namespace {

std::shared_ptr<State> find(ncclComm_t comm, char const* call) {
  std::lock_guard const lock(world_mutex);
  if (communicators.contains(comm)) return comm->state;
  breaches.push_back(concat(call, " on a communicator that is not there (ended, or never made)"));
  return nullptr;
}

ncclComm_t make_comm(std::shared_ptr<State> state) {
  auto* const comm = new ncclComm{std::move(state)};
  std::lock_guard const lock(world_mutex);
  communicators.insert(comm);
  return comm;
}

void note_launch(State const& s) {
  std::lock_guard const lock(world_mutex);
  ++launch_count;
  for (auto const& c : s.launch.calls) launches.push_back(concat(s.number, " ", name_of(c.kind)));
}

/// Puts the calls onto the stream, which is a host thread.
void launch(std::shared_ptr<State> const& s) {
  s->launch.number = ++s->family->launches;
  note_launch(*s);
  while (nccl_faults().blocks_at == launch_count)
    std::this_thread::sleep_for(std::chrono::seconds(1));
  auto const& faults = nccl_faults();
  bool const hangs = faults.hang_at > 0 && launch_count >= faults.hang_at;
  bool const fails = faults.remote_error_at > 0 && launch_count == faults.remote_error_at;
  ++s->queued;
  unsigned const most = device().jitter_us;
  std::chrono::microseconds const late(most > 0 ? draw() % (4 * most) : 0);
  static_cast<memory::Queue*>(static_cast<void*>(s->stream))
      ->submit([s, hangs, fails, late, what = s->launch] {
        std::this_thread::sleep_for(late);
        if (fails) {
          last_error = "the peer's connection was reset";
          s->error = ncclRemoteError;
        }
        if (!hangs && !fails)
          carry_out(what, *s->exchange, s->ended, [&s](std::string text) {
            breach(std::move(text));
            last_error = "ranks do not fit together";
            s->error = ncclInternalError;
          });
        while ((hangs || s->error != ncclSuccess) && !s->ended)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        --s->queued;
      });
}

std::shared_ptr<State> new_state(std::string path, int ranks, int rank,
                                 std::shared_ptr<Family> family) {
  auto s = std::make_shared<State>();
  s->path = std::move(path);
  s->family = std::move(family);
  s->number = s->family->members++;
  s->exchange = std::make_shared<Exchange>(s->path, ranks, rank);
  return s;
}

ncclComm_t make_split(State const& s) {
  auto const members = s.exchange->members(s.splits, s.split_color);
  auto const own = std::find(members.begin(), members.end(), s.rank()) - members.begin();
  auto const child = new_state(concat(s.path, "-", s.splits, "-", s.split_color),
                               static_cast<int>(members.size()), static_cast<int>(own), s.family);
  child->exchange->join();
  child->phase = Phase::ready;
  if (nccl_faults().split_fails) child->error = ncclInternalError;
  return make_comm(child);
}

ncclWindow_t as_window(std::byte* data) {
  return static_cast<ncclWindow_t>(static_cast<void*>(data));
}

/// One look at what is in progress, as NCCL's own thread would bring it forward.
void advance(std::shared_ptr<State> const& s) {
  if (s->looks > 0) {
    --s->looks;
    return;
  }
  switch (s->phase) {
    case Phase::starting:
      if (s->exchange->all_joined()) s->phase = Phase::ready;
      break;
    case Phase::launching:
      launch(s);
      s->phase = Phase::ready;
      break;
    case Phase::splitting:
      if (!s->exchange->all_offered(s->splits)) break;
      if (s->split_color >= 0 && !s->split) s->split = make_split(*s);
      if (s->split && !s->split->state->exchange->all_joined()) break;
      *s->split_into = s->split;
      s->phase = Phase::ready;
      break;
    case Phase::registering:
      if (!s->exchange->all_offered_window(s->windows)) break;
      if (!s->exchange->window_has_one_size(s->windows))
        breach("ranks register windows of different sizes");
      *s->window_into = nccl_faults().no_windows ? nullptr : as_window(s->registering);
      if (!*s->window_into) s->registered.erase(s->registering);
      s->phase = Phase::ready;
      break;
    case Phase::finishing:
      if (s->queued > 0) break;
      s->exchange->leave();
      if (s->exchange->all_left()) s->phase = Phase::finished;
      break;
    case Phase::ready:
    case Phase::finished:
      break;
  }
}

ncclResult_t status_of(State const& s) {
  if (s.error != ncclSuccess) return s.error;
  return s.phase == Phase::ready || s.phase == Phase::finished ? ncclSuccess : ncclInProgress;
}

ncclResult_t begin(std::shared_ptr<State> const& s, Phase phase) {
  s->phase = phase;
  s->looks = some_looks();
  if (s->looks == 0) advance(s);
  return status_of(*s);
}

/// A call needs a communicator whose earlier calls have been taken up.
bool ready(State& s, char const* call) {
  if (s.phase == Phase::ready) return true;
  breach(concat(call, s.phase == Phase::finished
                          ? " after ncclCommFinalize"
                          : " before the former call was complete (ncclCommGetAsyncError)"));
  return false;
}

void check_memory(State const& s, NcclCall const& c) {
  auto const in = read_by(c, s.ranks(), s.rank()), out = written_by(c, s.ranks(), s.rank());
  if (!in_device_memory(in))
    breach(concat(name_of(c.kind), ": the ", in.bytes,
                  " bytes of its input are not all in device memory"));
  if (!in_device_memory(out))
    breach(concat(name_of(c.kind), ": the ", out.bytes,
                  " bytes of its output are not all in device memory"));
  if (!placed_well(c, s.ranks(), s.rank()))
    breach(concat(name_of(c.kind), ": input and output overlap, and not in place"));
}

/// Operations of a group run at the same time.
void check_group(State const& s, std::vector<NcclCall> const& calls) {
  for (std::size_t i = 0; i < calls.size(); ++i)
    for (std::size_t k = 0; k < calls.size(); ++k) {
      auto const out = written_by(calls[i], s.ranks(), s.rank());
      if (i != k && (overlap(out, read_by(calls[k], s.ranks(), s.rank())) ||
                     overlap(out, written_by(calls[k], s.ranks(), s.rank()))))
        return breach(concat(name_of(calls[i].kind), " writes what ", name_of(calls[k].kind),
                             " of the same group uses"));
    }
}

ncclResult_t start(std::shared_ptr<State> const& s, std::vector<NcclCall> calls,
                   cudaStream_t stream) {
  std::lock_guard const lock(s->mutex);
  if (!ready(*s, name_of(calls[0].kind).c_str())) return ncclInvalidArgument;
  if (!stream) breach("an operation on the default stream");
  check_group(*s, calls);
  s->launch = {std::move(calls), 0, true};
  for (auto& c : s->launch.calls) note_places(*s, c);
  for (auto const& c : s->launch.calls)
    s->launch.registered = s->launch.registered &&
                           is_registered(*s, read_by(c, s->ranks(), s->rank())) &&
                           is_registered(*s, written_by(c, s->ranks(), s->rank()));
  s->stream = stream;
  return begin(s, Phase::launching);
}

void wait_for_aborts() {
  if (!grouped_aborts.empty()) {
    std::lock_guard const lock(world_mutex);
    abort_groups.push_back(static_cast<int>(grouped_aborts.size()));
  }
  for (auto const& s : std::exchange(grouped_aborts, {}))
    while (s->queued > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

ncclResult_t call(ncclComm_t comm, NcclCall const& c, cudaStream_t stream) {
  auto const s = find(comm, name_of(c.kind).c_str());
  if (!s) return ncclInvalidArgument;
  check_memory(*s, c);
  bool const message = c.kind == NcclKind::send || c.kind == NcclKind::receive;
  if (c.peer >= s->ranks() ||
      (c.peer < 0 && (message || c.kind == NcclKind::broadcast || c.kind == NcclKind::reduce))) {
    breach(concat(name_of(c.kind), ": there is no rank ", c.peer));
    return ncclInvalidArgument;
  }
  if (depth == 0) return start(s, {c}, stream);
  if (!grouped.empty() && (grouped[0].first != s || grouped_stream != stream))
    breach("a group of several communicators or streams");
  grouped.emplace_back(s, c);
  grouped_stream = stream;
  return ncclSuccess;
}

}  // namespace

NcclFaults& nccl_faults() {
  static NcclFaults faults;
  return faults;
}

NcclInUse nccl_in_use() {
  std::lock_guard const lock(world_mutex);
  NcclInUse out{static_cast<int>(communicators.size()), 0, static_cast<int>(blocks.size())};
  for (auto* const comm : communicators)
    for (auto const& [begin, memory] : comm->state->registered)
      ++(memory.window > 0 ? out.windows : out.registrations);
  return out;
}

std::vector<std::string> take_nccl_breaches() {
  std::lock_guard const lock(world_mutex);
  return std::exchange(breaches, {});
}

std::vector<std::string> take_nccl_launches() {
  std::lock_guard const lock(world_mutex);
  launch_count = 0;
  return std::exchange(launches, {});
}

std::vector<int> take_nccl_aborts() {
  std::lock_guard const lock(world_mutex);
  return std::exchange(abort_groups, {});
}

std::vector<NcclCtas> take_nccl_ctas() {
  std::lock_guard const lock(world_mutex);
  return std::exchange(made_with_ctas, {});
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
char const* ncclGetLastError(ncclComm_t) { return last_error; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> count{0};
  if (nccl_faults().no_unique_id) {
    last_error = "no socket interface was found";
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
    last_error = "no transport fits";
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
  return begin(s, Phase::splitting);
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
  std::lock_guard const lock(world_mutex);
  communicators.erase(comm);
  delete comm;
  return ncclSuccess;
}

/// Waits until the streams have left the operations of this communicator, in a group at its end.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  auto const s = find(comm, "ncclCommAbort");
  if (!s) return ncclInvalidArgument;
  ncclComm_t unborn = nullptr;
  {
    std::lock_guard const lock(s->mutex);
    s->ended = true;
    s->registered.clear();
    if (s->phase == Phase::splitting) unborn = s->split;
  }
  {
    std::lock_guard const lock(world_mutex);
    for (auto* const ended : {comm, unborn})
      if (ended && communicators.erase(ended)) delete ended;
  }
  grouped_aborts.push_back(s);
  if (depth == 0) wait_for_aborts();
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** data, std::size_t bytes) {
  *data = nccl_faults().memory_refused ? nullptr : device().allocate_apart(bytes);
  if (!*data) return ncclUnhandledCudaError;
  std::lock_guard const lock(world_mutex);
  blocks[*data] = bytes;
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* data) {
  {
    std::lock_guard const lock(world_mutex);
    if (blocks.erase(data) == 0)
      breaches.push_back("ncclMemFree of memory that is not ncclMemAlloc's");
    for (auto* const comm : communicators)
      if (comm->state->registered.contains(static_cast<std::byte*>(data)))
        breaches.push_back("ncclMemFree of memory that is registered");
  }
  device().free_apart(data);
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(ncclComm_t const comm, void* data, std::size_t bytes, void** handle) {
  auto const s = find(comm, "ncclCommRegister");
  if (!s || nccl_faults().register_refused) return ncclSystemError;
  std::lock_guard const lock(s->mutex);
  if (!ready(*s, "ncclCommRegister")) return ncclInvalidArgument;
  if (!in_device_memory({static_cast<std::byte*>(data), bytes}))
    breach("ncclCommRegister of what is not device memory");
  s->registered[static_cast<std::byte*>(data)] = {bytes, 0};
  *handle = data;
  return ncclSuccess;
}

/// Only the first and only one registration of complete memory of ncclMemAlloc; every rank calls
/// it.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, std::size_t bytes,
                                    ncclWindow_t* window, int flags) {
  auto const s = find(comm, "ncclCommWindowRegister");
  if (!s) return ncclInvalidArgument;
  std::lock_guard const lock(s->mutex);
  if (nccl_faults().version < 22700) breach("ncclCommWindowRegister, which this version lacks");
  if (!ready(*s, "ncclCommWindowRegister")) return ncclInvalidArgument;
  auto* const begin = static_cast<std::byte*>(data);
  {
    std::lock_guard const world_lock(world_mutex);
    auto const block = blocks.find(data);
    if (block == blocks.end() || block->second < bytes)
      breaches.push_back("a window of what is not memory of ncclMemAlloc");
  }
  if (flags != NCCL_WIN_COLL_SYMMETRIC) breach("a window that is not symmetric");
  if (s->registered.contains(begin)) breach("a window of memory that is registered");
  *window = nullptr;
  if (nccl_faults().window_refused) {
    last_error = "the peer's memory cannot be mapped";
    return s->error = ncclSystemError;
  }
  s->registered[begin] = {bytes, ++s->windows};
  s->registering = begin;
  s->window_into = window;
  s->exchange->offer_window(s->windows, bytes);
  return ::tessera::test::begin(s, Phase::registering);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  auto const s = find(comm, "ncclCommWindowDeregister");
  if (!s) return ncclInvalidArgument;
  std::lock_guard const lock(s->mutex);
  if (s->queued > 0) breach("ncclCommWindowDeregister while an operation may use the window");
  auto const found = s->registered.find(static_cast<std::byte*>(static_cast<void*>(window)));
  if (found == s->registered.end() || found->second.window == 0)
    breach("ncclCommWindowDeregister of what is no window");
  else
    s->registered.erase(found);
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t const comm, void* handle) {
  auto const s = find(comm, "ncclCommDeregister");
  if (!s) return ncclInvalidArgument;
  std::lock_guard const lock(s->mutex);
  auto const found = s->registered.find(static_cast<std::byte*>(handle));
  if (found == s->registered.end() || found->second.window > 0)
    breach("ncclCommDeregister of what is not registered");
  else
    s->registered.erase(found);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ++depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (depth == 0) breach("ncclGroupEnd without ncclGroupStart");
  if (--depth > 0) return ncclSuccess;
  wait_for_aborts();
  if (grouped.empty()) return ncclSuccess;
  auto const calls = std::exchange(grouped, {});
  std::vector<NcclCall> all;
  for (auto const& [state, c] : calls) all.push_back(c);
  return start(calls[0].first, std::move(all), grouped_stream);
}

ncclResult_t ncclBroadcast(void const* in, void* out, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {NcclKind::broadcast, in, out, count, type, ncclSum, root}, stream);
}
ncclResult_t ncclAllReduce(void const* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {NcclKind::all_reduce, in, out, count, type, op, -1}, stream);
}
ncclResult_t ncclReduce(void const* in, void* out, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {NcclKind::reduce, in, out, count, type, op, root}, stream);
}
ncclResult_t ncclReduceScatter(void const* in, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {NcclKind::reduce_scatter, in, out, count, type, op, -1}, stream);
}
ncclResult_t ncclAllGather(void const* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {NcclKind::all_gather, in, out, count, type, ncclSum, -1}, stream);
}
ncclResult_t ncclSend(void const* in, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {NcclKind::send, in, nullptr, count, type, ncclSum, peer}, stream);
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, {NcclKind::receive, nullptr, out, count, type, ncclSum, peer}, stream);
}

/// Of the CUDA runtime, for builds that link none.
__attribute__((weak)) cudaError_t cudaGetLastError() { return cudaSuccess; }
}
