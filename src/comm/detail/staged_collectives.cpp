#include "detail/staged_collectives.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <utility>

#include "detail/device_operands.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::comm::detail {
namespace {

using memory::ConstTensorView;
using memory::Event;
using memory::TensorView;
using namespace std::chrono_literals;

constexpr Deadline grace = 5s;

/// Every operation, on host memory too, is a task of one lane: the host's collectives see the same
/// order on every rank.
class StagedCollectives final : public Collectives {
 public:
  StagedCollectives(std::unique_ptr<Collectives> host, Deadline deadline)
      : host_(std::move(host)),
        deadline_(deadline),
        copies_(memory::make_stream_queue("staging", memory::StreamPriority::high)),
        lane_(memory::make_worker_queue("staged collectives")) {}
  ~StagedCollectives() override { lane_.reset(); }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override {
    return allocate_together(*this, name, purpose, bytes);
  }

  Pending broadcast(TensorView data, int root, Event after) override {
    return enqueue("broadcast", std::move(after), [=, this] {
      if (!memory::on_device(data.data())) return finish(host_->broadcast(data, root, {}));
      TensorView const staged =
          rank() == root ? fetch(0, data) : room(0, data.dtype(), data.numel());
      finish(host_->broadcast(staged, root, {}));
      if (rank() != root) store(data, staged);
    });
  }
  Pending all_reduce(TensorView data, ReduceOp op, Event after) override {
    return enqueue("all_reduce", std::move(after), [=, this] {
      if (!memory::on_device(data.data())) return finish(host_->all_reduce(data, op, {}));
      TensorView const staged = fetch(0, data);
      finish(host_->all_reduce(staged, op, {}));
      store(data, staged);
    });
  }
  Pending reduce(TensorView data, ReduceOp op, int root, Event after) override {
    return enqueue("reduce", std::move(after), [=, this] {
      if (!memory::on_device(data.data())) return finish(host_->reduce(data, op, root, {}));
      TensorView const staged = fetch(0, data);
      finish(host_->reduce(staged, op, root, {}));
      if (rank() == root) store(data, staged);
    });
  }
  Pending reduce_scatter(TensorView in, Blocks blocks, TensorView out, bool accumulate,
                         Event after) override {
    check_blocks("reduce_scatter", blocks, size(), in.numel());
    return enqueue("reduce_scatter", std::move(after), [=, this] {
      if (!memory::on_device(in.data()))
        return finish(host_->reduce_scatter(in, blocks, out, accumulate, {}));
      TensorView const packed = room(0, in.dtype(), blocks.count * size());
      for (int q = 0; q < size(); ++q)
        copy(element(packed, q * blocks.count), element(in, q * blocks.stride + blocks.offset),
             block_bytes(in, blocks));
      TensorView const sum = accumulate ? fetch(1, out) : room(1, out.dtype(), out.numel());
      copied();
      finish(host_->reduce_scatter(packed, {blocks.count, blocks.count, 0}, sum, accumulate, {}));
      store(out, sum);
    });
  }
  Pending all_gather(TensorView inout, Blocks blocks, Event after) override {
    check_blocks("all_gather", blocks, size(), inout.numel());
    return enqueue("all_gather", std::move(after), [=, this] {
      if (size() == 1) return;
      if (!memory::on_device(inout.data())) return finish(host_->all_gather(inout, blocks, {}));
      gather_blocks(element(inout, rank() * blocks.stride + blocks.offset), inout, blocks,
                    Own::in_place);
    });
  }
  Pending all_gather(ConstTensorView in, TensorView out, Blocks blocks, Event after) override {
    check_blocks("all_gather", blocks, size(), out.numel());
    return enqueue("all_gather", std::move(after), [=, this] {
      if (!memory::on_device(out.data())) return finish(host_->all_gather(in, out, blocks, {}));
      gather_blocks(element(in, blocks.offset), out, blocks, Own::elsewhere);
    });
  }
  Pending scatter(ConstTensorView in, TensorView out, int root, Event after) override {
    return enqueue("scatter", std::move(after), [=, this] {
      if (!memory::on_device(out.data())) return finish(host_->scatter(in, out, root, {}));
      ConstTensorView const staged =
          rank() == root ? ConstTensorView(fetch(0, in)) : ConstTensorView{};
      TensorView const mine = room(1, out.dtype(), out.numel());
      finish(host_->scatter(staged, mine, root, {}));
      store(out, mine);
    });
  }
  Pending gather(ConstTensorView in, TensorView out, int root, Event after) override {
    return enqueue("gather", std::move(after), [=, this] {
      if (!memory::on_device(in.data())) return finish(host_->gather(in, out, root, {}));
      TensorView const all = rank() == root ? room(1, out.dtype(), out.numel()) : TensorView{};
      finish(host_->gather(fetch(0, in), all, root, {}));
      if (rank() == root) store(out, all);
    });
  }

