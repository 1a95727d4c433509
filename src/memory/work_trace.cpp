#include "tessera/memory/work_trace.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "detail/event_state.hpp"
#include "tessera/core/error.hpp"

namespace tessera::memory {
namespace {

thread_local WorkTrace* trace_of_thread = nullptr;

/// The end of a piece of planned work. It has happened for everybody, because nothing runs; a host
/// that waits for it is recorded.
class PlannedPoint final : public Event::State {
 public:
  explicit PlannedPoint(int work) : work_(work) {}
  int work() const { return work_; }
  bool done() const override { return true; }
  bool wait_for(std::chrono::milliseconds /*time*/) const override {
    if (auto* const trace = WorkTrace::active())
      trace->wait_on_host(Event(std::make_shared<PlannedPoint>(work_)));
    return true;
  }
  void rethrow() const override {}

 private:
  int work_;
};

/// The piece of work whose end @p event is; -1: none.
int work_of(Event const& event) {
  auto const* const point = dynamic_cast<PlannedPoint const*>(event.state().get());
  return point ? point->work() : -1;
}

}  // namespace

std::string_view name_of(PlannedWork::Kind kind) {
  static constexpr char const* names[] = {"wait", "product", "attention", "update",
                                          "copy", "read",    "write",     "collective"};
  return names[static_cast<std::size_t>(kind)];
}

WorkTrace::WorkTrace() : outer_(std::exchange(trace_of_thread, this)) {
  TESSERA_EXPECT(!outer_, "a thread records one trace at a time");
}
WorkTrace::~WorkTrace() { trace_of_thread = outer_; }
WorkTrace* WorkTrace::active() { return trace_of_thread; }

int WorkTrace::index_of(std::string_view queue) {
  auto const found = std::find(queues_.begin(), queues_.end(), queue);
  if (found != queues_.end()) return static_cast<int>(found - queues_.begin());
  queues_.emplace_back(queue);
  positions_.emplace_back();
  return static_cast<int>(queues_.size()) - 1;
}

void WorkTrace::add(std::string_view queue, PlannedWork work) {
  int const index = index_of(queue);
  auto& position = positions_[static_cast<std::size_t>(index)];
  work.queue = index;
  work.after.insert(work.after.end(), position.awaited.begin(), position.awaited.end());
  position.awaited.clear();
  if (position.last >= 0) work.after.push_back(position.last);
  if (position.host != host_) work.after.push_back(position.host = host_);
  if (inline_ >= 0 && index != inline_)
    if (int const last = positions_[static_cast<std::size_t>(inline_)].last; last >= 0)
      work.after.push_back(last);
  std::sort(work.after.begin(), work.after.end());
  work.after.erase(std::unique(work.after.begin(), work.after.end()), work.after.end());
  position.last = static_cast<int>(work_.size());
  work_.push_back(std::move(work));
}

void WorkTrace::wait(std::string_view queue, Event const& event) {
  int const work = work_of(event);
  if (work < 0) return;
  int const index = index_of(queue);
  auto& position = positions_[static_cast<std::size_t>(index)];
  if (work == position.last) return;
  position.awaited.push_back(work);
  if (index == inline_) add(queue, {});  // blocks the thread that enqueues
}

Event WorkTrace::record(std::string_view queue) {
  auto const& position = positions_[static_cast<std::size_t>(index_of(queue))];
  if (!position.awaited.empty()) add(queue, {});
  if (position.last < 0) return {};
  return Event(std::make_shared<PlannedPoint>(position.last));
}

void WorkTrace::wait_on_host(Event const& event) {
  int const work = work_of(event);
  if (work < 0 || work == host_) return;
  if (inline_ >= 0) return wait(queues_[static_cast<std::size_t>(inline_)], event);
  add("host", {.after = {work}});
  host_ = static_cast<int>(work_.size()) - 1;
}

Event WorkTrace::join(std::vector<Event> const& events) {
  PlannedWork join{.queue = index_of("joined")};
  for (auto const& event : events)
    if (int const work = work_of(event); work >= 0) join.after.push_back(work);
  if (join.after.empty()) return {};
  work_.push_back(std::move(join));
  return Event(std::make_shared<PlannedPoint>(static_cast<int>(work_.size()) - 1));
}

void WorkTrace::run_inline(std::string_view queue) { inline_ = index_of(queue); }

}  // namespace tessera::memory
