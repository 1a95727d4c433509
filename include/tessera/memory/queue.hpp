#pragma once
/// Ordered queues of work. Order between two queues is by events only, as between device streams.
///
/// One interface, three kinds: `stream` is a device stream; `worker` is a host thread
/// (communication, host copies, disk); `inline_host` runs each task in the caller (the compute
/// queue of the host: Kokkos kernels use all its threads).

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tessera::memory {

/// A point in the work of a queue, like a CUDA event. Copyable. A default-constructed event has
/// happened.
class Event {
 public:
  class State;
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// True when the queue has executed all work before this point. Does not block.
  bool done() const;
  /// Blocks the calling thread until the event has happened, at most for @p time. Returns true when
  /// it has. Does not report errors.
  bool wait_for(std::chrono::milliseconds time) const;
  /// Blocks the calling thread and rethrows the first error of the work before the event.
  /// @throws PeerLostError naming @p what after @p deadline
  void wait(std::string_view what, std::chrono::milliseconds deadline) const;
  std::shared_ptr<State> const& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

/// Seconds that the calling thread has been blocked by events, inline queues included: what was not
/// hidden behind its own work.
double seconds_waited();
/// Adds the time of a call in which this thread has waited for other ranks itself.
void add_waited(double seconds);

/// Where a queue runs its work: in the calling thread, in a thread of its own, or in a device
/// stream.
enum class QueueKind { inline_host, worker, stream };

/// Work that runs in the order in which it was enqueued.
class Queue {
 public:
  virtual ~Queue() = default;
  virtual QueueKind kind() const = 0;
  virtual std::string_view name() const = 0;

  /// Enqueues a host function. On a stream it runs on a host thread in stream order
  /// (cudaLaunchHostFunc) and must not call the device. After a task has thrown, the queue drops
  /// its later tasks, and every later event reports that error.
  virtual void submit(std::function<void()> task) = 0;
  /// An event that happens when all work enqueued so far has executed.
  virtual Event record() = 0;
  /// Work enqueued from now on starts after @p event. Only an inline queue blocks the caller.
  virtual void wait(Event const& event) = 0;
  /// Calls @p work, which enqueues work on this queue. A stream queue with GraphMode::capture
  /// launches that work as one device graph: a kept one, or a captured one (see launch_record.hpp).
  /// @param shape identifies the kept graphs: under one name @p work must always enqueue the same
  /// sequence of kernels; their sizes and operands may differ
  /// @param work may be called twice; then the second call counts. It must not record events, wait
  /// for events or allocate device memory after its first call for @p shape
  virtual void run_as_graph(std::string const& shape, std::function<void()> const& work) {
    (void)shape;
    work();
  }
  /// cudaStream_t of a stream queue, else null.
  virtual void* native_stream() const { return nullptr; }
};

std::unique_ptr<Queue> make_inline_queue(std::string name);
std::unique_ptr<Queue> make_worker_queue(std::string name);

}  // namespace tessera::memory
