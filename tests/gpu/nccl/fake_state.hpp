#pragma once
/// The state of the fake NCCL's communicators and of its process, and how what they have been asked
/// for goes forward.

#include <nccl.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "fake_device.hpp"
#include "fake_launch.hpp"
#include "fake_nccl.hpp"

namespace tessera::test {

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

/// State of this process, guarded by its mutex.
struct World {
  std::mutex mutex;
  std::set<ncclComm_t> communicators;
  std::map<void*, std::size_t> blocks;  ///< blocks of ncclMemAlloc, with their bytes
  std::vector<std::string> breaches, launches;
  std::vector<NcclCtas> made_with_ctas;
  std::vector<int> abort_groups;
  int launch_count = 0;
  char const* last_error = "nothing is known";
};
World& world();
void breach(std::string text);

FakeDevice& device();
bool in_device_memory(NcclRange range);
bool is_registered(State const& s, NcclRange range);
/// The place in a symmetric window; -1: in none.
std::int64_t place(State const& s, NcclRange range);
ncclWindow_t as_window(std::byte* data);

/// Finds the state of a communicator; where there is none, it returns null and notes a breach by @p
/// call.
std::shared_ptr<State> find(ncclComm_t comm, char const* call);
std::shared_ptr<State> new_state(std::string path, int ranks, int rank,
                                 std::shared_ptr<Family> family);
ncclComm_t make_comm(std::shared_ptr<State> state);

/// One look at what is in progress, as NCCL's own thread would bring it forward.
void advance(std::shared_ptr<State> const& s);
ncclResult_t status_of(State const& s);
ncclResult_t begin(std::shared_ptr<State> const& s, Phase phase);
/// A call needs a communicator whose earlier calls have been taken up.
bool ready(State& s, char const* call);

}  // namespace tessera::test

struct ncclComm {
  std::shared_ptr<tessera::test::State> state;
};
