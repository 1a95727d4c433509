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
    for (auto const& [shape, graph] : graphs_)
      if (graph) api_.destroy_graph(graph);
    detail::device_memory().close(stream_);
    api_.release_stream(stream_);
  }

  QueueKind kind() const override { return QueueKind::stream; }
  std::string_view name() const override { return name_; }
  void* native_stream() const override { return stream_; }

  void submit(std::function<void()> task) override {
    FinishedCalls::of_process().destroy();
    auto call = std::make_unique<HostCall>(HostCall{std::move(task), failure_});
    api_.call_host(stream_, &run_host_call, call.get());
    if (capturing_.empty())
      call.release();  // owned by the stream, then by FinishedCalls
    else
      captured_calls_.push_back(std::move(call));
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
    auto const [found, is_new] = graphs_.try_emplace(shape, nullptr);
    if (is_new) return work();
    detail::DeviceMemory::CaptureScope const scope(detail::device_memory(),
                                                   stream_);  // until the graph is launched
    api_.begin_capture(stream_);
    capturing_ = shape;
    try {
      work();
    } catch (...) {
      api_.abandon_capture(stream_);
      capturing_.clear();
      captured_calls_.clear();  // no graph will call them
      throw;
    }
    capturing_.clear();
    auto calls = std::exchange(captured_calls_, {});
    api_.launch_captured(stream_, found->second);
    for (auto& call : calls) call.release();  // owned by the stream, as above
  }

 private:
  void expect_no_capture(char const* what) const {
    TESSERA_VALIDATE(capturing_.empty(), InternalError, what, " on the stream ", name_,
                     " during the CUDA graph capture of '", capturing_,
                     "'; a graph holds work of one stream only");
  }
  static void run_host_call(void* argument) {
    auto* const call = static_cast<HostCall*>(argument);
    try {
      if (!call->failure->get()) call->task();
    } catch (...) {
      call->failure->set(std::current_exception());
    }
    FinishedCalls::of_process().add(call);
  }

  std::string name_;
  DeviceApi& api_;
  std::shared_ptr<EventPool> pool_;
  std::shared_ptr<Failure> failure_;
  DeviceApi::Stream stream_;
  GraphMode graph_mode_;
  std::map<std::string, DeviceApi::Graph> graphs_;  ///< by shape; null until the second call
  std::string capturing_;  ///< shape of the capture in progress; else empty
  std::vector<std::unique_ptr<HostCall>> captured_calls_;  ///< of the capture in progress
};

}  // namespace

std::unique_ptr<Queue> make_stream_queue(std::string name, StreamPriority priority,
                                         GraphMode graph_mode) {
  // an engine that is only planned does no work
  if (BufferPlanning::active())
    return std::make_unique<PlanningQueue>(MemorySpace::device, std::move(name));
  return std::make_unique<StreamQueue>(std::move(name), priority, graph_mode);
}

}  // namespace tessera::memory
