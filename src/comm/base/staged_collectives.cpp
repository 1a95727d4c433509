#include "base/queued_collectives.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <utility>

#include "base/device_operands.hpp"
#include "tessera/comm/base/flight_recorder.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::comm::detail {
namespace {

using memory::ConstTensorView;
using memory::Event;
using memory::TensorView;
using namespace std::chrono_literals;

/// One worker thread runs every operation, also those on host memory, so that the host's
/// collectives see the same order on every rank.
class StagedCollectives final : public Collectives {
 public:
  /// @param group name of the group; empty: all ranks of the job
  StagedCollectives(std::unique_ptr<Collectives> host, Deadline deadline, std::string const& group)
      : host_(std::move(host)),
        prefix_(group.empty() ? "staged " : concat("staged, ", group, ": ")),
        deadline_(deadline),
        copies_(memory::make_stream_queue("staging", memory::StreamPriority::high)),
        worker_(memory::make_worker_queue("staged collectives")) {}
  ~StagedCollectives() override { worker_.reset(); }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::unique_ptr<Collectives> split(topology::RankGroup const& group) override {
    auto const made = std::make_shared<std::unique_ptr<Collectives>>();
    wait(enqueue("split", {}, [=, this] { *made = host_->split(group); }));
    if (!*made) return nullptr;
    return std::make_unique<StagedCollectives>(std::move(*made), deadline_, group.name);
  }
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override {
    return allocate_on_all_ranks(*this, name, purpose, bytes);
  }

  Pending broadcast(TensorView data, int root, Event after) override {
    return enqueue("broadcast", std::move(after), [=, this] {
      if (!memory::on_device(data.data())) return finish(host_->broadcast(data, root, {}));
      TensorView const staged = rank() == root ? fetch(Slot::input, data)
                                               : staging(Slot::input, data.dtype(), data.numel());
      finish(host_->broadcast(staged, root, {}));
      if (rank() != root) store(data, staged);
    });
  }
  Pending all_reduce(TensorView data, ReduceOp op, Event after) override {
    return enqueue("all_reduce", std::move(after), [=, this] {
      if (!memory::on_device(data.data())) return finish(host_->all_reduce(data, op, {}));
      TensorView const staged = fetch(Slot::input, data);
      finish(host_->all_reduce(staged, op, {}));
      store(data, staged);
    });
  }
  Pending reduce(TensorView data, ReduceOp op, int root, Event after) override {
    return enqueue("reduce", std::move(after), [=, this] {
      if (!memory::on_device(data.data())) return finish(host_->reduce(data, op, root, {}));
      TensorView const staged = fetch(Slot::input, data);
      finish(host_->reduce(staged, op, root, {}));
      if (rank() == root) store(data, staged);
    });
  }
  Pending reduce_scatter(TensorView in, StridedShards shards, TensorView out,
                         memory::WriteMode mode, Event after) override {
    check_shards("reduce_scatter", shards, size(), in.numel());
    return enqueue("reduce_scatter", std::move(after), [=, this] {
      if (!memory::on_device(in.data()))
        return finish(host_->reduce_scatter(in, shards, out, mode, {}));
      TensorView const packed = staging(Slot::input, in.dtype(), shards.count * size());
      for (int q = 0; q < size(); ++q)
        copy(element(packed, q * shards.count), element(in, q * shards.stride + shards.offset),
             shard_bytes(in, shards));
      TensorView const sum = mode == memory::WriteMode::add
                                 ? fetch(Slot::output, out)
                                 : staging(Slot::output, out.dtype(), out.numel());
      wait_for_copies();
      finish(host_->reduce_scatter(packed, {shards.count, shards.count, 0}, sum, mode, {}));
      store(out, sum);
    });
  }
  Pending all_gather(TensorView inout, StridedShards shards, Event after) override {
    check_shards("all_gather", shards, size(), inout.numel());
    return enqueue("all_gather", std::move(after), [=, this] {
      if (size() == 1) return;
      if (!memory::on_device(inout.data())) return finish(host_->all_gather(inout, shards, {}));
      gather_shards(element(inout, rank() * shards.stride + shards.offset), inout, shards,
                    OwnShard::in_place);
    });
  }
  Pending all_gather(ConstTensorView in, TensorView out, StridedShards shards,
                     Event after) override {
    check_shards("all_gather", shards, size(), out.numel());
    return enqueue("all_gather", std::move(after), [=, this] {
      if (!memory::on_device(out.data())) return finish(host_->all_gather(in, out, shards, {}));
      gather_shards(element(in, shards.offset), out, shards, OwnShard::separate);
    });
  }
  Pending scatter(ConstTensorView in, TensorView out, int root, Event after) override {
    return enqueue("scatter", std::move(after), [=, this] {
      if (!memory::on_device(out.data())) return finish(host_->scatter(in, out, root, {}));
      ConstTensorView const staged =
          rank() == root ? ConstTensorView(fetch(Slot::input, in)) : ConstTensorView{};
      TensorView const mine = staging(Slot::output, out.dtype(), out.numel());
      finish(host_->scatter(staged, mine, root, {}));
      store(out, mine);
    });
  }
  Pending gather(ConstTensorView in, TensorView out, int root, Event after) override {
    return enqueue("gather", std::move(after), [=, this] {
      if (!memory::on_device(in.data())) return finish(host_->gather(in, out, root, {}));
      TensorView const all =
          rank() == root ? staging(Slot::output, out.dtype(), out.numel()) : TensorView{};
      finish(host_->gather(fetch(Slot::input, in), all, root, {}));
      if (rank() == root) store(out, all);
    });
  }

