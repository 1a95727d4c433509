#include "tessera/memory/stream_queue.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "detail/device_memory.hpp"
#include "detail/event_state.hpp"
#include "detail/kept_graphs.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::memory {
namespace {

using detail::DeviceApi;

/// Reuses events of the device runtime.
class EventPool {
 public:
  explicit EventPool(DeviceApi& api) : api_(api) {}
  ~EventPool() {
    for (auto event : free_) api_.destroy_event(event);
  }
  DeviceApi::Event take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return api_.make_event();
    auto const event = free_.back();
    free_.pop_back();
    return event;
  }
  void release(DeviceApi::Event event) {
    std::lock_guard lock(mutex_);
    free_.push_back(event);
  }
  DeviceApi& api() const { return api_; }

 private:
  DeviceApi& api_;
  std::mutex mutex_;
  std::vector<DeviceApi::Event> free_;
};

/// The first error that a host task of a stream has thrown.
class Failure {
 public:
  void set(std::exception_ptr error) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  std::exception_ptr get() const {
    std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

/// A task of a stream.
struct HostCall {
  std::function<void()> task;
  std::shared_ptr<Failure> failure;
  HostCall* next = nullptr;  ///< in FinishedCalls
};

/// Calls that streams have made. They are destroyed by threads that use a queue: what a task holds
/// may end with calls of the device, which a function called by a stream must not make ("CUDA
/// Runtime API", cudaLaunchHostFunc).
class FinishedCalls {
 public:
  static FinishedCalls& of_process() {
    static FinishedCalls& calls = *new FinishedCalls;  // streams outlive their queues
    return calls;
  }
  void add(HostCall* call) noexcept {
    call->next = first_;
    while (!first_.compare_exchange_weak(call->next, call)) {
    }
  }
  void destroy() noexcept {
    for (HostCall* call = first_.exchange(nullptr); call;) delete std::exchange(call, call->next);
  }

 private:
  std::atomic<HostCall*> first_{nullptr};
};

class StreamPoint final : public Event::State {
 public:
  StreamPoint(std::shared_ptr<EventPool> pool, std::shared_ptr<Failure> failure)
      : pool_(std::move(pool)), failure_(std::move(failure)), event_(pool_->take()) {}
  ~StreamPoint() override { pool_->release(event_); }
  bool done() const override { return pool_->api().happened(event_); }
  /// Polls: spins at first, then sleeps between queries to leave the core to other threads.
  bool wait_for(std::chrono::milliseconds time) const override {
    auto const start = std::chrono::steady_clock::now();
    auto const limit = std::min(time, detail::longest_wait);
    while (!done()) {
      auto const waited = std::chrono::steady_clock::now() - start;
      if (waited >= limit) return false;
      if (waited < std::chrono::microseconds(200))
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
  }
  void rethrow() const override {
    if (auto const error = failure_->get()) std::rethrow_exception(error);
  }
  void* native() const override { return event_; }

 private:
  std::shared_ptr<EventPool> pool_;
  std::shared_ptr<Failure> failure_;
  DeviceApi::Event event_;
};

struct Counters {
  std::atomic<std::int64_t> replayed{0}, updated{0}, captured{0}, separate{0};
  static Counters& of_process() {
    static Counters counters;
    return counters;
  }
};

class StreamQueue final : public Queue {
 public:
  StreamQueue(std::string name, StreamPriority priority, GraphMode graph_mode)
      : name_(std::move(name)),
        api_(detail::device_api()),
        pool_(std::make_shared<EventPool>(api_)),
        failure_(std::make_shared<Failure>()),
        stream_(api_.make_stream(priority)),
        graph_mode_(graph_mode) {
    detail::device_memory().open(stream_);
  }
  ~StreamQueue() override {
    FinishedCalls::of_process().destroy();
    release_graphs();
    detail::device_memory().close(stream_);
    api_.release_stream(stream_);
  }

  QueueKind kind() const override { return QueueKind::stream; }
  std::string_view name() const override { return name_; }
  void* native_stream() const override { return stream_; }

  void submit(std::function<void()> task) override {
    FinishedCalls::of_process().destroy();
    auto call = std::make_unique<HostCall>(HostCall{std::move(task), failure_});
    if (capturing_.empty()) {
      api_.call_host(stream_, &run_host_call_once, call.get());
      (void)call.release();  // owned by the stream, then by FinishedCalls
    } else {
      api_.call_host(stream_, &run_host_call, call.get());
      captured_calls_.push_back(std::move(call));
    }
  }
  Event record() override {
    expect_no_capture("an event is recorded");
    FinishedCalls::of_process().destroy();
    auto point = std::make_shared<StreamPoint>(pool_, failure_);
    api_.record(point->native(), stream_);
    return Event(std::move(point));
  }
  void wait(Event const& event) override {
    if (!event.state()) return;
    expect_no_capture("an event is waited for");
    if (void* const native = event.state()->native()) return api_.wait(stream_, native);
    event.state()->wait();
  }

  /// The first call for a shape is not captured: it allocates workspaces and library plans.
  void run_as_graph(std::string const& shape, std::function<void()> const& work) override {
    if (graph_mode_ == GraphMode::off) return work();
    auto const [found, is_new] = graphs_.try_emplace(shape);
    if (is_new) {
      ++Counters::of_process().separate;
      return work();
    }
    detail::DeviceMemory::CaptureScope const scope(detail::device_memory(),
                                                   stream_);  // until the graph is launched
    auto& kept = found->second;
    if (!kept.are_likely_to_match() || !replay(shape, kept, work))
      capture_and_launch(shape, kept, work);
  }

 private:
  using HostCalls = std::vector<std::unique_ptr<HostCall>>;

  void expect_no_capture(char const* what) const {
    TESSERA_VALIDATE(capturing_.empty(), InternalError, what, " on the stream ", name_,
                     " during the graph capture of '", capturing_,
                     "'; a graph holds work of one stream only");
  }
  /// Launches a kept graph with the launches of @p work. The comparison is a capture as well, in
  /// which every launch that is recorded is left out: what it still holds was launched unrecorded.
  /// @return false, and nothing is launched, when there is no such graph
  bool replay(std::string const& shape, detail::KeptGraphs& kept,
              std::function<void()> const& work) {
    LaunchRecord const launches = capture(shape, LaunchRecord::Mode::leave_out, work);
    bool const all_are_recorded = api_.abandon_capture(stream_);
    captured_calls_.clear();
    if (!all_are_recorded) kept.stop_comparing();
    detail::KeptGraph* const same = all_are_recorded ? kept.find(launches) : nullptr;
    if (!same) return false;
    api_.launch_graph(stream_, same->graph);
    ++Counters::of_process().replayed;
    return true;
  }
  void capture_and_launch(std::string const& shape, detail::KeptGraphs& kept,
                          std::function<void()> const& work) {
    LaunchRecord launches = capture(shape, LaunchRecord::Mode::keep_launches, work);
    std::shared_ptr<HostCalls> calls;  // null without any: releasing them costs a host call
    if (!captured_calls_.empty())
      calls = std::make_shared<HostCalls>(std::exchange(captured_calls_, {}));
    detail::KeptGraph& graph = kept.place_for(launches);
    auto const how = api_.launch_captured(stream_, graph.graph);
    graph.launches = std::move(launches);
    release_after_work(std::exchange(graph.host_calls, std::move(calls)));
    auto& counters = Counters::of_process();
    ++(how == DeviceApi::Captured::updated ? counters.updated : counters.captured);
  }
  /// @p work under capture, which the caller ends.
  LaunchRecord capture(std::string const& shape, LaunchRecord::Mode mode,
                       std::function<void()> const& work) {
    api_.begin_capture(stream_);
    capturing_ = shape;
    LaunchRecord launches(mode);
    try {
      LaunchRecord::Scope const scope(*this, launches);
      work();
    } catch (...) {
      api_.abandon_capture(stream_);
      capturing_.clear();
      captured_calls_.clear();  // no graph will call them
      throw;
    }
    capturing_.clear();
    return launches;
  }
  static void run_host_call(void* argument) {
    auto const* const call = static_cast<HostCall const*>(argument);
    try {
      if (!call->failure->get()) call->task();
    } catch (...) {
      call->failure->set(std::current_exception());
    }
  }
  static void run_host_call_once(void* argument) {
    run_host_call(argument);
    FinishedCalls::of_process().add(static_cast<HostCall*>(argument));
  }
  void release_graphs() noexcept {
    for (auto const& [shape, kept] : graphs_)
      for (auto const& graph : kept.graphs()) {
        if (graph.graph) api_.destroy_graph(graph.graph);
        try {
          release_after_work(graph.host_calls);
        } catch (...) {
          // the device has failed: its streams have stopped
        }
      }
  }
  /// A launch that calls them may be in flight.
  void release_after_work(std::shared_ptr<void const> host_calls) {
    if (host_calls) submit([host_calls = std::move(host_calls)] {});
  }

  std::string name_;
  DeviceApi& api_;
  std::shared_ptr<EventPool> pool_;
  std::shared_ptr<Failure> failure_;
  DeviceApi::Stream stream_;
  GraphMode graph_mode_;
  std::map<std::string, detail::KeptGraphs> graphs_;  ///< by shape
  std::string capturing_;     ///< shape of the capture in progress; else empty
  HostCalls captured_calls_;  ///< calls of the capture in progress
};

}  // namespace

GraphLaunches operator-(GraphLaunches const& now, GraphLaunches const& before) {
  return {now.replayed - before.replayed, now.updated - before.updated,
          now.captured - before.captured, now.separate - before.separate};
}

GraphLaunches graph_launches_of_process() {
  auto const& counters = Counters::of_process();
  return {counters.replayed, counters.updated, counters.captured, counters.separate};
}

std::unique_ptr<Queue> make_stream_queue(std::string name, StreamPriority priority,
                                         GraphMode graph_mode) {
  // an engine that is only planned does no work
  if (BufferPlanning::active())
    return std::make_unique<PlanningQueue>(MemorySpace::device, std::move(name));
  return std::make_unique<StreamQueue>(std::move(name), priority, graph_mode);
}

}  // namespace tessera::memory
