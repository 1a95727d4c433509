#pragma once
/// A queue is an ordered lane of work; order between queues is by events only.
///
/// Three kinds stand behind one type: `inline` runs each task in the caller (the compute queue of
/// the host: Kokkos kernels use all its threads), `worker` is a host thread (communication, host
/// copies, disk), `stream` is a CUDA stream.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tessera::memory {

/// A point in a queue's work. Copyable; a default-constructed event has happened.
class Event {
 public:
  class State;
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool done() const;
  /// Blocks until the event has happened, at most for @p time; true when it has. Reports no errors.
  bool wait_for(std::chrono::milliseconds time) const;
  /// Blocks the calling host thread; rethrows what the work before the event threw.
  /// @throws PeerLostError naming @p what after @p deadline.
  void wait(std::string_view what, std::chrono::milliseconds deadline) const;
  std::shared_ptr<State> const& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

enum class QueueKind { inline_host, worker, stream };

class Queue {
 public:
  virtual ~Queue() = default;
  virtual QueueKind kind() const = 0;
  virtual std::string_view name() const = 0;

  /// Adds host work. On a stream queue the work runs on the host in stream order. After a task has
  /// thrown, later tasks of the queue are dropped and every later event reports that error.
  virtual void submit(std::function<void()> task) = 0;
  /// The point after all work added so far.
  virtual Event record() = 0;
  /// Work added from now on starts after @p event. Never blocks the caller, except on an inline
  /// queue, whose caller is the lane.
  virtual void wait(Event const& event) = 0;
  /// Runs @p work, which adds work to this queue; a stream queue made for it (GraphMode::capture)
  /// collects that and adds it as one graph.
  /// @p work neither records nor waits nor takes memory of the device from the second time on. @p
  /// shape names what it adds: for the same name the same sequence of kernels, whatever their sizes
  /// and operands, so that one executable graph serves all.
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
