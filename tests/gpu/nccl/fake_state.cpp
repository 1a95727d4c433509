#include "fake_state.hpp"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::test {
namespace {

unsigned draw() {
  static std::mutex mutex;
  static std::mt19937 random(static_cast<unsigned>(getpid()));
  std::lock_guard const lock(mutex);
  return static_cast<unsigned>(random());
}
/// How often somebody must look before a call is taken up.
int some_looks() { return static_cast<int>(draw() % 4); }

void note_launch(State const& s) {
  std::lock_guard const lock(world().mutex);
  ++world().launch_count;
  for (auto const& c : s.launch.calls)
    world().launches.push_back(concat(s.number, " ", name_of(c.kind)));
}

/// Puts the calls onto the stream, which is a host thread.
void launch(std::shared_ptr<State> const& s) {
  s->launch.number = ++s->family->launches;
  note_launch(*s);
  while (nccl_faults().blocks_at == world().launch_count)
    std::this_thread::sleep_for(std::chrono::seconds(1));
  auto const& faults = nccl_faults();
  bool const hangs = faults.hang_at > 0 && world().launch_count >= faults.hang_at;
  bool const fails = faults.remote_error_at > 0 && world().launch_count == faults.remote_error_at;
  ++s->queued;
  unsigned const most = device().jitter_us;
  std::chrono::microseconds const late(most > 0 ? draw() % (4 * most) : 0);
  static_cast<memory::Queue*>(static_cast<void*>(s->stream))
      ->submit([s, hangs, fails, late, what = s->launch] {
        std::this_thread::sleep_for(late);
        if (fails) {
          world().last_error = "the peer's connection was reset";
          s->error = ncclRemoteError;
        }
        if (!hangs && !fails)
          carry_out(what, *s->exchange, s->ended, [&s](std::string text) {
            breach(std::move(text));
            world().last_error = "ranks do not fit together";
            s->error = ncclInternalError;
          });
        if (hangs || s->error != ncclSuccess) s->ended.wait(false);
        --s->queued;
        s->queued.notify_all();
      });
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

}  // namespace

World& world() {
  static World of_this_process;
  return of_this_process;
}
void breach(std::string text) {
  std::lock_guard const lock(world().mutex);
  world().breaches.push_back(std::move(text));
}

FakeDevice& device() { return dynamic_cast<FakeDevice&>(memory::detail::device_api()); }
bool in_device_memory(NcclRange range) { return device().covers(range.begin, range.bytes); }

std::shared_ptr<State> find(ncclComm_t comm, char const* call) {
  std::lock_guard const lock(world().mutex);
  if (world().communicators.contains(comm)) return comm->state;
  world().breaches.push_back(
      concat(call, " on a communicator that is not there (ended, or never made)"));
  return nullptr;
}

ncclComm_t make_comm(std::shared_ptr<State> state) {
  auto* const comm = new ncclComm{std::move(state)};
  std::lock_guard const lock(world().mutex);
  world().communicators.insert(comm);
  return comm;
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

bool ready(State& s, char const* call) {
  if (s.phase == Phase::ready) return true;
  breach(concat(call, s.phase == Phase::finished
                          ? " after ncclCommFinalize"
                          : " before the former call was complete (ncclCommGetAsyncError)"));
  return false;
}

}  // namespace tessera::test
