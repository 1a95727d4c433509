#include "tessera/comm/base/planning_collectives.hpp"

#include <numeric>
#include <utility>

#include "base/operation.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/work_trace.hpp"

namespace tessera::comm {
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
