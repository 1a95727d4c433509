#include "tessera/comm/base/recording.hpp"

#include <numeric>
#include <utility>

#include "base/operation.hpp"
#include "base/traffic_count.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/work_trace.hpp"

namespace tessera::comm {

using detail::Kind;

RecordingCollectives::RecordingCollectives(std::unique_ptr<Collectives> inner)
    : RecordingCollectives(std::move(inner), {}, std::make_shared<Log>()) {}

RecordingCollectives::RecordingCollectives(std::unique_ptr<Collectives> inner, std::string group,
                                           std::shared_ptr<Log> log)
    : inner_(std::move(inner)), group_(std::move(group)), log_(std::move(log)) {}

std::unique_ptr<Collectives> RecordingCollectives::split(topology::RankGroup const& group) {
  auto of_group = inner_->split(group);
  if (!of_group) return nullptr;
  return std::unique_ptr<Collectives>(
      new RecordingCollectives(std::move(of_group), group.name, log_));
}

std::unique_ptr<RecordingCollectives> make_recording(std::unique_ptr<Collectives> inner) {
  return std::make_unique<RecordingCollectives>(std::move(inner));
}

std::vector<CollectiveRecord> RecordingCollectives::records() const {
  std::lock_guard lock(log_->mutex);
  return log_->records;
}

std::size_t RecordingCollectives::bytes_sent() const {
  std::lock_guard lock(log_->mutex);
  std::size_t sum = 0;
  for (auto const& r : log_->records) sum += r.bytes_sent;
  return sum;
}

std::size_t RecordingCollectives::bytes_sent(std::string const& group) const {
  std::lock_guard lock(log_->mutex);
  std::size_t sum = 0;
  for (auto const& r : log_->records)
    if (r.group == group) sum += r.bytes_sent;
  return sum;
}

void RecordingCollectives::clear() {
  std::lock_guard lock(log_->mutex);
  log_->records.clear();
}

void RecordingCollectives::add(CollectiveRecord record) {
  record.bytes_to_peer[static_cast<std::size_t>(rank())] = 0;
  for (auto const bytes : record.bytes_to_peer) record.bytes_sent += bytes;
  std::lock_guard lock(log_->mutex);
  log_->records.push_back(std::move(record));
}

void RecordingCollectives::add(detail::Operation const& o, std::int64_t numel) {
  CollectiveRecord r{group_, detail::name_of(o.kind), numel, o.dtype, 0, {}};
  for (int q = 0; q < size(); ++q)
    r.bytes_to_peer.push_back(detail::bytes_to_peer(o, rank(), size(), q, nullptr));
  add(std::move(r));
}

std::shared_ptr<void> RecordingCollectives::allocate(std::string const& name,
                                                     memory::Purpose purpose, std::size_t bytes) {
  return inner_->allocate(name, purpose, bytes);
}

Pending RecordingCollectives::broadcast(memory::TensorView data, int root, memory::Event after) {
  add({.kind = Kind::broadcast, .dtype = data.dtype(), .root = root, .numel = data.numel()},
      data.numel());
  return inner_->broadcast(data, root, std::move(after));
}

Pending RecordingCollectives::all_reduce(memory::TensorView data, ReduceOp op,
                                         memory::Event after) {
  add({.kind = Kind::all_reduce, .dtype = data.dtype(), .numel = data.numel()}, data.numel());
  return inner_->all_reduce(data, op, std::move(after));
}

Pending RecordingCollectives::reduce(memory::TensorView data, ReduceOp op, int root,
                                     memory::Event after) {
  add({.kind = Kind::reduce, .dtype = data.dtype(), .root = root, .numel = data.numel()},
      data.numel());
  return inner_->reduce(data, op, root, std::move(after));
}

Pending RecordingCollectives::reduce_scatter(memory::TensorView in, StridedShards shards,
                                             memory::TensorView out, memory::WriteMode mode,
                                             memory::Event after) {
  add({.kind = Kind::reduce_scatter, .dtype = in.dtype(), .numel = shards.count},
      shards.count * size());
  return inner_->reduce_scatter(in, shards, out, mode, std::move(after));
}

Pending RecordingCollectives::all_gather(memory::TensorView inout, StridedShards shards,
                                         memory::Event after) {
  add({.kind = Kind::all_gather, .dtype = inout.dtype(), .numel = shards.count},
      shards.count * size());
  return inner_->all_gather(inout, shards, std::move(after));
}

Pending RecordingCollectives::all_gather(memory::ConstTensorView in, memory::TensorView out,
                                         StridedShards shards, memory::Event after) {
  add({.kind = Kind::all_gather, .dtype = out.dtype(), .numel = shards.count},
      shards.count * size());
  return inner_->all_gather(in, out, shards, std::move(after));
}

Pending RecordingCollectives::scatter(memory::ConstTensorView in, memory::TensorView out, int root,
                                      memory::Event after) {
  add({.kind = Kind::scatter, .dtype = out.dtype(), .root = root, .numel = out.numel()},
      out.numel() * size());
  return inner_->scatter(in, out, root, std::move(after));
}

Pending RecordingCollectives::gather(memory::ConstTensorView in, memory::TensorView out, int root,
                                     memory::Event after) {
  add({.kind = Kind::gather, .dtype = in.dtype(), .root = root, .numel = in.numel()},
      in.numel() * size());
  return inner_->gather(in, out, root, std::move(after));
}

Pending RecordingCollectives::all_to_all(memory::ConstTensorView in, memory::TensorView out,
                                         memory::Event after) {
  add({.kind = Kind::all_to_all, .dtype = in.dtype(), .numel = in.numel() / size()}, in.numel());
  return inner_->all_to_all(in, out, std::move(after));
}

Pending RecordingCollectives::all_to_all(memory::ConstTensorView in, Parts const& send,
                                         memory::TensorView out, Parts const& receive,
                                         memory::Event after) {
  CollectiveRecord r{group_, "all_to_all", 0, in.dtype(), 0, {}};
  for (auto const count : send.counts) {
    r.numel += count;
    r.bytes_to_peer.push_back(static_cast<std::size_t>(count) * size_of(in.dtype()));
  }
  add(std::move(r));
  return inner_->all_to_all(in, send, out, receive, std::move(after));
}

Pending RecordingCollectives::send(memory::ConstTensorView data, int to, memory::Event after) {
  add({.kind = Kind::send, .dtype = data.dtype(), .root = to, .numel = data.numel()}, data.numel());
  return inner_->send(data, to, std::move(after));
}

Pending RecordingCollectives::receive(memory::TensorView data, int from, memory::Event after) {
  add({.kind = Kind::receive, .dtype = data.dtype(), .root = from}, data.numel());
  return inner_->receive(data, from, std::move(after));
}

namespace {

using memory::ConstTensorView;
using memory::Event;
using memory::TensorView;

/// On a device, reductions and operations that move data have a stream each, as NCCL's; the host
/// has one thread for both.
class PlanningCollectives final : public Collectives {
 public:
  PlanningCollectives(int ranks, memory::MemorySpace space, std::string group = {})
      : ranks_(ranks), space_(space), group_(std::move(group)) {}

