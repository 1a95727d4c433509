#pragma once
/// Launches a rule on the execution space of a queue: host threads for inline and worker queues, a
/// stream of the device otherwise.
///
/// A rule is a plain functor with KOKKOS_FUNCTION operator(). parallel_for and parallel_rows
/// compile the same type for both spaces, so there are no extended lambdas. A rule gets contiguous
/// ranges, not single elements, because the host compiler vectorizes the loop inside the rule. No
/// function here allocates device memory, fences or reads results back. Every launch is recorded
/// with its rule and its size (memory::leave_out). Kernel names begin with "tessera::kernels::".

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <type_traits>
#include <utility>

#include "launch/element_types.hpp"
#include "launch/thread_blocks.hpp"
#include "launch/timed.hpp"
#include "launch/warp.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/launch_record.hpp"

#ifndef TESSERA_SHARED_MEMORY_KIB
#define TESSERA_SHARED_MEMORY_KIB 228  // on the host, where nothing depends on it
#endif

namespace tessera::kernels::detail {

using memory::Queue;
using memory::QueueKind;
using HostSpace = Kokkos::DefaultHostExecutionSpace;
/// The execution space of this build's devices: Kokkos' default is one wherever it has one.
using DeviceSpace = Kokkos::DefaultExecutionSpace;

/// Elements of one host range: large enough to hide the dispatch, small enough to balance threads.
inline constexpr std::int64_t host_range = 4096;
/// Threads of a thread block that share one row.
inline constexpr int threads_per_row = 128;

/// A team of one: a host thread and its vector unit process a complete row.
struct SingleThread {
  static constexpr int chunk = 256;  ///< neighboring elements that a thread processes per call
  static constexpr std::int64_t rank() { return 0; }
  static constexpr std::int64_t size() { return 1; }
  template <class T>
  KOKKOS_FUNCTION T sum(T value) const {
    return value;
  }
  KOKKOS_FUNCTION float max(float value) const { return value; }
};

/// The threads of a thread block, which share one row.
template <class Member>
struct ThreadTeam {
  static constexpr int chunk = 4;
  Member const& member;
  KOKKOS_FUNCTION std::int64_t rank() const { return member.team_rank(); }
  KOKKOS_FUNCTION std::int64_t size() const { return member.team_size(); }
  /// Reduction over the team; every thread gets the result.
  template <class T>
  KOKKOS_FUNCTION T sum(T value) const {
    member.team_reduce(Kokkos::Sum<T>(value));
    return value;
  }
  KOKKOS_FUNCTION float max(float value) const {
    member.team_reduce(Kokkos::Max<float>(value));
    return value;
  }
};

/// body(first, count) for this thread's chunks of a row of `columns` elements. A thread gets the
/// same elements in every pass over the row, so it may read back what it wrote.
template <class Team, class Body>
KOKKOS_FUNCTION void for_chunks(Team const& team, std::int64_t columns, Body const& body) {
  for (std::int64_t c = team.rank() * Team::chunk; c < columns; c += team.size() * Team::chunk)
    body(c, static_cast<int>(columns - c < Team::chunk ? columns - c : Team::chunk));
}

template <class Rule>
struct CallWithChunk {
  Rule rule;
  std::int64_t numel, chunk;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    std::int64_t const begin = i * chunk;
    rule(i, begin, begin + chunk < numel ? begin + chunk : numel);
  }
};
template <class Rule>
struct CallWithRange {
  Rule rule;
  KOKKOS_FUNCTION void operator()(std::int64_t, std::int64_t begin, std::int64_t end) const {
    rule(begin, end);
  }
};
template <class Rule>
struct CallWithRow {
  Rule rule;
  KOKKOS_FUNCTION void operator()(std::int64_t row) const { rule(SingleThread{}, row); }
};
template <class Rule>
struct CallWithTeam {
  Rule rule;
  template <class Member>
  KOKKOS_FUNCTION void operator()(Member const& member) const {
    rule(ThreadTeam<Member>{member}, static_cast<std::int64_t>(member.league_rank()));
  }
};

/// A team with scratch memory, for rules that are called as rule(team, index).
template <class Member>
class ScratchTeam {
 public:
  KOKKOS_FUNCTION ScratchTeam(Member const& member, int level, std::size_t bytes)
      : member_(member),
        scratch_(static_cast<float*>(member.team_scratch(level).get_shmem_aligned(
            static_cast<std::ptrdiff_t>(bytes), 16))) {}
  KOKKOS_FUNCTION int rank() const { return member_.team_rank(); }
  KOKKOS_FUNCTION void barrier() const { member_.team_barrier(); }
  KOKKOS_FUNCTION float* scratch() const { return scratch_; }
  /// other = values of the thread of this warp whose rank is rank() ^ mask (exchange_in_warp).
  template <int N>
  KOKKOS_FUNCTION void exchange(float const (&value)[N], int mask, float (&other)[N]) const {
    for (int i = 0; i < N; ++i) other[i] = exchange_in_warp(value[i], mask);
  }

