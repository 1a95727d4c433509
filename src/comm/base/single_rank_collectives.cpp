#include "base/queued_collectives.hpp"

#include <string_view>
#include <utility>

#include "base/checked_operations.hpp"
#include "base/device_operands.hpp"
#include "tessera/core/error.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::comm::detail {
namespace {

using memory::ConstTensorView;
using memory::Event;
using memory::TensorView;
using namespace std::chrono_literals;

/// Prefix of Pending::what() of operations on the device; all others are the host's.
constexpr std::string_view prefix = "on the device: ";

class SingleRankCollectives final : public Collectives {
 public:
  SingleRankCollectives(std::unique_ptr<Collectives> host, std::string const& group)
      : host_(std::move(host)),
        operations_(Group{host_->rank(), host_->size(), group}),
        stream_(memory::make_stream_queue("collectives", memory::StreamPriority::high)) {
    TESSERA_VALIDATE(host_->size() == 1, InternalError, "collectives of a single rank on ",
                     host_->size(), " ranks");
  }
  ~SingleRankCollectives() override { last_.wait_for(5s); }

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<Collectives> split(topology::RankGroup const& group) override {
    auto of_group = host_->split(group);
    if (!of_group) return nullptr;
    return std::make_unique<SingleRankCollectives>(std::move(of_group), group.name);
  }
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override {
    return allocate_on_all_ranks(*host_, name, purpose, bytes);
  }

  Pending broadcast(TensorView data, int root, Event after) override {
    if (!memory::on_device(data.data())) return host_->broadcast(data, root, std::move(after));
    return unchanged(operations_.broadcast(data, root), std::move(after));
  }
  Pending all_reduce(TensorView data, ReduceOp op, Event after) override {
    if (!memory::on_device(data.data())) return host_->all_reduce(data, op, std::move(after));
    return unchanged(operations_.all_reduce(data, op), std::move(after));
  }
  Pending reduce(TensorView data, ReduceOp op, int root, Event after) override {
    if (!memory::on_device(data.data())) return host_->reduce(data, op, root, std::move(after));
    return unchanged(operations_.reduce(data, op, root), std::move(after));
  }
  Pending reduce_scatter(TensorView in, StridedShards shards, TensorView out,
                         memory::WriteMode mode, Event after) override {
    if (!memory::on_device(in.data()))
      return host_->reduce_scatter(in, shards, out, mode, std::move(after));
    auto const o = operations_.reduce_scatter(in, shards, out);
    expect_on_device(o, out.data());
    expect_convertible(o, in, out, mode);
    TensorView const shard(element(in, shards.offset), in.dtype(), {shards.count});
    bool const same = shard.data() == out.data() && in.dtype() == out.dtype();
    if (same && mode == memory::WriteMode::overwrite) return unchanged(o, std::move(after));
    return run(o, std::move(after), [&] {
      auto const from = overlap_partly(shard, out) ? copied(shard) : shard;
      if (mode == memory::WriteMode::add)
        kernels::add(*stream_, out, from);
      else if (in.dtype() != out.dtype())
        kernels::cast(*stream_, out, from);
      else
        memory::copy(*stream_, out.data(), from.data(), out.bytes());
    });
  }
  Pending all_gather(TensorView inout, StridedShards shards, Event after) override {
    if (!memory::on_device(inout.data())) return host_->all_gather(inout, shards, std::move(after));
    return unchanged(operations_.all_gather(inout, shards), std::move(after));
  }
  Pending all_gather(ConstTensorView in, TensorView out, StridedShards shards,
                     Event after) override {
    if (!memory::on_device(out.data())) return host_->all_gather(in, out, shards, std::move(after));
    auto const o = operations_.all_gather(in, out, shards);
    expect_on_device(o, in.data());
    return move(o, element(in, shards.offset), element(out, shards.offset), std::move(after));
  }
  Pending scatter(ConstTensorView in, TensorView out, int root, Event after) override {
    if (!memory::on_device(out.data())) return host_->scatter(in, out, root, std::move(after));
    auto const o = operations_.scatter(in, out, root);
    expect_on_device(o, in.data());
    return move(o, in.data(), out.data(), std::move(after));
  }
  Pending gather(ConstTensorView in, TensorView out, int root, Event after) override {
    if (!memory::on_device(in.data())) return host_->gather(in, out, root, std::move(after));
    auto const o = operations_.gather(in, out, root);
    expect_on_device(o, out.data());
    return move(o, in.data(), out.data(), std::move(after));
  }

  Pending all_to_all(ConstTensorView in, TensorView out, Event after) override {
    if (!memory::on_device(out.data())) return host_->all_to_all(in, out, std::move(after));
    auto const o = operations_.all_to_all(in, out);
    expect_on_device(o, in.data());
    return move(o, in.data(), out.data(), std::move(after));
  }
  Pending all_to_all(ConstTensorView in, Parts const& send, TensorView out, Parts const& receive,
                     Event after) override {
    if (!memory::on_device(out.data()))
      return host_->all_to_all(in, send, out, receive, std::move(after));
    auto const o = operations_.all_to_all(in, send, out, receive);
    expect_on_device(o, in.data());
    return move(o, element(in, send.offsets[0]), element(out, receive.offsets[0]),
                std::move(after));
  }
  /// Refused: there is no peer.
  Pending send(ConstTensorView data, int to, Event after) override {
    return unchanged(operations_.send(data, to), std::move(after));
  }
  Pending receive(TensorView data, int from, Event after) override {
    return unchanged(operations_.receive(data, from), std::move(after));
  }

  /// No peer can be lost: however long the work of the device takes, it is waited for.
  void wait(Pending const& pending) override {
    if (!pending.what().starts_with(prefix)) return host_->wait(pending);
    while (!pending.event().wait_for(1s)) {
    }
    pending.event().wait(pending.what(), 0ms);
  }
  void barrier() override {
    wait({last_, std::string(prefix)});
    host_->barrier();
  }

 private:
  static bool overlap_partly(TensorView a, TensorView b) {
    auto const* const x = static_cast<std::byte const*>(a.data());
    auto const* const y = static_cast<std::byte const*>(b.data());
    return x != y && x < y + b.bytes() && y < x + a.bytes();
  }

  static Pending unchanged(Operation const& o, Event after) {
    return {std::move(after), concat(prefix, describe(o))};
  }
  Pending move(Operation const& o, void const* from, void* to, Event after) {
    if (from == to) return unchanged(o, std::move(after));
    return run(o, std::move(after), [&] { memory::copy(*stream_, to, from, o.bytes()); });
  }
  template <class Body>
  Pending run(Operation const& o, Event after, Body const& body) {
    stream_->wait(after);
    body();
    last_ = stream_->record();
    return {last_, concat(prefix, describe(o))};
  }
  TensorView copied(TensorView shard) {
    if (scratch_.bytes() < shard.bytes()) {
      scratch_ = memory::Buffer();
      scratch_ = memory::Buffer("copy of a shard", memory::Purpose::communication, shard.bytes(),
                                memory::MemorySpace::device);
    }
    memory::copy(*stream_, scratch_.data(), shard.data(), shard.bytes());
    return {scratch_.data(), shard.dtype(), {shard.numel()}};
  }

  std::unique_ptr<Collectives> host_;
  CheckedOperations operations_;
  memory::Buffer scratch_;
  std::unique_ptr<memory::Queue> stream_;
  Event last_;
};

}  // namespace

std::unique_ptr<Collectives> make_single_rank(std::unique_ptr<Collectives> host) {
  return std::make_unique<SingleRankCollectives>(std::move(host), std::string());
}

}  // namespace tessera::comm::detail