  int rank() const override { return 0; }
  int size() const override { return ranks_; }
  std::unique_ptr<Collectives> split(topology::RankGroup const& group) override {
    if (group.color < 0) return nullptr;
    TESSERA_VALIDATE(group.size > 0, InternalError, "split into ", group.name,
                     ": planning needs the number of ranks of the group");
    return std::make_unique<PlanningCollectives>(group.size, space_, group.name);
  }
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override {
    auto const buffer = std::make_shared<memory::Buffer>(name, purpose, bytes, space_);
    return {buffer, buffer->data()};
  }
  Pending broadcast(TensorView data, int, Event after) override {
    return add({"broadcast", data.dtype(), data.numel(), (ranks_ - 1) * data.numel()}, after,
               Kind::moves);
  }
  Pending all_reduce(TensorView data, ReduceOp, Event after) override {
    auto const own = detail::slice_of(data.numel(), ranks_, first_rank).count;
    return add({"all_reduce", data.dtype(), data.numel(), data.numel() + (ranks_ - 2) * own}, after,
               Kind::reduces);
  }
  Pending reduce(TensorView data, ReduceOp, int, Event after) override {
    return add({"reduce", data.dtype(), data.numel(), data.numel()}, after, Kind::reduces);
  }
  Pending reduce_scatter(TensorView in, StridedShards shards, TensorView, memory::WriteMode,
                         Event after) override {
    return add(of_shards("reduce_scatter", in.dtype(), shards.count), after, Kind::reduces);
  }
  Pending all_gather(TensorView inout, StridedShards shards, Event after) override {
    return add(of_shards("all_gather", inout.dtype(), shards.count), after, Kind::moves);
  }
  Pending all_gather(ConstTensorView, TensorView out, StridedShards shards, Event after) override {
    return add(of_shards("all_gather", out.dtype(), shards.count), after, Kind::moves);
  }
  Pending scatter(ConstTensorView, TensorView out, int, Event after) override {
    return add(of_shards("scatter", out.dtype(), out.numel()), after, Kind::moves);
  }
  Pending gather(ConstTensorView in, TensorView, int, Event after) override {
    return add({"gather", in.dtype(), in.numel() * ranks_, in.numel()}, after, Kind::moves);
  }
  Pending all_to_all(ConstTensorView in, TensorView, Event after) override {
    return add(of_shards("all_to_all", in.dtype(), in.numel() / ranks_), after, Kind::moves);
  }
  Pending all_to_all(ConstTensorView in, Parts const& send, TensorView, Parts const&,
                     Event after) override {
    auto const all = std::accumulate(send.counts.begin(), send.counts.end(), std::int64_t{0});
    return add({"all_to_all", in.dtype(), all, all - send.counts.front()}, after, Kind::moves);
  }
  Pending send(ConstTensorView data, int, Event after) override {
    return add({"send", data.dtype(), data.numel(), data.numel()}, after, Kind::moves);
  }
  Pending receive(TensorView data, int, Event after) override {
    return add({"receive", data.dtype(), data.numel(), 0}, after, Kind::moves);
  }
  void wait(Pending const& pending) override {
    if (auto* const trace = memory::WorkTrace::active()) trace->wait_on_host(pending.event());
  }
  void barrier() override {}

