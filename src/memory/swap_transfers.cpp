#include "tessera/memory/swap_transfers.hpp"

#include <algorithm>
#include <chrono>
#include <functional>

#include "detail/disk_ring.hpp"
#include "detail/event_state.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/planning.hpp"
#include "tessera/memory/work_trace.hpp"

namespace tessera::memory {
namespace {

constexpr std::chrono::milliseconds transfer_deadline = std::chrono::minutes(10);

class JoinedEvents final : public Event::State {
 public:
  explicit JoinedEvents(std::vector<Event> events) : events_(std::move(events)) {}
  bool done() const override {
    return std::all_of(events_.begin(), events_.end(), [](Event const& e) { return e.done(); });
  }
  bool wait_for(std::chrono::milliseconds time) const override {
    auto const until = std::chrono::steady_clock::now() + time;
    return std::all_of(events_.begin(), events_.end(), [&](Event const& e) {
      auto const left = until - std::chrono::steady_clock::now();
      return e.wait_for(std::max(std::chrono::duration_cast<std::chrono::milliseconds>(left),
                                 std::chrono::milliseconds(0)));
    });
  }
  void rethrow() const override {
    for (auto const& event : events_)
      if (event.state()) event.state()->rethrow();
  }

 private:
  std::vector<Event> events_;
};

}  // namespace

class SwapTransfers::Engine {
 public:
  virtual ~Engine() = default;
  virtual Pending start(detail::DiskTransfer const& transfer) = 0;
  virtual void wait() const = 0;
};

namespace {

using detail::DiskTransfer;

/// Each thread calls pread or pwrite: queue_depth of them per direction.
class ThreadEngine final : public SwapTransfers::Engine {
 public:
  explicit ThreadEngine(SwapOptions const& options) : block_size_(options.block_size) {
    for (int i = 0; i < options.queue_depth; ++i) {
      readers_.push_back(make_worker_queue(concat("swap read ", i)));
      writers_.push_back(make_worker_queue(concat("swap write ", i)));
    }
  }
  SwapTransfers::Pending start(DiskTransfer const& transfer) override {
    auto& workers = transfer.access == SwapFile::Access::read ? readers_ : writers_;
    SwapTransfers::Pending pending;
    std::size_t const blocks = ceil_divide(transfer.bytes, block_size_);
    for (std::size_t worker = 0; worker < std::min(blocks, workers.size()); ++worker) {
      auto& queue = *workers[worker];
      order_before(queue, transfer.after);
      for (std::size_t i = worker; i < blocks; i += workers.size())
        queue.submit([this, transfer, i] { move_block(transfer, i * block_size_); });
      pending.push_back(queue.record());
    }
    return pending;
  }
  void wait() const override {
    for (auto const* workers : {&readers_, &writers_})
      for (auto const& queue : *workers)
        queue->record().wait("transfers of swap files", transfer_deadline);
  }

 private:
  void move_block(DiskTransfer const& transfer, std::size_t begin) const {
    std::size_t const bytes = std::min(block_size_, transfer.bytes - begin);
    if (transfer.access == SwapFile::Access::read)
      transfer.file->read(transfer.offset + begin, transfer.memory + begin, bytes);
    else
      transfer.file->write(transfer.offset + begin, transfer.memory + begin, bytes);
  }
  std::size_t block_size_;
  std::vector<std::unique_ptr<Queue>> readers_, writers_;
};

/// Each thread has a ring of its own and moves a part of every transfer.
class RingEngine final : public SwapTransfers::Engine {
 public:
  /// @param why set when a ring cannot be made; the engine is unusable then
  RingEngine(SwapOptions const& options, std::string& why) : block_size_(options.block_size) {
    for (int i = 0; i < options.parallelism && why.empty(); ++i) {
      readers_.push_back(detail::make_disk_ring(concat("swap read ", i), options, why));
      if (why.empty())
        writers_.push_back(detail::make_disk_ring(concat("swap write ", i), options, why));
    }
  }
  SwapTransfers::Pending start(DiskTransfer const& transfer) override {
    auto& rings = transfer.access == SwapFile::Access::read ? readers_ : writers_;
    SwapTransfers::Pending pending;
    std::size_t const each =
        ceil_divide(ceil_divide(transfer.bytes, block_size_), rings.size()) * block_size_;
    for (std::size_t i = 0, begin = 0; begin < transfer.bytes; ++i, begin += each) {
      DiskTransfer part = transfer;
      part.offset += begin;
      part.memory += begin;
      part.bytes = std::min(each, transfer.bytes - begin);
      pending.push_back(rings[i]->start(std::move(part)));
    }
    return pending;
  }
  void wait() const override {
    for (auto const* rings : {&readers_, &writers_})
      for (auto const& ring : *rings)
        ring->record().wait("transfers of swap files", transfer_deadline);
  }

 private:
  std::size_t block_size_;
  std::vector<std::unique_ptr<detail::DiskRing>> readers_, writers_;
};

/// Transfers of a plan: there is no memory and no file.
class NoEngine final : public SwapTransfers::Engine {
 public:
  SwapTransfers::Pending start(DiskTransfer const& transfer) override {
    auto* const trace = WorkTrace::active();
    if (!trace) return {};
    bool const reads = transfer.access == SwapFile::Access::read;
    char const* const queue = reads ? "swap read" : "swap write";
    for (auto const& event : transfer.after) trace->wait(queue, event);
    trace->add(queue, {.kind = reads ? PlannedWork::Kind::read : PlannedWork::Kind::write,
                       .bytes = transfer.bytes});
    return {trace->record(queue)};
  }
  void wait() const override {}
};

}  // namespace

SwapTransfers::SwapTransfers(SwapOptions const& options) {
  TESSERA_EXPECT(options.queue_depth > 0 && options.parallelism > 0 && options.block_size > 0 &&
                 options.block_size % swap_alignment == 0);
  if (BufferPlanning::active()) {
    engine_ = std::make_unique<NoEngine>();
    return;
  }
  auto rings = std::make_unique<RingEngine>(options, method_.why);
  method_.is_uring = method_.why.empty();
  if (method_.is_uring)
    engine_ = std::move(rings);
  else
    engine_ = std::make_unique<ThreadEngine>(options);
}
SwapTransfers::SwapTransfers(SwapTransfers&&) noexcept = default;
SwapTransfers::~SwapTransfers() = default;

SwapTransfers::Pending SwapTransfers::read(SwapFile const& file, std::size_t offset, void* to,
                                           std::size_t bytes, Pending const& after) {
  TESSERA_EXPECT(offset + bytes <= file.bytes());
  return engine_->start(
      {&file, SwapFile::Access::read, offset, static_cast<std::byte*>(to), bytes, after});
}

SwapTransfers::Pending SwapTransfers::write(SwapFile const& file, std::size_t offset,
                                            void const* from, std::size_t bytes,
                                            Pending const& after) {
  TESSERA_EXPECT(offset + bytes <= file.bytes());
  auto* const memory = static_cast<std::byte*>(const_cast<void*>(from));
  return engine_->start({&file, SwapFile::Access::write, offset, memory, bytes, after});
}

void SwapTransfers::wait() const { engine_->wait(); }

void order_before(Queue& queue, SwapTransfers::Pending const& pending) {
  for (auto const& event : pending) queue.wait(event);
}

Event joined(std::vector<Event> events) {
  if (auto* const trace = WorkTrace::active()) return trace->join(events);
  return Event(std::make_shared<JoinedEvents>(std::move(events)));
}

}  // namespace tessera::memory
