#pragma once
/// The one place where kernels reach an execution space: host threads for inline and worker queues,
/// a CUDA stream otherwise.
///
/// A rule is a plain functor with KOKKOS_FUNCTION operator(); the same type is compiled for both
/// spaces, so there are no extended lambdas. Rules get contiguous ranges, not single elements,
/// because the loop inside a rule is what the host compiler vectorises. Nothing here allocates
/// device memory, fences, or reads results back. Names begin with "tessera::kernels::".

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "detail/element_types.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::kernels::detail {

using memory::Queue;
using memory::QueueKind;
using HostSpace = Kokkos::DefaultHostExecutionSpace;

/// Elements of one host range: large enough to hide the dispatch, small enough to share evenly.
inline constexpr std::int64_t host_range = 4096;
/// Threads that share one row on the device.
inline constexpr int device_lanes = 128;

/// The worker that has a whole row for itself: on the host, one thread and its vector unit.
struct SingleLane {
  static constexpr int chunk = 256;  ///< neighbouring elements that a lane takes at a time
  static constexpr std::int64_t rank() { return 0; }
  static constexpr std::int64_t size() { return 1; }
  template <class T>
  KOKKOS_FUNCTION T sum(T value) const {
    return value;
  }
  KOKKOS_FUNCTION float max(float value) const { return value; }
};

/// The threads of a device block that share one row.
template <class Member>
struct TeamLanes {
  static constexpr int chunk = 4;
  Member const& member;
  KOKKOS_FUNCTION std::int64_t rank() const { return member.team_rank(); }
  KOKKOS_FUNCTION std::int64_t size() const { return member.team_size(); }
  /// Of all lanes, known to all lanes.
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

/// body(first, count) for this lane's chunks of a row of `columns` elements; the same elements in
/// every pass over the row, so that a lane may read back what it wrote.
template <class Lanes, class Body>
KOKKOS_FUNCTION void for_chunks(Lanes const& lanes, std::int64_t columns, Body const& body) {
  for (std::int64_t c = lanes.rank() * Lanes::chunk; c < columns; c += lanes.size() * Lanes::chunk)
    body(c, static_cast<int>(columns - c < Lanes::chunk ? columns - c : Lanes::chunk));
}

template <class Rule>
struct CallWithBlock {
  Rule rule;
  std::int64_t numel, block;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    std::int64_t const begin = i * block;
    rule(i, begin, begin + block < numel ? begin + block : numel);
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
  KOKKOS_FUNCTION void operator()(std::int64_t row) const { rule(SingleLane{}, row); }
};
template <class Rule>
struct CallWithTeam {
  Rule rule;
  template <class Member>
  KOKKOS_FUNCTION void operator()(Member const& member) const {
    rule(TeamLanes<Member>{member}, static_cast<std::int64_t>(member.league_rank()));
  }
};

/// A team with scratch memory of its own, for rules that are called as rule(team, index).
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
  /// other <- the values of the thread of this warp whose rank differs by the bits of @p mask.
  /// Called by whole warps.
  template <int N>
  KOKKOS_FUNCTION void exchange(float const (&value)[N], int mask, float (&other)[N]) const {
#ifdef __CUDA_ARCH__
    for (int i = 0; i < N; ++i) other[i] = __shfl_xor_sync(0xFFFFFFFFu, value[i], mask);
#else
    for (int i = 0; i < N; ++i)
      other[i] = value[i];  // teams of one thread have nothing to exchange
    (void)mask;
#endif
  }

 private:
  Member const& member_;
  float* scratch_;
};
template <class Rule>
struct CallWithScratch {
  Rule rule;
  int level;
  template <class Member>
  KOKKOS_FUNCTION void operator()(Member const& member) const {
    rule(ScratchTeam<Member>(member, level, Rule::scratch_floats * sizeof(float)),
         static_cast<std::int64_t>(member.league_rank()));
  }
};

#ifdef KOKKOS_ENABLE_CUDA
/// The Kokkos instance of a stream; made once per stream, dropped when Kokkos ends.
Kokkos::Cuda const& device_space(void* native_stream);
#endif

/// Rules travel as a kernel's parameters. Without the hint Kokkos puts what is larger than 512
/// bytes into constant memory, of which there is one place, and makes the host wait for the former
/// kernel that used it.
using ByParameter = Kokkos::Experimental::WorkItemProperty::HintLightWeight_t;

