#pragma once
/// What a piece of work launches. By it Queue::run_as_graph() finds out that a kept device graph
/// holds the same work.

#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/memory/queue.hpp"

namespace tessera::memory {

/// The launches of a piece of work, in their order: each kernel and every byte that it is given
/// (addresses, sizes, scalars). Work with equal records does the same on the same memory.
class LaunchRecord {
 public:
  enum class Mode {
    keep_launches,  ///< they are launched, too
    leave_out       ///< they are only compared
  };
  /// A launch as note_operands() has described it.
  struct Launch {
    char const* kernel = "";
    std::size_t bytes = 0;  ///< bytes of the operands that it reads and writes
  };
  explicit LaunchRecord(Mode mode = Mode::keep_launches) : mode_(mode) {}

  void describe_next(Launch const& launch) { next_ = launch; }
  void begin_launch() { launches_.push_back(std::exchange(next_, {})); }
  std::vector<Launch> const& launches() const { return launches_; }

  void add(void const* data, std::size_t bytes) {
    auto const* const first = static_cast<std::byte const*>(data);
    bytes_.insert(bytes_.end(), first, first + bytes);
  }
  /// Records a launch with operands that are no plain bytes: the record equals no other, not even
  /// itself.
  void add_unknown() { is_complete_ = false; }
  Mode mode() const { return mode_; }
  /// Returns the record of the run_as_graph() in progress on @p q and this thread; else null.
  static LaunchRecord* of(Queue const& q) { return active_on_ == &q ? active_ : nullptr; }
  bool equals(LaunchRecord const& other) const {
    return is_complete_ && other.is_complete_ && bytes_ == other.bytes_;
  }
  std::vector<std::byte> const& bytes() const { return bytes_; }

  /// Makes a record that of @p q on this thread.
  class Scope {
   public:
    Scope(Queue const& q, LaunchRecord& record) : queue_(active_on_), record_(active_) {
      active_on_ = &q;
      active_ = &record;
    }
    ~Scope() {
      active_on_ = queue_;
      active_ = record_;
    }
    Scope(Scope const&) = delete;

   private:
    Queue const* queue_;
    LaunchRecord* record_;
  };

 private:
  static inline thread_local Queue const* active_on_ = nullptr;
  static inline thread_local LaunchRecord* active_ = nullptr;

  Mode mode_;
  bool is_complete_ = true;
  std::vector<std::byte> bytes_;
  Launch next_{};
  std::vector<Launch> launches_;
};

/// Describes the next launch on @p q to its record, if there is one: so the bytes that kernels move
/// are counted without a device.
/// @param kernel a literal
inline void note_bytes(Queue const& q, char const* kernel, std::size_t bytes) {
  if (LaunchRecord* const record = LaunchRecord::of(q)) record->describe_next({kernel, bytes});
}
/// An operand that is read and written is named twice.
template <class... Views>
void note_operands(Queue const& q, char const* kernel, Views const&... operands) {
  note_bytes(q, kernel, (operands.bytes() + ... + std::size_t{0}));
}

namespace detail {

/// Its address identifies a kernel.
template <class Kernel>
inline constexpr char kernel_identity = 0;

template <class Value>
void add_value(LaunchRecord& record, Value const& value) {
  if constexpr (std::is_trivially_copyable_v<Value>) {
    Value copy(value);
    // Where a compiler cannot clear it, equal values may compare different: the work is captured.
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(std::addressof(copy));
#endif
    record.add(std::addressof(copy), sizeof copy);
  } else {
    record.add_unknown();
  }
}

}  // namespace detail

/// Call it before each launch on @p q. True: leave the launch out, because run_as_graph() only
/// compares launches. A launch without this call is correct, and work with such launches is
/// captured each time.
/// @tparam Kernel a type of this kernel only, as its rule
/// @param given everything that the kernel is given; values, whose pointers are to memory of the
/// device
template <class Kernel, class... Given>
bool leave_out(Queue& q, Given const&... given) {
  LaunchRecord* const record = LaunchRecord::of(q);
  if (!record) return false;
  record->begin_launch();
  void const* const kernel = &detail::kernel_identity<Kernel>;
  record->add(&kernel, sizeof kernel);
  (detail::add_value(*record, given), ...);
  return record->mode() == LaunchRecord::Mode::leave_out;
}

}  // namespace tessera::memory