  Pending all_to_all(ConstTensorView in, TensorView out, Event after) override {
    return enqueue("all_to_all", std::move(after), [=, this] {
      if (!memory::on_device(out.data())) return finish(host_->all_to_all(in, out, {}));
      TensorView const received = staging(Slot::output, out.dtype(), out.numel());
      finish(host_->all_to_all(fetch(Slot::input, in), received, {}));
      store(out, received);
    });
  }
  Pending all_to_all(ConstTensorView in, Parts const& send, TensorView out, Parts const& receive,
                     Event after) override {
    return enqueue("all_to_all", std::move(after), [=, this] {
      if (!memory::on_device(out.data()))
        return finish(host_->all_to_all(in, send, out, receive, {}));
      TensorView const received = staging(Slot::output, out.dtype(), out.numel());
      finish(host_->all_to_all(fetch(Slot::input, in), send, received, receive, {}));
      for (std::size_t q = 0; q < receive.counts.size(); ++q)  // what is between parts stays
        if (receive.counts[q] > 0)
          copy(element(out, receive.offsets[q]), element(received, receive.offsets[q]),
               static_cast<std::size_t>(receive.counts[q]) * size_of(out.dtype()));
      wait_for_copies();
    });
  }
  Pending send(ConstTensorView data, int to, Event after) override {
    check_peer("send", to);
    return enqueue("send", std::move(after), [=, this] {
      finish(host_->send(memory::on_device(data.data()) ? fetch(Slot::input, data) : data, to, {}));
    });
  }
  Pending receive(TensorView data, int from, Event after) override {
    check_peer("receive", from);
    return enqueue("receive", std::move(after), [=, this] {
      if (!memory::on_device(data.data())) return finish(host_->receive(data, from, {}));
      TensorView const received = staging(Slot::output, data.dtype(), data.numel());
      finish(host_->receive(received, from, {}));
      store(data, received);
    });
  }

  void wait(Pending const& pending) override {
    for (;;) {
      std::uint64_t const seen = progress_;
      if (pending.event().wait_for(deadline_ + grace)) break;
      TESSERA_VALIDATE(seen != progress_, InternalError, pending.what(),
                       ": the worker thread of rank ", rank(), " has made no progress for ",
                       deadline_text(deadline_ + grace),
                       "; it waits for work on the device that does not complete");
    }
    pending.event().wait(pending.what(), 0ms);
  }
  void barrier() override {
    wait(enqueue("barrier", {}, [this] { host_->barrier(); }));
  }

