#pragma once
/// The work of a planned step: what it would compute, copy and send, in which order. Recorded from
/// the code that enqueues the work in a run, while its queues and collectives only plan.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/dtype.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::memory {

/// A piece of work of one queue, which starts after the queue's previous piece.
struct PlannedWork {
  enum class Kind {
    wait,       ///< takes no time
    product,    ///< product of matrices, op(a) [m, k] by op(b) [k, n]
    attention,  ///< scores and weighted values of m queries by n keys, heads of k
    update,     ///< update of the optimizer: `bytes` read and written
    copy,       ///< `bytes` from one memory space to another, or within one
    read,       ///< from a drive
    write,      ///< to a drive
    collective
  };
  Kind kind = Kind::wait;
  Dtype dtype = Dtype::fp32;  ///< dtype of operands, or on the wire
  int queue = 0;
  std::int64_t m = 0, n = 0, k = 0;
  double flops = 0.0;
  std::size_t bytes = 0;  ///< bytes of a collective: data of all ranks, N c s or n s
  std::size_t sent = 0;  ///< sent bytes of a collective: by this rank, as a CollectiveRecord counts
  char const* name = "";     ///< "all_gather"
  std::string group{};       ///< group of a collective: its group's name; empty: all ranks
  int ranks = 0;             ///< ranks of the group
  std::vector<int> after{};  ///< earlier pieces, of any queue, that have to finish first
};
std::string_view name_of(PlannedWork::Kind kind);

/// Collects the work that this thread enqueues on queues that only plan (PlanningQueue), while it
/// lives. One at a time per thread.
class WorkTrace {
 public:
  WorkTrace();
  ~WorkTrace();
  WorkTrace(WorkTrace const&) = delete;
  WorkTrace& operator=(WorkTrace const&) = delete;
  /// Returns the trace of this thread; null: nothing is recorded.
  static WorkTrace* active();

  /// Appends a piece of work to the queue of that name.
  void add(std::string_view queue, PlannedWork work);
  void add(Queue const& queue, PlannedWork work) { add(queue.name(), std::move(work)); }
  /// Later work of the queue starts after @p event.
  void wait(std::string_view queue, Event const& event);
  /// An event that happens when the queue's work so far has finished.
  Event record(std::string_view queue);
  /// The thread that enqueues waits for @p event: all work that it enqueues later starts after it.
  void wait_on_host(Event const& event);
  /// Happens when all of @p events have happened.
  Event join(std::vector<Event> const& events);
  /// Work of this queue runs in the thread that enqueues: other queues get later work only after
  /// it.
  void run_inline(std::string_view queue);

  std::vector<PlannedWork> const& work() const { return work_; }
  /// The work so far; what is recorded afterwards means nothing.
  std::vector<PlannedWork> take_work() { return std::move(work_); }
  std::vector<std::string> const& queues() const { return queues_; }

 private:
  struct Position {
    int last = -1;               ///< its last piece of work
    int host = -1;               ///< the last wait of the host that its work has seen
    std::vector<int> awaited{};  ///< by its next piece
  };
  int index_of(std::string_view queue);

  std::vector<PlannedWork> work_;
  std::vector<std::string> queues_;
  std::vector<Position> positions_;
  int host_ = -1;    ///< last piece that the enqueuing thread has waited for
  int inline_ = -1;  ///< queue of run_inline()
  WorkTrace* outer_ = nullptr;
};

}  // namespace tessera::memory
