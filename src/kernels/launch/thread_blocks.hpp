#pragma once
/// Thread blocks of a device on the host. Only tests have them: every thread of a block has a stack
/// of its own there and waits where the rule waits, so launches on streams take the team sizes
/// of a GPU.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace tessera::kernels::detail {

/// A thread of a block, for rules that are called as rule(team, index) with scratch memory.
class BlockThread {
 public:
  virtual ~BlockThread() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual float* scratch() const = 0;
  virtual void barrier() const = 0;
  /// Memory of a thread that the others read after a barrier; `slot_bytes` of it.
  virtual void* slot(int rank) const = 0;
  static constexpr std::size_t slot_bytes = 64;
  template <int N>
  void exchange(float const (&value)[N], int mask, float (&other)[N]) const {
    static_assert(sizeof value <= slot_bytes);
    swap_in_warp(value, mask, other, sizeof value);
  }

 protected:
  /// @p other gets the value of the thread rank() ^ mask; all threads of the warp call it.
  virtual void swap_in_warp(void const* value, int mask, void* other, std::size_t bytes) const = 0;
};

/// The threads of a block that share a row, as ThreadTeam.
struct BlockTeam {
  static constexpr int chunk = 4;
  BlockThread const& thread;
  std::int64_t rank() const { return thread.rank(); }
  std::int64_t size() const { return thread.size(); }
  template <class T>
  T sum(T value) const {
    return combine(value, [](T a, T b) { return a + b; });
  }
  float max(float value) const {
    return combine(value, [](float a, float b) { return a > b ? a : b; });
  }

 private:
  template <class T, class Combine>
  T combine(T const& value, Combine const& with) const {
    static_assert(sizeof value <= BlockThread::slot_bytes);
    std::memcpy(thread.slot(thread.rank()), &value, sizeof value);
    thread.barrier();
    T out, next;
    std::memcpy(&out, thread.slot(0), sizeof out);
    for (int rank = 1; rank < thread.size(); ++rank) {
      std::memcpy(&next, thread.slot(rank), sizeof next);
      out = with(out, next);
    }
    thread.barrier();
    return out;
  }
};

class ThreadBlocks {
 public:
  using Call = std::function<void(BlockThread const&, std::int64_t block)>;
  virtual ~ThreadBlocks() = default;
  virtual int threads_per_row() const = 0;
  /// Whether launches on other queues than streams run in blocks, too.
  virtual bool take_every_queue() const = 0;
  /// Calls in every thread of every block, each block with scratch of its own.
  virtual void run(int threads, std::int64_t blocks, std::size_t scratch_floats,
                   Call const& call) = 0;

  /// Null unless a test has set them.
  static inline ThreadBlocks* of_test = nullptr;
};

}  // namespace tessera::kernels::detail
