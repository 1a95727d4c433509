#pragma once
/// What the suites of the communication layer share: implementations by name, arrays of any dtype,
/// exact references.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mpi_test.hpp"
#include "recording_collectives.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/base/flight_recorder.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

namespace tessera::comm::test {

using namespace std::chrono_literals;

enum class Implementation { loopback, automatic, mpi_only, recording, staged, single_rank, nccl };

inline std::string name_of(Implementation which) {
  switch (which) {
    case Implementation::loopback:
      return "Loopback";
    case Implementation::automatic:
      return "Automatic";
    case Implementation::mpi_only:
      return "MpiOnly";
    case Implementation::recording:
      return "Recording";
    case Implementation::staged:
      return "Staged";
    case Implementation::single_rank:
      return "SingleRank";
    case Implementation::nccl:
      return "Nccl";
  }
  return {};
}

inline std::unique_ptr<Collectives> make(Implementation which) {
  auto const& session = tessera::test::session();
  switch (which) {
    case Implementation::loopback:
      return make_loopback();
    case Implementation::automatic:
      return make_mpi(session, 60s);
    case Implementation::mpi_only:
      return make_mpi(session, 60s, NodeTransport::mpi_only);
    case Implementation::recording:
      return make_recording(make_mpi(session, 60s));
    case Implementation::staged:
      return make_device(make_mpi(session, 60s), 60s, DeviceTransport::staged);  // on a fake device
    case Implementation::single_rank:
      return make_device(make_mpi(session, 60s), 60s, DeviceTransport::single_rank);
    case Implementation::nccl:
      return make_device(make_mpi(session, 60s), 60s,
                         DeviceTransport::nccl);  // a fake one, on a fake device
  }
  return nullptr;
}

/// Replaces what the flight recorder keeps by operations of the host: events of a device must end
/// before it.
inline void forget_events() {
  auto const host = make_loopback();
  for (std::size_t i = 0; i < FlightRecorder::capacity; ++i) host->barrier();
}

/// Calls f with a value of the C++ type of @p dtype.
template <class F>
auto with_type(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::fp16:
      return f(float16{});
    case Dtype::bf16:
      return f(bfloat16{});
    case Dtype::fp64:
      return f(double{});
    case Dtype::int32:
      return f(std::int32_t{});
    case Dtype::int64:
      return f(std::int64_t{});
    case Dtype::uint8:
      return f(std::uint8_t{});
    case Dtype::fp32:
      break;
  }
  return f(float{});
}

/// What @p value becomes when stored as @p dtype.
inline double rounded(double value, Dtype dtype) {
  return with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
      return static_cast<double>(static_cast<float>(T(static_cast<float>(value))));
    else
      return static_cast<double>(static_cast<T>(value));
  });
}

/// Rounds as the accumulator of a reduction of @p dtype does.
inline double accumulated(double value, Dtype dtype) {
  return size_of(dtype) == 8 || dtype == Dtype::int32
             ? value
             : static_cast<double>(static_cast<float>(value));
}

enum class Placement { allocated, ordinary };

/// Elements of a run-time type, read and written as doubles.
class Array {
 public:
  Array(Collectives& comm, Placement placement, Dtype dtype, std::int64_t numel)
      : dtype_(dtype), numel_(numel) {
    std::size_t const bytes = static_cast<std::size_t>(numel) * size_of(dtype);
    if (placement == Placement::allocated) {
      owner_ = comm.allocate("test.array", memory::Purpose::workspace, bytes);
      data_ = owner_.get();
    } else {
      ordinary_.resize(bytes + 1);
      data_ = ordinary_.data();
    }
  }
  memory::TensorView view() const { return {data_, dtype_, {numel_}}; }
  memory::TensorView view(std::int64_t begin, std::int64_t count) const {
    return view().rows(begin, count);
  }
  std::int64_t numel() const { return numel_; }
  double operator[](std::int64_t i) const {
    return with_type(dtype_, [&](auto zero) {
      return static_cast<double>(static_cast<decltype(zero) const*>(data_)[i]);
    });
  }
  void set(std::int64_t i, double value) {
    with_type(dtype_, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
        static_cast<T*>(data_)[i] = T(static_cast<float>(value));
      else
        static_cast<T*>(data_)[i] = static_cast<T>(value);
    });
  }
  template <class F>
  void fill(F&& f) {
    for (std::int64_t i = 0; i < numel_; ++i) set(i, f(i));
  }

 private:
  Dtype dtype_;
  std::int64_t numel_;
  std::shared_ptr<void> owner_;
  std::vector<std::byte> ordinary_;
  void* data_ = nullptr;
};

/// Value of element i on a rank, exact in every dtype; sums of several are not exact in 16 bits.
inline double element(int rank, std::int64_t i) {
  return static_cast<double>((i * 37 + rank * 101) % 251 - 90);
}

/// The serial formula: the sum over ranks, exact in the accumulator's precision in any order.
inline double serial_sum(int ranks, std::int64_t i, Dtype dtype) {
  double sum = element(0, i);
  for (int q = 1; q < ranks; ++q) sum = accumulated(sum + element(q, i), dtype);
  return sum;
}

/// The sum over @p ranks of the job: of each node, rounded to the type on the wire when there are
/// several nodes, then of the nodes.
inline double sum_by_node(std::vector<int> const& ranks, std::int64_t i, Dtype dtype) {
  auto const& nodes = tessera::test::session().nodes();
  std::vector<std::pair<topology::NodeIndex, double>> sums;
  for (int const rank : ranks) {
    auto const node = nodes[static_cast<std::size_t>(rank)];
    auto const found =
        std::find_if(sums.begin(), sums.end(), [&](auto const& sum) { return sum.first == node; });
    if (found == sums.end())
      sums.emplace_back(node, element(rank, i));
    else
      found->second = accumulated(found->second + element(rank, i), dtype);
  }
  double total = 0.0;
  for (auto const& [node, sum] : sums)
    total = accumulated(total + (sums.size() > 1 ? rounded(sum, dtype) : sum), dtype);
  return total;
}

/// The sum over @p ranks of the job as a binary tree, every partial sum rounded to the type.
inline double sum_on_wire(std::span<int const> ranks, std::int64_t i, Dtype dtype) {
  if (ranks.size() == 1) return element(ranks[0], i);
  auto const half = std::bit_ceil(ranks.size()) / 2;
  return rounded(
      sum_on_wire(ranks.first(half), i, dtype) + sum_on_wire(ranks.subspan(half), i, dtype), dtype);
}

}  // namespace tessera::comm::test
