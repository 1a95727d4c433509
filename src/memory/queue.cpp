#include "tessera/memory/queue.hpp"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "detail/event_state.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::memory {

namespace {

thread_local double waited = 0.0;

/// Adds the time of @p block to what this thread has waited.
template <class Block>
auto counted(Event::State& state, Block const& block) {
  if (state.done()) return block();
  struct Clocked {
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    ~Clocked() {
      waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
  } const clocked;
  return block();
}

}  // namespace

double seconds_waited() { return waited; }
void add_waited(double seconds) { waited += seconds; }

bool Event::wait_for(std::chrono::milliseconds time) const {
  return !state_ || counted(*state_, [&] { return state_->wait_for(time); });
}
bool Event::done() const { return !state_ || state_->done(); }
void Event::wait(std::string_view what, std::chrono::milliseconds deadline) const {
  if (!state_) return;
  if (!wait_for(deadline))
    throw PeerLostError(-1, concat(what, " did not finish within ", deadline_text(deadline)));
  state_->rethrow();
}

namespace {

class InlineQueue final : public Queue {
 public:
  explicit InlineQueue(std::string name) : name_(std::move(name)) {}
  QueueKind kind() const override { return QueueKind::inline_host; }
  std::string_view name() const override { return name_; }
  void submit(std::function<void()> task) override { task(); }
  Event record() override { return {}; }
  void wait(Event const& event) override {
    if (auto const& state = event.state()) counted(*state, [&] { state->wait(); });
  }

 private:
  std::string name_;
};

class WorkerQueue final : public Queue {
 public:
  explicit WorkerQueue(std::string name) : name_(std::move(name)), thread_([this] { run(); }) {}
  ~WorkerQueue() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  QueueKind kind() const override { return QueueKind::worker; }
  std::string_view name() const override { return name_; }
  void submit(std::function<void()> task) override { add({std::move(task), nullptr}); }
  Event record() override {
    auto state = std::make_shared<detail::HostPoint>();
    add({nullptr, state});
    return Event(std::move(state));
  }
  void wait(Event const& event) override {
    if (event.state())
      submit([state = event.state()] {
        state->wait();
      });  // waits even when it has happened: it may carry an error
  }

 private:
  struct Entry {
    std::function<void()> task;                ///< work, or
    std::shared_ptr<detail::HostPoint> point;  ///< a recorded event
  };
  void add(Entry entry) {
    {
      std::lock_guard lock(mutex_);
      entries_.push_back(std::move(entry));
    }
    changed_.notify_one();
  }
  void run() {
    use_allowed_cores();
    pthread_setname_np(
        pthread_self(),
        name_.substr(0, 15)
            .c_str());  // for debuggers and top; 15 characters are the system's limit
    std::exception_ptr failed;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !entries_.empty(); });
      if (entries_.empty()) return;
      Entry entry = std::move(entries_.front());
      entries_.pop_front();
      lock.unlock();
      if (entry.point) {
        entry.point->finish(failed);
      } else if (!failed) {
        try {
          entry.task();
        } catch (...) {
          failed = std::current_exception();
        }
      }
      entry = {};
      lock.lock();
    }
  }

  std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Queue> make_inline_queue(std::string name) {
  return std::make_unique<InlineQueue>(std::move(name));
}
std::unique_ptr<Queue> make_worker_queue(std::string name) {
  // an engine that is only planned does no work
  if (BufferPlanning::active())
    return std::make_unique<PlanningQueue>(MemorySpace::host, std::move(name));
  return std::make_unique<WorkerQueue>(std::move(name));
}

}  // namespace tessera::memory
