// Collectives by NCCL, user guide sections "Collective Operations", "Point-to-point communication",
// "In-place Operations".
#include "nccl/nccl_collectives.hpp"

#include <utility>

#include "tessera/core/error.hpp"

#ifdef TESSERA_HAVE_CUDA
#include <algorithm>

#include "base/checked_operations.hpp"
#include "base/device_operands.hpp"
#include "base/hang_watch.hpp"
#include "base/traffic_count.hpp"
#include "nccl/nccl_memory.hpp"
#include "nccl/nccl_streams.hpp"
#include "nccl/nccl_watchdog.hpp"
#include "tessera/comm/base/flight_recorder.hpp"
#include "tessera/core/log.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::comm::detail {
namespace {

using memory::ConstTensorView;
using memory::Event;
using memory::TensorView;
using namespace std::chrono_literals;

/// Beyond the deadline: a call that polls NCCL has then given up by itself.
constexpr Deadline patience = 10s;

/// Prefix of Pending::what() of this implementation; all other operations are the host's.
constexpr std::string_view prefix = "NCCL ";

bool apart(void const* a, void const* b, std::size_t bytes) {
  auto const* const x = static_cast<std::byte const*>(a);
  auto const* const y = static_cast<std::byte const*>(b);
  return x + bytes <= y || y + bytes <= x;
}

bool begins_inside(void const* data, void const* region, std::size_t bytes) {
  auto const* const x = static_cast<std::byte const*>(data);
  auto const* const begin = static_cast<std::byte const*>(region);
  return x >= begin && x < begin + bytes;
}

/// The calling thread enqueues operations on device memory on the stream of their communicator;
/// operations on host memory go to the host's collectives. Strided shards are packed on the stream,
/// so that they are one operation of NCCL and not one per rank.
class NcclCollectives final : public Collectives {
 public:
  /// @param group name of the group; empty: all ranks of the job
  NcclCollectives(std::unique_ptr<Collectives> host, std::vector<CommStream> streams,
                  NcclWindows windows, Deadline deadline, std::string const& group)
      : host_(std::move(host)),
        deadline_(deadline),
        operations_(Group{host_->rank(), host_->size(), group}),
        streams_(std::move(streams)),
        memory_(*host_, comms_of(streams_), windows, deadline),
        hang_watch_(deadline + patience, end_after_hang),
        watchdog_(std::make_unique<NcclWatchdog>(comms_of(streams_), host_->rank(), deadline,
                                                 hang_watch_)) {}
  /// Waits for the peers (ncclCommFinalize) only after no error.
  ~NcclCollectives() override {
    bool const ok = !watchdog_->failed() && std::uncaught_exceptions() == 0;
    watchdog_.reset();
    if (!ok) {
      HangWatch::Inside const inside(hang_watch_, HangWatch::Watched::caller);
      NcclComm::abort_all(comms_of(streams_));
    }
    for (auto& stream : streams_) stream.scratch = {};
    memory_.close();
    for (auto stream = streams_.rbegin(); stream != streams_.rend(); ++stream)
      stream->comm->finish();
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  /// Nothing may be in flight on the communicators that are split.
  std::unique_ptr<Collectives> split(topology::RankGroup const& group) override {
    TESSERA_VALIDATE(streams_.size() == 2, ConfigError, "split into ", group.name,
                     ": groups of ranks on devices need NCCL 2.26 and NCCL_LAUNCH_ORDER_IMPLICIT "
                     "other than 0, because operations of two groups overlap");
    barrier();
    auto of_group = host_->split(group);
    HangWatch::Inside const inside(hang_watch_, HangWatch::Watched::caller);
    auto streams =
        split_streams(*host_, streams_, group, of_group ? of_group->rank() : 0, deadline_);
    if (!of_group) return nullptr;
    return std::make_unique<NcclCollectives>(std::move(of_group), std::move(streams),
                                             memory_.windows(), deadline_, group.name);
  }
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override {
    return memory_.allocate(name, purpose, bytes);
  }

  Pending broadcast(TensorView data, int root, Event after) override {
    if (!memory::on_device(data.data())) return host_->broadcast(data, root, std::move(after));
    return run(operations_.broadcast(data, root), std::move(after), [=](Call const& c) {
      c.start([&](ncclComm_t comm) {
        return ncclBroadcast(data.data(), data.data(), c.numel, c.type, root, comm, c.stream);
      });
    });
  }
  Pending all_reduce(TensorView data, ReduceOp op, Event after) override {
    if (!memory::on_device(data.data())) return host_->all_reduce(data, op, std::move(after));
    return run(operations_.all_reduce(data, op), std::move(after), [=](Call const& c) {
      c.start([&](ncclComm_t comm) {
        return ncclAllReduce(data.data(), data.data(), c.numel, c.type, nccl_op(op), comm,
                             c.stream);
      });
    });
  }
  Pending reduce(TensorView data, ReduceOp op, int root, Event after) override {
    if (!memory::on_device(data.data())) return host_->reduce(data, op, root, std::move(after));
    bool const is_root = rank() == root;
    return run(operations_.reduce(data, op, root), std::move(after), [=](Call const& c) {
      c.start([&](ncclComm_t comm) {
        return ncclReduce(data.data(), is_root ? data.data() : nullptr, c.numel, c.type,
                          nccl_op(op), root, comm, c.stream);
      });
    });
  }
  Pending reduce_scatter(TensorView in, StridedShards shards, TensorView out,
                         memory::WriteMode mode, Event after) override {
    if (!memory::on_device(in.data()))
      return host_->reduce_scatter(in, shards, out, mode, std::move(after));
    auto const o = operations_.reduce_scatter(in, shards, out);
    expect_on_device(o, out.data());
    void* const shard = element(in, rank() * shards.stride + shards.offset);
    bool const in_place = out.data() == shard || apart(out.data(), shard, o.bytes());
    expect_convertible(o, in, out, mode);
    bool const accumulates = mode == memory::WriteMode::add;
    bool const own_region =
        begins_inside(out.data(), element(in, rank() * shards.stride),
                      static_cast<std::size_t>(shards.stride) * size_of(in.dtype()));
    bool const direct = !accumulates && in.dtype() == out.dtype() && in_place &&
                        (is_contiguous(shards) || !own_region);
    auto const index = stream_of(o.kind);
    auto* const packed =
        is_contiguous(shards) ? nullptr : scratch(index, Scratch::packed, all_bytes(o));
    void* const sum_data = direct   ? out.data()
                           : packed ? packed_shard(packed, o)
                                    : scratch(index, Scratch::sum, o.bytes());
    TensorView const sum(sum_data, o.dtype, {o.numel});
    return run(o, std::move(after), [=, this](Call const& c) {
      sum_shards(c, in, shards, packed, sum.data());
      if (accumulates)
        kernels::add(c.queue, out, sum);
      else if (in.dtype() != out.dtype())
        kernels::cast(c.queue, out, sum);
      else if (!direct)
        memory::copy(c.queue, out.data(), sum.data(), out.bytes());
    });
  }
  Pending all_gather(TensorView inout, StridedShards shards, Event after) override {
    if (!memory::on_device(inout.data())) return host_->all_gather(inout, shards, std::move(after));
    auto const o = operations_.all_gather(inout, shards);
    if (size() == 1) return {std::move(after), concat(prefix, describe(o))};
    return gather_shards(o, element(inout, rank() * shards.stride + shards.offset), inout, shards,
                         true, std::move(after));
  }
  Pending all_gather(ConstTensorView in, TensorView out, StridedShards shards,
                     Event after) override {
    if (!memory::on_device(out.data())) return host_->all_gather(in, out, shards, std::move(after));
    auto const o = operations_.all_gather(in, out, shards);
    expect_on_device(o, in.data());
    return gather_shards(o, element(in, shards.offset), out, shards, false, std::move(after));
  }
  Pending scatter(ConstTensorView in, TensorView out, int root, Event after) override {
    if (!memory::on_device(out.data())) return host_->scatter(in, out, root, std::move(after));
    auto const o = operations_.scatter(in, out, root);
    if (rank() == root) expect_on_device(o, in.data());
    return run(o, std::move(after), [=, this](Call const& c) {
      c.start_group([&](ncclComm_t comm) {
        auto status = ncclSuccess;
        for (int q = 0; rank() == root && accepted(status) && q < size(); ++q)
          status = ncclSend(element(in, q * out.numel()), c.numel, c.type, q, comm, c.stream);
        return accepted(status) ? ncclRecv(out.data(), c.numel, c.type, root, comm, c.stream)
                                : status;
      });
    });
  }
  Pending gather(ConstTensorView in, TensorView out, int root, Event after) override {
    if (!memory::on_device(in.data())) return host_->gather(in, out, root, std::move(after));
    auto const o = operations_.gather(in, out, root);
    if (rank() == root) expect_on_device(o, out.data());
    return run(o, std::move(after), [=, this](Call const& c) {
      c.start_group([&](ncclComm_t comm) {
        auto status = ncclSend(in.data(), c.numel, c.type, root, comm, c.stream);
        for (int q = 0; rank() == root && accepted(status) && q < size(); ++q)
          status = ncclRecv(element(out, q * in.numel()), c.numel, c.type, q, comm, c.stream);
        return status;
      });
    });
  }

  Pending all_to_all(ConstTensorView in, TensorView out, Event after) override {
    if (!memory::on_device(out.data())) return host_->all_to_all(in, out, std::move(after));
    auto const o = operations_.all_to_all(in, out);
    expect_on_device(o, in.data());
    return exchange(o, in, equal_parts(o), out, equal_parts(o), std::move(after));
  }
  Pending all_to_all(ConstTensorView in, Parts const& send, TensorView out, Parts const& receive,
                     Event after) override {
    if (!memory::on_device(out.data()))
      return host_->all_to_all(in, send, out, receive, std::move(after));
    auto const o = operations_.all_to_all(in, send, out, receive);
    return exchange(o, in, send, out, receive, std::move(after));
  }
  Pending send(ConstTensorView data, int to, Event after) override {
    if (!memory::on_device(data.data())) return host_->send(data, to, std::move(after));
    return run(operations_.send(data, to), std::move(after), [=](Call const& c) {
      c.start([&](ncclComm_t comm) {
        return ncclSend(data.data(), c.numel, c.type, to, comm, c.stream);
      });
    });
  }
  Pending receive(TensorView data, int from, Event after) override {
    if (!memory::on_device(data.data())) return host_->receive(data, from, std::move(after));
    return run(operations_.receive(data, from), std::move(after), [=](Call const& c) {
      c.start([&](ncclComm_t comm) {
        return ncclRecv(data.data(), c.numel, c.type, from, comm, c.stream);
      });
    });
  }

  /// Never waits for the event only: after an abort the streams complete without a result.
  void wait(Pending const& pending) override {
    if (!pending.event().state()) return;
    if (!pending.what().starts_with(prefix)) return host_->wait(pending);
    while (!watchdog_->failed() && !happens_soon(pending.event())) {
    }
    if (watchdog_->failed()) pending.event().wait_for(abort_grace);
    watchdog_->rethrow();
    pending.event().wait(pending.what(), 0ms);
  }
  void barrier() override {
    for (auto const& stream : streams_) wait({stream.last, std::string(prefix)});
    host_->barrier();
  }

 private:
  /// One operation on the stream of its communicator.
  struct Call {
    NcclComm& comm;
    memory::Queue& queue;
    cudaStream_t stream;
    std::string const& what;
    std::size_t numel;
    ncclDataType_t type;
    template <class Body>
    void start(Body&& body) const {
      comm.call(what, body);
    }
    template <class Body>
    void start_group(Body&& body) const {
      comm.group(what, body);
    }
  };

  /// Inside a group a call may return ncclInProgress.
  static bool accepted(ncclResult_t status) {
    return status == ncclSuccess || status == ncclInProgress;
  }
  static bool reduces(Kind kind) {
    return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
  }
  std::size_t stream_of(Kind kind) const { return reduces(kind) ? streams_.size() - 1 : 0; }

  bool happens_soon(Event const& event) {
    HangWatch::Inside const inside(hang_watch_, HangWatch::Watched::caller);
    return event.wait_for(5ms);
  }

  template <class Body>
  Pending run(Operation const& o, Event after, Body const& body) {
    watchdog_->rethrow();
    if (o.kind != Kind::all_to_all_v) count_nccl_traffic(o, nullptr, rank(), size());
    std::string what = concat(prefix, describe(o));
    auto const index = stream_of(o.kind);
    auto& stream = streams_[index];
    HangWatch::Inside const inside(hang_watch_, HangWatch::Watched::caller);
    stream.queue->wait(after);
    try {
      body(Call{*stream.comm, *stream.queue,
                static_cast<cudaStream_t>(stream.queue->native_stream()), what,
                static_cast<std::size_t>(o.numel), nccl_type(o.dtype)});
    } catch (...) {
      watchdog_->fail(std::current_exception());
      watchdog_->rethrow();
    }
    stream.last = stream.queue->record();
    FlightRecorder::of_process().add(what, after, stream.last);
    watchdog_->add(index, what, std::move(after), stream.last);
    return {stream.last, std::move(what)};
  }

  static bool is_contiguous(StridedShards shards) {
    return shards.offset == 0 && shards.count == shards.stride;
  }
  /// The shards of all ranks in memory, @p stride elements apart.
  template <class Rows, class View>
  static Rows rows_of(View const& view, StridedShards shards) {
    return {element(view, shards.offset),
            static_cast<std::size_t>(shards.stride) * size_of(view.dtype())};
  }

  /// sum [count] of this rank's shard. @p packed [size * count]: null for contiguous shards, whose
  /// sum may be in place.
  void sum_shards(Call const& c, TensorView in, StridedShards shards, void* packed,
                  void* sum) const {
    std::size_t const row = c.numel * size_of(in.dtype());
    if (packed)
      memory::copy_rows(c.queue, {packed, row}, rows_of<memory::ConstStridedRows>(in, shards), row,
                        static_cast<std::size_t>(size()));
    c.start([&](ncclComm_t comm) {
      return ncclReduceScatter(packed ? packed : in.data(), sum, c.numel, c.type, ncclSum, comm,
                               c.stream);
    });
  }
  /// This rank's place in packed shards. Operations on packed shards are in place: a strided
  /// shard's place in its window is another one on every rank, which symmetric windows do not
  /// allow.
  void* packed_shard(void* packed, Operation const& o) const {
    return static_cast<std::byte*>(packed) + static_cast<std::size_t>(rank()) * o.bytes();
  }
  /// @param own_region whether @p mine is this rank's shard of @p out
  Pending gather_shards(Operation const& o, void const* mine, TensorView out, StridedShards shards,
                        bool own_region, Event after) {
    void* const packed =
        is_contiguous(shards) ? nullptr : scratch(stream_of(o.kind), Scratch::packed, all_bytes(o));
    void const* const from = packed && own_region ? packed_shard(packed, o) : mine;
    return run(o, std::move(after), [=, this](Call const& c) {
      if (from != mine) memory::copy(c.queue, packed_shard(packed, o), mine, o.bytes());
      c.start([&](ncclComm_t comm) {
        return ncclAllGather(from, packed ? packed : out.data(), c.numel, c.type, comm, c.stream);
      });
      if (packed)
        memory::copy_rows(c.queue, rows_of<memory::StridedRows>(out, shards), {packed, o.bytes()},
                          o.bytes(), static_cast<std::size_t>(size()));
    });
  }
  Parts equal_parts(Operation const& o) const {
    Parts parts;
    for (int q = 0; q < size(); ++q) {
      parts.counts.push_back(o.numel);
      parts.offsets.push_back(q * o.numel);
    }
    return parts;
  }
  Pending exchange(Operation const& o, ConstTensorView in, Parts const& send, TensorView out,
                   Parts const& receive, Event after) {
    if (o.kind == Kind::all_to_all_v) count_nccl_traffic(o, &send, rank(), size());
    return run(o, std::move(after), [&, this](Call const& c) {
      c.start_group([&](ncclComm_t comm) {
        auto status = ncclSuccess;
        for (int q = 0; accepted(status) && q < size(); ++q) {
          auto const part = static_cast<std::size_t>(q);
          if (send.counts[part] > 0)
            status =
                ncclSend(element(in, send.offsets[part]),
                         static_cast<std::size_t>(send.counts[part]), c.type, q, comm, c.stream);
          if (accepted(status) && receive.counts[part] > 0)
            status =
                ncclRecv(element(out, receive.offsets[part]),
                         static_cast<std::size_t>(receive.counts[part]), c.type, q, comm, c.stream);
        }
        return status;
      });
    });
  }
  std::size_t all_bytes(Operation const& o) const {
    return static_cast<std::size_t>(size()) * o.bytes();
  }
  /// Buffers of a stream, reused: its operations run one after the other. Registered as the inputs
  /// are.
  enum class Scratch { packed, sum };
  void* scratch(std::size_t index, Scratch which, std::size_t bytes) {
    watchdog_->rethrow();
    auto& buffer = streams_[index].scratch[static_cast<std::size_t>(which)];
    if (buffer.bytes < bytes) {
      wait({streams_[index].last, std::string(prefix)});
      buffer.data.reset();
      buffer.data =
          memory_.allocate(which == Scratch::packed ? "packed shards" : "sums of reduce-scatter",
                           memory::Purpose::communication, bytes);
      buffer.bytes = bytes;
    }
    return buffer.data.get();
  }

  std::unique_ptr<Collectives> host_;
  Deadline deadline_;
  CheckedOperations operations_;
  std::vector<CommStream> streams_;
  NcclMemory memory_;
  HangWatch hang_watch_;
  std::unique_ptr<NcclWatchdog> watchdog_;
};

}  // namespace

std::unique_ptr<Collectives> make_nccl(std::unique_ptr<Collectives> host, Deadline deadline,
                                       NcclOptions const& options) {
  deadline = std::min(deadline, Deadline(std::chrono::hours(24 * 365)));
  auto start = start_streams(*host, deadline, options);
  return std::make_unique<NcclCollectives>(std::move(host), std::move(start.streams), start.windows,
                                           deadline, std::string());
}

}  // namespace tessera::comm::detail
#else

std::unique_ptr<tessera::comm::Collectives> tessera::comm::detail::make_nccl(
    std::unique_ptr<Collectives>, Deadline, NcclOptions const&) {
  throw ConfigError(
      "collectives on devices need NCCL, and this build has none; configure with "
      "TESSERA_ENABLE_CUDA=ON (cmake --preset cuda)");
}

#endif