 private:
  enum class Kind { moves, reduces };
  struct Data {
    char const* operation;
    Dtype dtype;
    std::int64_t numel;  ///< elements of all ranks
    std::int64_t sent;   ///< elements, by rank 0; 0 for the only rank
  };
  Data of_shards(char const* operation, Dtype dtype, std::int64_t count) const {
    return {operation, dtype, count * ranks_, count * (ranks_ - 1)};
  }

  Pending add(Data const& data, Event const& after, Kind kind) const {
    auto* const trace = memory::WorkTrace::active();
    if (!trace) return {};
    bool const is_device = space_ == memory::MemorySpace::device;
    char const* const kinds = is_device && kind == Kind::reduces ? "reductions" : "collectives";
    std::string const queue = group_.empty() ? kinds : concat(group_, " ", kinds);
    trace->wait(queue, after);
    trace->add(queue,
               {.kind = memory::PlannedWork::Kind::collective,
                .dtype = data.dtype,
                .bytes = static_cast<std::size_t>(data.numel) * size_of(data.dtype),
                .sent = ranks_ == 1 ? 0 : static_cast<std::size_t>(data.sent) * size_of(data.dtype),
                .name = data.operation,
                .group = group_,
                .ranks = ranks_});
    return {trace->record(queue), data.operation};
  }

  int ranks_;
  memory::MemorySpace space_;
  std::string group_;
};

}  // namespace

std::unique_ptr<Collectives> make_planning_collectives(int ranks, memory::MemorySpace space) {
  return std::make_unique<PlanningCollectives>(ranks, space);
}

}  // namespace tessera::comm