/// Neighbouring indices go to the same host thread; worker queues, and streams that are not CUDA's,
/// run the kernel in their own order.
template <class Space, class Rule>
void launch_range(Space const& space, char const* name, std::int64_t n, Rule const& rule) {
  using Policy = Kokkos::RangePolicy<Space, Kokkos::Schedule<Kokkos::Static>,
                                     Kokkos::IndexType<std::int64_t>, ByParameter>;
  Kokkos::parallel_for(name, Policy(space, 0, n), rule);
}
template <class Rule>
void launch_on_host(Queue& q, char const* name, std::int64_t n, Rule const& rule) {
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
#ifdef KOKKOS_ENABLE_CUDA
  if (memory::on_cuda(q)) return launch_range(device_space(q.native_stream()), name, n, rule);
#endif
  launch_on_host(q, name, n, rule);
}

/// rule(block, begin, end) for blocks of `block` elements, the last one shorter: a division that
/// depends on n and block only, for partial sums that must not depend on the number of threads.
template <class Rule>
void parallel_blocks(Queue& q, char const* name, std::int64_t n, std::int64_t block,
                     Rule const& rule) {
  parallel_for(q, name, (n + block - 1) / block, CallWithBlock<Rule>{rule, n, block});
}

/// rule(lanes, row) for row in [0, rows): the lanes share the row in chunks, see for_chunks.
template <class Rule>
void parallel_rows(Queue& q, char const* name, std::int64_t rows, Rule const& rule) {
  if (rows <= 0) return;
#ifdef KOKKOS_ENABLE_CUDA
  if (memory::on_cuda(q)) {
    Kokkos::TeamPolicy<Kokkos::Cuda, ByParameter> const policy(
        device_space(q.native_stream()), static_cast<int>(rows), device_lanes);
    return Kokkos::parallel_for(name, policy, CallWithTeam<Rule>{rule});
  }
#endif
  launch_on_host(q, name, rows, CallWithRow<Rule>{rule});
}

/// rule(team, index) for index in [0, teams): teams of `Threads` threads with Rule::scratch_floats
/// of scratch each, in level 0 (a block's shared memory) on a device, in level 1 on the host, where
/// level 0 is small. 512 threads share a multiprocessor: 128 registers a thread.
template <int Threads, class Space, class Rule>
void launch_teams(Space const& space, char const* name, std::int64_t teams, Rule const& rule) {
  constexpr int level = std::is_same_v<Space, HostSpace> ? 1 : 0;
  using Policy = Kokkos::TeamPolicy<
      Space, ByParameter,
      Kokkos::LaunchBounds<Threads, (1 < Threads && Threads < 512 ? 512 / Threads : 1)>>;
  constexpr std::size_t bytes =
      Rule::scratch_floats * sizeof(float) + 16;  // room for the alignment
  Policy policy(space, static_cast<int>(teams), Threads);
  Kokkos::parallel_for(name, policy.set_scratch_size(level, Kokkos::PerTeam(bytes)),
                       CallWithScratch<Rule>{rule, level});
}
template <int Threads, class Rule>
void parallel_teams(Queue& q, char const* name, std::int64_t teams, Rule const& rule) {
  if (teams <= 0) return;
#ifdef KOKKOS_ENABLE_CUDA
  if constexpr (Threads > 1)
    return launch_teams<Threads>(device_space(q.native_stream()), name, teams, rule);
#endif
  if (q.kind() == QueueKind::inline_host)
    return launch_teams<Threads>(HostSpace(), name, teams, rule);
  q.submit([name, teams, rule] { launch_teams<Threads>(HostSpace(), name, teams, rule); });
}
/// call(threads) with the size of a team on this queue as a compile-time constant: on the host
/// every thread is a team of its own.
template <int Threads = device_lanes, class Call>
void with_team_size(Queue& q, Call const& call) {
#ifdef KOKKOS_ENABLE_CUDA
  if (memory::on_cuda(q)) return call(std::integral_constant<int, Threads>());
#endif
  (void)q;
  call(std::integral_constant<int, 1>());
}

}  // namespace tessera::kernels::detail