 private:
  Member const& member_;
  float* scratch_;
};
/// The scratch memory of a kernel, in its name for tests/gpu/launch_limits.py.
template <std::size_t Bytes>
struct ScratchBytes {};
template <class Rule, class Scratch = ScratchBytes<Rule::scratch_floats * sizeof(float)>>
struct CallWithScratch {
  Rule rule;
  int level;
  template <class Member>
  KOKKOS_FUNCTION void operator()(Member const& member) const {
    rule(ScratchTeam<Member>(member, level, Rule::scratch_floats * sizeof(float)),
         static_cast<std::int64_t>(member.league_rank()));
  }
};

/// Whether this build's Kokkos has a device space: for `if constexpr` around code that only such
/// builds need.
inline constexpr bool kokkos_has_device = !std::is_same_v<DeviceSpace, HostSpace>;

/// Whether kernels have a form for devices next to the host's: in builds for GPUs, and in builds
/// with tests, which run that form on hosts. Host programs would compile it for nothing.
#ifdef TESSERA_DEVICE_FORMS
inline constexpr bool has_device_forms = true;
#else
inline constexpr bool has_device_forms = false;
#endif

/// Whether a launch on @p q takes the device form of its kernel. Sizes of workspaces depend on
/// q.kind() instead, because the memory of a device is also planned by programs without such forms.
inline bool on_device(Queue const& q) { return has_device_forms && q.kind() == QueueKind::stream; }

/// Whether launches on streams may run in the thread blocks of a test.
inline constexpr bool has_blocks_of_tests = has_device_forms && !kokkos_has_device;
/// Whether a launch on @p q runs in blocks of many threads.
inline bool in_thread_blocks(Queue const& q) {
  if constexpr (has_blocks_of_tests)
    return ThreadBlocks::of_test != nullptr &&
           (q.kind() == QueueKind::stream || ThreadBlocks::of_test->take_every_queue());
  return kokkos_has_device && memory::on_gpu(q);
}
inline constexpr bool has_thread_blocks = kokkos_has_device || has_blocks_of_tests;
/// A launch in the thread blocks of a test, in the order of the stream.
template <class Call>
void run_in_blocks_of_test(Queue& q, int threads, std::int64_t blocks, std::size_t scratch_floats,
                           Call const& call) {
  q.submit([=] { ThreadBlocks::of_test->run(threads, blocks, scratch_floats, call); });
}

/// Held around launches on a device: Kokkos keeps the attributes of kernels in maps without a lock.
inline std::mutex& device_launches() {
  static std::mutex mutex;
  return mutex;
}
/// The Kokkos execution space of a stream, created once per stream and destroyed when Kokkos
/// finalizes. In builds for GPUs only (device_space_cuda.cpp).
DeviceSpace const& device_space(void* native_stream);

/// Passes rules as kernel parameters. Without the hint Kokkos copies rules larger than 512 bytes to
/// constant memory, which has one slot, and the host waits for the previous kernel that used it.
using ByParameter = Kokkos::Experimental::WorkItemProperty::HintLightWeight_t;

/// Static schedule: neighboring indices run on the same host thread. Worker queues, and stream
/// queues of a device in host memory, run the kernel in their own order.
template <class Space, class Rule>
void launch_range(Space const& space, char const* name, std::int64_t n, Rule const& rule) {
  using Policy = Kokkos::RangePolicy<Space, Kokkos::Schedule<Kokkos::Static>,
                                     Kokkos::IndexType<std::int64_t>, ByParameter>;
  Kokkos::parallel_for(name, Policy(space, 0, n), rule);
}
template <class Rule>
void launch_on_host(Queue& q, char const* name, std::int64_t n, Rule const& rule) {
  if (memory::leave_out<Rule>(q, n, rule)) return;
  Timed const timed(q, name);
  if (q.kind() == QueueKind::inline_host) {
    launch_range(HostSpace(), name, n, rule);
  } else {
    q.submit([name, n, rule] { launch_range(HostSpace(), name, n, rule); });
  }
}

/// rule(i) for i in [0, n).
template <class Rule>
void parallel_for(Queue& q, char const* name, std::int64_t n, Rule const& rule) {
  if (n <= 0) return;
  if constexpr (kokkos_has_device) {
    if (memory::on_gpu(q)) {
      if (memory::leave_out<Rule>(q, n, rule)) return;
      Timed const timed(q, name);
      std::lock_guard const lock(device_launches());
      launch_range(device_space(q.native_stream()), name, n, rule);
      return memory::check_launch(q, name);
    }
  }
  launch_on_host(q, name, n, rule);
}

