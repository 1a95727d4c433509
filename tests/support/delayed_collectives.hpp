#pragma once
/// Collectives of one process that behaves as rank 0 of N: shards are 1/N, and every operation
/// takes as long as a network would. Measures how much communication overlaps with computation on
/// one device, or on none.
///
/// The data of the other ranks does not exist: sums are this rank's own values, gathered shards are
/// copies of its own shard. Copies inside the device are made, which is how the data arrives; then
/// a host task of the queue sleeps until the operation has taken
///   latency + bytes (N - 1) / N / bandwidth                      twice that for all_reduce,
/// with the bytes of the full buffer, or longer where the copies do. A sleeping host task instead
/// of a spinning kernel needs no device code, runs on a stream as on a host queue, and leaves the
/// device to the compute queue. Real collectives also take some multiprocessors and memory
/// bandwidth.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::test {

struct Network {
  double latency_seconds = 0.0;
  double bytes_per_second = 0.0;  ///< 0: takes no time
};

class DelayedCollectives final : public comm::Collectives {
 public:
  using Pending = comm::Pending;
  using StridedShards = comm::StridedShards;
  using Event = memory::Event;
  using TensorView = memory::TensorView;
  using ConstTensorView = memory::ConstTensorView;

  DelayedCollectives(int ranks, memory::MemorySpace space)
      : ranks_(ranks),
        space_(space),
        queue_(space == memory::MemorySpace::device
                   ? memory::make_stream_queue("delayed", memory::StreamPriority::high)
                   : memory::make_worker_queue("delayed")) {}
  ~DelayedCollectives() override { (void)queue_->record().wait_for(std::chrono::minutes(1)); }

  void set(Network network) { network_ = network; }
  /// What the formula says of all operations so far, and the time that they took in the queue.
  double planned_seconds() const { return planned_; }
  double planned_seconds(std::string_view operation) const {
    auto const found = planned_of_.find(operation);
    return found == planned_of_.end() ? 0.0 : found->second;
  }
  double taken_seconds() const { return taken_; }
  int operations() const { return operations_; }
  void finish() { queue_->record().wait("delayed operations", std::chrono::minutes(5)); }

  int rank() const override { return 0; }
  int size() const override { return ranks_; }
  /// A group of as many simulated ranks, over the same network.
  std::unique_ptr<comm::Collectives> split(topology::RankGroup const& group) override {
    if (group.color < 0) return nullptr;
    auto of_group = std::make_unique<DelayedCollectives>(group.size, space_);
    of_group->set(network_);
    return of_group;
  }
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override {
    auto buffer = std::make_shared<memory::Buffer>(name, purpose, bytes, space_);
    void* const data = buffer->data();
    return {std::move(buffer), data};
  }