 private:
  enum class OwnShard { in_place, separate };
  enum class Slot : std::size_t { input, output };

  Pending enqueue(char const* what, Event after, std::function<void()> body) {
    auto const input = after;
    worker_->submit([this, what, after = std::move(after), body = std::move(body)] {
      ++progress_;
      if (!after.wait_for(deadline_))
        throw PeerLostError(rank(), concat(prefix_, what, ": its input was not ready within ",
                                           deadline_text(deadline_)));
      after.wait(what, 0ms);
      ++progress_;
      body();
      ++progress_;
    });
    Pending pending{worker_->record(), concat(prefix_, what)};
    FlightRecorder::of_process().add(pending.what(), input, pending.event());
    return pending;
  }
  void check_peer(char const* what, int peer) const {
    TESSERA_VALIDATE(peer >= 0 && peer < size() && peer != rank(), InternalError, prefix_, what,
                     ": the peer must be another rank from 0 to ", size() - 1, ", not ", peer);
  }
  void finish(Pending const& pending) { host_->wait(pending); }

  static std::size_t shard_bytes(TensorView const& view, StridedShards const& shards) {
    return static_cast<std::size_t>(shards.count) * size_of(view.dtype());
  }
  void copy(void* to, void const* from, std::size_t bytes) {
    memory::copy(*copies_, to, from, bytes);
  }
  void wait_for_copies() { copies_->record().wait("a copy between host and device", deadline_); }

  /// Pinned memory, reused by later operations.
  TensorView staging(Slot slot, Dtype dtype, std::int64_t numel) {
    auto const bytes = static_cast<std::size_t>(numel) * size_of(dtype);
    auto& buffer = staging_[static_cast<std::size_t>(slot)];
    if (buffer.bytes() < bytes) {
      buffer = memory::Buffer();
      buffer = memory::Buffer("staging of collectives", memory::Purpose::communication, bytes,
                              memory::MemorySpace::pinned);
    }
    return {buffer.data(), dtype, {numel}};
  }
  TensorView fetch(Slot slot, ConstTensorView from) {
    TensorView const staged = staging(slot, from.dtype(), from.numel());
    copy(staged.data(), from.data(), from.bytes());
    wait_for_copies();
    return staged;
  }
  void store(TensorView to, TensorView staged) {
    copy(to.data(), staged.data(), staged.bytes());
    wait_for_copies();
  }
  void gather_shards(void const* mine, TensorView out, StridedShards const& shards, OwnShard own) {
    TensorView const packed = staging(Slot::input, out.dtype(), shards.count * size());
    copy(element(packed, rank() * shards.count), mine, shard_bytes(out, shards));
    wait_for_copies();
    finish(host_->all_gather(packed, {shards.count, shards.count, 0}, {}));
    for (int q = 0; q < size(); ++q)
      if (q != rank() || own == OwnShard::separate)
        copy(element(out, q * shards.stride + shards.offset), element(packed, q * shards.count),
             shard_bytes(out, shards));
    wait_for_copies();
  }

  std::unique_ptr<Collectives> host_;
  std::string prefix_;
  Deadline deadline_;
  std::unique_ptr<memory::Queue> copies_;
  std::array<memory::Buffer, 2> staging_;  ///< by Slot
  std::atomic<std::uint64_t> progress_{0};
  std::unique_ptr<memory::Queue> worker_;
};

}  // namespace

std::unique_ptr<Collectives> make_staged(std::unique_ptr<Collectives> host, Deadline deadline) {
  return std::make_unique<StagedCollectives>(
      std::move(host), std::min(deadline, Deadline(std::chrono::hours(24 * 365))), std::string());
}

}  // namespace tessera::comm::detail