/// rule(team, row) for row in [0, rows): the threads of a team share the row in chunks
/// (for_chunks).
template <class Rule>
void parallel_rows(Queue& q, char const* name, std::int64_t rows, Rule const& rule) {
  if (rows <= 0) return;
  if constexpr (kokkos_has_device) {
    if (memory::on_gpu(q)) {
      if (memory::leave_out<CallWithTeam<Rule>>(q, rows, rule)) return;
      Kokkos::TeamPolicy<DeviceSpace, ByParameter> const policy(
          device_space(q.native_stream()), static_cast<int>(rows), threads_per_row);
      Timed const timed(q, name);
      std::lock_guard const lock(device_launches());
      Kokkos::parallel_for(name, policy, CallWithTeam<Rule>{rule});
      return memory::check_launch(q, name);
    }
  }
  if constexpr (has_blocks_of_tests)
    if (in_thread_blocks(q)) {
      if (memory::leave_out<CallWithTeam<Rule>>(q, rows, rule)) return;
      return run_in_blocks_of_test(
          q, ThreadBlocks::of_test->threads_per_row(), rows, 0,
          [rule](BlockThread const& thread, std::int64_t row) { rule(BlockTeam{thread}, row); });
    }
  launch_on_host(q, name, rows, CallWithRow<Rule>{rule});
}

/// Threads that a multiprocessor processes at the same time, as far as registers allow it: 512 may
/// have 128 registers each, 1024 may have 64.
template <class Rule>
constexpr int resident_threads() {
  if constexpr (requires { Rule::resident_threads; })
    return Rule::resident_threads;
  else
    return 512;
}
/// Thread blocks per multiprocessor that a launch asks for. Kokkos refuses a launch whose blocks
/// together need more shared memory than a multiprocessor has; every architecture of this build has
/// TESSERA_SHARED_MEMORY_KIB.
template <int Threads, class Rule>
constexpr int blocks_per_multiprocessor(std::size_t scratch_bytes) {
  constexpr std::size_t of_kokkos_and_driver = 2048 + 8 * Threads;
  auto const fit = static_cast<int>(std::size_t{TESSERA_SHARED_MEMORY_KIB} * 1024 /
                                    (scratch_bytes + of_kokkos_and_driver));
  return std::max(1, Threads > 1 ? std::min(resident_threads<Rule>() / Threads, fit) : 1);
}

/// rule(team, index) for index in [0, teams). A team has `Threads` threads and Rule::scratch_floats
/// of scratch: level 0 (shared memory of the thread block) on a device, level 1 on the host, where
/// level 0 is small.
template <int Threads, class Space, class Rule>
void launch_teams(Space const& space, char const* name, std::int64_t teams, Rule const& rule) {
  constexpr int level = std::is_same_v<Space, HostSpace> ? 1 : 0;
  constexpr std::size_t bytes =
      Rule::scratch_floats * sizeof(float) + 16;  // room for the alignment
  static_assert(level == 1 || bytes + 2048 + 8 * Threads <= 99 * 1024,
                "a thread block of compute capability 8.6, 8.9 and 12.0 has 99 KiB");
  using Policy = Kokkos::TeamPolicy<
      Space, ByParameter,
      Kokkos::LaunchBounds<Threads, blocks_per_multiprocessor<Threads, Rule>(bytes)>>;
  Policy policy(space, static_cast<int>(teams), Threads);
  Kokkos::parallel_for(name, policy.set_scratch_size(level, Kokkos::PerTeam(bytes)),
                       CallWithScratch<Rule>{rule, level});
}
template <int Threads, class Rule>
void parallel_teams(Queue& q, char const* name, std::int64_t teams, Rule const& rule) {
  if (teams <= 0 || memory::leave_out<CallWithScratch<Rule>>(q, Threads, teams, rule)) return;
  Timed const timed(q, name);
  if constexpr (kokkos_has_device && Threads > 1) {
    std::lock_guard const lock(device_launches());
    launch_teams<Threads>(device_space(q.native_stream()), name, teams, rule);
    return memory::check_launch(q, name);
  }
  if constexpr (Threads > 1 && has_blocks_of_tests)
    return run_in_blocks_of_test(
        q, Threads, teams, Rule::scratch_floats,
        [rule](BlockThread const& thread, std::int64_t team) { rule(thread, team); });
  if (q.kind() == QueueKind::inline_host)
    return launch_teams<Threads>(HostSpace(), name, teams, rule);
  q.submit([name, teams, rule] { launch_teams<Threads>(HostSpace(), name, teams, rule); });
}
/// call(threads) with the team size for this queue as a compile-time constant: `Threads` on a
/// GPU, 1 on the host.
template <int Threads = threads_per_row, class Call>
void with_team_size(Queue& q, Call const& call) {
  if constexpr (has_thread_blocks)
    if (in_thread_blocks(q)) return call(std::integral_constant<int, Threads>());
  call(std::integral_constant<int, 1>());
}

}  // namespace tessera::kernels::detail