  Pending broadcast(TensorView data, int, Event after) override {
    return run("broadcast", data, data.bytes(), after, [] {});
  }
  Pending all_reduce(TensorView data, comm::ReduceOp, Event after) override {
    return run("all_reduce", data, 2 * data.bytes(), after, [] {});
  }
  Pending reduce(TensorView data, comm::ReduceOp, int, Event after) override {
    return run("reduce", data, data.bytes(), after, [] {});
  }
  Pending reduce_scatter(TensorView in, StridedShards shards, TensorView out,
                         memory::WriteMode mode, Event after) override {
    return run("reduce_scatter", in, gathered_bytes(in, shards), after, [=, this] {
      ConstTensorView const own(at(in, shards.offset), in.dtype(), {shards.count});
      if (mode == memory::WriteMode::add)
        kernels::add(*queue_, out, own);
      else if (own.data() != out.data())
        kernels::cast(*queue_, out, own);
    });
  }
  Pending all_gather(TensorView inout, StridedShards shards, Event after) override {
    return run("all_gather", inout, gathered_bytes(inout, shards), after,
               [=, this] { copy_to_shards(at(inout, shards.offset), inout, shards, 1); });
  }
  Pending all_gather(ConstTensorView in, TensorView out, StridedShards shards,
                     Event after) override {
    return run("all_gather", out, gathered_bytes(out, shards), after,
               [=, this] { copy_to_shards(at(in, shards.offset), out, shards, 0); });
  }
  Pending scatter(ConstTensorView in, TensorView out, int, Event after) override {
    return run("scatter", out, out.bytes() * static_cast<std::size_t>(ranks_), after,
               [=, this] { copy(out.data(), in.data(), out.bytes()); });
  }
  Pending gather(ConstTensorView in, TensorView out, int, Event after) override {
    return run("gather", in, in.bytes() * static_cast<std::size_t>(ranks_), after, [=, this] {
      copy_to_shards(in.data(), out, {in.numel(), in.numel(), 0}, 0);
    });
  }
  Pending all_to_all(ConstTensorView in, TensorView out, Event after) override {
    return run("all_to_all", in, in.bytes(), after,
               [=, this] { copy(out.data(), in.data(), in.bytes()); });
  }
  /// The other ranks' parts are copies of this rank's own.
  Pending all_to_all(ConstTensorView in, comm::Parts const& send, TensorView out,
                     comm::Parts const& receive, Event after) override {
    std::int64_t sent = 0;
    for (auto const count : send.counts) sent += count;
    return run("all_to_all", in, static_cast<std::size_t>(sent) * size_of(in.dtype()), after,
               [=, this] {
                 for (std::size_t q = 0; q < receive.counts.size(); ++q)
                   copy(at(out, receive.offsets[q]), at(in, send.offsets[0]),
                        static_cast<std::size_t>(std::min(receive.counts[q], send.counts[0])) *
                            size_of(in.dtype()));
               });
  }
  Pending send(ConstTensorView data, int, Event after) override {
    return run("send", data, data.bytes(), after, [] {});
  }
  Pending receive(TensorView data, int, Event after) override {
    return run("receive", data, data.bytes(), after, [] {});
  }
  void wait(Pending const& pending) override {
    pending.event().wait(pending.what(), std::chrono::minutes(5));
  }
  void barrier() override {}

 private:
  using Clock = std::chrono::steady_clock;

  template <class View>
  static typename View::Byte* at(View const& view, std::int64_t element) {
    return static_cast<typename View::Byte*>(view.data()) +
           static_cast<std::size_t>(element) * size_of(view.dtype());
  }
  std::size_t gathered_bytes(ConstTensorView view, StridedShards const& shards) const {
    return static_cast<std::size_t>(shards.count) * static_cast<std::size_t>(ranks_) *
           size_of(view.dtype());
  }
  void copy(void* to, void const* from, std::size_t bytes) {
    memory::copy(*queue_, to, from, bytes);
  }
  void copy_to_shards(void const* own, TensorView out, StridedShards const& shards, int first) {
    for (int q = first; q < ranks_; ++q)
      copy(at(out, q * shards.stride + shards.offset), own,
           static_cast<std::size_t>(shards.count) * size_of(out.dtype()));
  }
  /// Host values of a run on a device (agreement, norms) are not delayed: they are few bytes and do
  /// not change between two operations of this rank.
  template <class Work>
  Pending run(char const* what, ConstTensorView place, std::size_t bytes, Event const& after,
              Work const& work) {
    if (space_ == memory::MemorySpace::device && !memory::on_device(place.data()))
      return {after, what};
    queue_->wait(after);
    ++operations_;
    if (network_.bytes_per_second <= 0.0) {
      work();
      return {queue_->record(), what};
    }
    double const seconds = network_.latency_seconds + static_cast<double>(bytes) * (ranks_ - 1) /
                                                          ranks_ / network_.bytes_per_second;
    planned_ += seconds;
    planned_of_[what] += seconds;
    queue_->submit([this] { begun_ = Clock::now(); });
    work();
    queue_->submit([this, seconds] { sleep_until_end(seconds); });
    return {queue_->record(), what};
  }
  void sleep_until_end(double seconds) {
    std::this_thread::sleep_until(begun_ + std::chrono::duration<double>(seconds));
    taken_ = taken_ + std::chrono::duration<double>(Clock::now() - begun_).count();
  }

  int ranks_;
  memory::MemorySpace space_;
  Network network_;
  double planned_ = 0.0;
  std::map<std::string, double, std::less<>> planned_of_;
  int operations_ = 0;
  Clock::time_point begun_{};       ///< the operation at hand, of the queue only
  std::atomic<double> taken_{0.0};  ///< written by the queue only
  std::unique_ptr<memory::Queue> queue_;
};

}  // namespace tessera::test
