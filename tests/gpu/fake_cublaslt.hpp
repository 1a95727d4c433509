#pragma once
/// cuBLASLt on host memory with the rules of its manual: what a test sees of it and tells it to
/// refuse. The library computes by plain loops in double; streams are queues of host threads
/// (fake_device.hpp).

#include <atomic>
#include <cstdint>
#include <set>
#include <string>

namespace tessera::test {

struct FakeCublasLt {
  // what there is
  std::atomic<int> handles{0}, descriptors{0}, layouts{0}, preferences{0};
  // what was asked
  std::atomic<int> heuristics{0}, products{0};
  // settings of the latest product
  std::atomic<std::uint32_t> epilogue{0}, reduction{0}, compute{0};
  std::atomic<std::int32_t> multiprocessors{0};
  /// The first rule that was broken; the call that broke it has returned an error.
  std::string complaint;

  // what the next heuristics do
  std::set<std::uint32_t> refused_epilogues;  ///< no algorithm for these (cublasLtEpilogue_t)
  int unfit_candidates = 0;  ///< candidates at the front that this device does not accept
  bool all_unfit = false;
  int next_status = 0;  ///< not 0: the next product ends with this cublasStatus_t
};

/// Exported by the fake library under this name.
using FakeCublasLtState = FakeCublasLt*();
inline constexpr char const* fake_cublaslt_state = "tessera_fake_cublaslt";

}  // namespace tessera::test