  void wait(Pending const& pending) override {
    for (;;) {
      std::uint64_t const seen = progress_;
      if (pending.event().wait_for(deadline_ + grace)) break;
      TESSERA_VALIDATE(seen != progress_, InternalError, pending.what(), ": the lane of rank ",
                       rank(), " has stood still for ", (deadline_ + grace).count(),
                       " ms: what it waits for on the device does not come");
    }
    pending.event().wait(pending.what(), 0ms);
  }
  void barrier() override {
    wait(enqueue("barrier", {}, [this] { host_->barrier(); }));
  }

 private:
  enum class Own { in_place, elsewhere };

  Pending enqueue(char const* what, Event after, std::function<void()> body) {
    lane_->submit([this, what, after = std::move(after), body = std::move(body)] {
      ++progress_;
      if (!after.wait_for(deadline_))
        throw PeerLostError(rank(), concat("staged ", what, ": its input was not ready within ",
                                           deadline_.count(), " ms"));
      after.wait(what, 0ms);
      ++progress_;
      body();
      ++progress_;
    });
    return {lane_->record(), concat("staged ", what)};
  }
  void finish(Pending const& pending) { host_->wait(pending); }

  static std::size_t block_bytes(TensorView const& view, Blocks const& blocks) {
    return static_cast<std::size_t>(blocks.count) * size_of(view.dtype());
  }
  void copy(void* to, void const* from, std::size_t bytes) {
    memory::copy(*copies_, to, from, bytes);
  }
  void copied() { copies_->record().wait("a copy between host and device", deadline_); }

  /// Pinned memory of this lane, kept; one of two places.
  TensorView room(std::size_t place, Dtype dtype, std::int64_t numel) {
    auto const bytes = static_cast<std::size_t>(numel) * size_of(dtype);
    auto& buffer = staging_[place];
    if (buffer.bytes() < bytes) {
      buffer = memory::Buffer();
      buffer = memory::Buffer("staging of collectives", memory::Purpose::communication, bytes,
                              memory::MemorySpace::pinned);
    }
    return {buffer.data(), dtype, {numel}};
  }
  TensorView fetch(std::size_t place, ConstTensorView from) {
    TensorView const staged = room(place, from.dtype(), from.numel());
    copy(staged.data(), from.data(), from.bytes());
    copied();
    return staged;
  }
  void store(TensorView to, TensorView staged) {
    copy(to.data(), staged.data(), staged.bytes());
    copied();
  }
  void gather_blocks(void const* mine, TensorView out, Blocks const& blocks, Own own) {
    TensorView const packed = room(0, out.dtype(), blocks.count * size());
    copy(element(packed, rank() * blocks.count), mine, block_bytes(out, blocks));
    copied();
    finish(host_->all_gather(packed, {blocks.count, blocks.count, 0}, {}));
    for (int q = 0; q < size(); ++q)
      if (q != rank() || own == Own::elsewhere)
        copy(element(out, q * blocks.stride + blocks.offset), element(packed, q * blocks.count),
             block_bytes(out, blocks));
    copied();
  }

  std::unique_ptr<Collectives> host_;
  Deadline deadline_;
  std::unique_ptr<memory::Queue> copies_;
  std::array<memory::Buffer, 2> staging_;
  std::atomic<std::uint64_t> progress_{0};
  std::unique_ptr<memory::Queue> lane_;
};

}  // namespace

std::unique_ptr<Collectives> make_staged(std::unique_ptr<Collectives> host, Deadline deadline) {
  return std::make_unique<StagedCollectives>(
      std::move(host), std::min(deadline, Deadline(std::chrono::hours(24 * 365))));
}

}  // namespace tessera::comm::detail
