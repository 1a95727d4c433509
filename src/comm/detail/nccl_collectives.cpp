// Collectives by NCCL, user guide sections "Collective Operations", "Point-to-point communication",
// "In-place Operations".
#include "detail/nccl_collectives.hpp"

#include <utility>

#include "tessera/core/error.hpp"

#ifdef TESSERA_HAVE_CUDA
#include <algorithm>
#include <optional>

#include "detail/checked_operations.hpp"
#include "detail/device_operands.hpp"
#include "detail/nccl_memory.hpp"
#include "detail/nccl_start.hpp"
#include "detail/nccl_watchdog.hpp"
#include "tessera/core/log.hpp"
#include "tessera/kernels/elementwise.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::comm::detail {
namespace {

using memory::ConstTensorView;
using memory::Event;
using memory::TensorView;
using namespace std::chrono_literals;

/// Time for an operation to come to rest after its communicator was ended: its buffers may be freed
/// next.
constexpr Deadline grace = 5s;

/// Pendings of this implementation begin with it; all others are the host's.
constexpr std::string_view mark = "NCCL ";

struct Lane {
  std::unique_ptr<memory::Queue> stream;
  std::unique_ptr<NcclComm> comm;
  Event last;
};

Lane make_lane(char const* name, int rank, Deadline deadline) {
  return {memory::make_stream_queue(name, memory::StreamPriority::high),
          std::make_unique<NcclComm>(name, rank, deadline),
          {}};
}

/// One lane for operations that move data and one for those that reduce; one for both where NCCL
/// does not keep the order in which two communicators' kernels start.
std::vector<Lane> start_lanes(Collectives& host, Deadline deadline) {
  int const version = common_nccl_version(host);
  bool const two = nccl_keeps_launch_order(host, version);
  auto const id = common_nccl_id(host);
  std::vector<Lane> lanes;
  std::optional<Error> refused;
  lanes.push_back(make_lane("tessera", host.rank(), deadline));
  try {
    lanes.front().comm->start(host.size(), id);
    if (two) {
      lanes.push_back(make_lane("tessera reductions", host.rank(), deadline));
      lanes.back().comm->split_from(*lanes.front().comm);
    }
  } catch (PeerLostError const&) {
    for (auto& lane : lanes) lane.comm->abort();
    throw;
  } catch (Error const& error) {
    refused = error;
  }
  bool const all = agree(host, !refused);
  if (!all)
    for (auto& lane : lanes) lane.comm->abort();
  if (refused) throw *refused;
  TESSERA_VALIDATE(all, ConfigError,
                   "NCCL could not be started on another rank; its own message says why");
  log::debug(concat(
      "NCCL ", nccl_version_text(version), " (built with ", nccl_version_text(NCCL_VERSION_CODE),
      "): ",
      two ? "one communicator for reductions and one for everything else" : "one communicator",
      two ? ""
          : "; two, which overlap, need NCCL 2.26 and NCCL_LAUNCH_ORDER_IMPLICIT other than 0"));
  return lanes;
}

std::vector<NcclComm*> comms_of(std::vector<Lane> const& lanes) {
  std::vector<NcclComm*> out;
  for (auto const& lane : lanes) out.push_back(lane.comm.get());
  return out;
}

bool apart(void const* a, void const* b, std::size_t bytes) {
  auto const* const x = static_cast<std::byte const*>(a);
  auto const* const y = static_cast<std::byte const*>(b);
  return x + bytes <= y || y + bytes <= x;
}

/// Operations on device memory are queued by the thread that calls, on the stream of their lane, in
/// the order of the calls; those on host memory go to the host's collectives. Strided blocks are
/// one group of per-rank operations, without packing.
class NcclCollectives final : public Collectives {
 public:
  NcclCollectives(std::unique_ptr<Collectives> host, Deadline deadline)
      : host_(std::move(host)),
        arguments_(host_->rank(), host_->size()),
        lanes_(start_lanes(*host_, deadline)),
        memory_(*host_, comms_of(lanes_)),
        watch_(std::make_unique<NcclWatchdog>(comms_of(lanes_), host_->rank(), deadline)) {}
  /// Peers are waited for only when all is well here.
  ~NcclCollectives() override {
    bool const well = !watch_->failed() && std::uncaught_exceptions() == 0;
    watch_.reset();
    if (!well)
      for (auto& lane : lanes_) lane.comm->abort();
    scratch_.reset();
    memory_.close();
    for (auto lane = lanes_.rbegin(); lane != lanes_.rend(); ++lane) lane->comm->finish();
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override {
    return memory_.allocate(name, purpose, bytes);
  }

  Pending broadcast(TensorView data, int root, Event after) override {
    if (!memory::on_device(data.data())) return host_->broadcast(data, root, std::move(after));
    return run(arguments_.broadcast(data, root), std::move(after), [=](Call const& c) {
      c.start([&](ncclComm_t comm) {
        return ncclBroadcast(data.data(), data.data(), c.numel, c.type, root, comm, c.stream);
      });
    });
  }
  Pending all_reduce(TensorView data, ReduceOp op, Event after) override {
    if (!memory::on_device(data.data())) return host_->all_reduce(data, op, std::move(after));
    return run(arguments_.all_reduce(data, op), std::move(after), [=](Call const& c) {
      c.start([&](ncclComm_t comm) {
        return ncclAllReduce(data.data(), data.data(), c.numel, c.type, nccl_op(op), comm,
                             c.stream);
      });
    });
  }
  Pending reduce(TensorView data, ReduceOp op, int root, Event after) override {
    if (!memory::on_device(data.data())) return host_->reduce(data, op, root, std::move(after));
    bool const is_root = rank() == root;
    return run(arguments_.reduce(data, op, root), std::move(after), [=](Call const& c) {
      c.start([&](ncclComm_t comm) {
        return ncclReduce(data.data(), is_root ? data.data() : nullptr, c.numel, c.type,
                          nccl_op(op), root, comm, c.stream);
      });
    });
  }
  Pending reduce_scatter(TensorView in, Blocks blocks, TensorView out, bool accumulate,
                         Event after) override {
    if (!memory::on_device(in.data()))
      return host_->reduce_scatter(in, blocks, out, accumulate, std::move(after));
    auto const o = arguments_.reduce_scatter(in, blocks, out);
    expect_on_device(o, out.data());
    void* const block = element(in, rank() * blocks.stride + blocks.offset);
    bool const in_place = out.data() == block || apart(out.data(), block, o.bytes());
    bool const converts = accumulate || in.dtype() != out.dtype();
    TESSERA_VALIDATE(!converts || (is_float(in.dtype()) && is_float(out.dtype())), InternalError,
                     describe(o),
                     ": on a device sums are added and converted as fp32, fp16 or bf16, not from ",
                     name_of(in.dtype()), " to ", name_of(out.dtype()));
    bool const direct = !converts && in_place;
    TensorView const sum = direct ? out : scratch(o);
    return run(o, std::move(after), [=, this](Call const& c) {
      sum_blocks(c, in, blocks, sum.data());
      if (accumulate)
        kernels::add(c.queue, out, sum);
      else if (in.dtype() != out.dtype())
        kernels::cast(c.queue, out, sum);
      else if (!direct)
        memory::copy(c.queue, out.data(), sum.data(), out.bytes());
    });
  }
  Pending all_gather(TensorView inout, Blocks blocks, Event after) override {
    if (!memory::on_device(inout.data())) return host_->all_gather(inout, blocks, std::move(after));
    auto const o = arguments_.all_gather(inout, blocks);
    if (size() == 1) return {std::move(after), concat(mark, describe(o))};
    return gather_blocks(o, element(inout, rank() * blocks.stride + blocks.offset), inout, blocks,
                         std::move(after));
  }
  Pending all_gather(ConstTensorView in, TensorView out, Blocks blocks, Event after) override {
    if (!memory::on_device(out.data())) return host_->all_gather(in, out, blocks, std::move(after));
    auto const o = arguments_.all_gather(in, out, blocks);
    expect_on_device(o, in.data());
    return gather_blocks(o, element(in, blocks.offset), out, blocks, std::move(after));
  }
  Pending scatter(ConstTensorView in, TensorView out, int root, Event after) override {
    if (!memory::on_device(out.data())) return host_->scatter(in, out, root, std::move(after));
    auto const o = arguments_.scatter(in, out, root);
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
    auto const o = arguments_.gather(in, out, root);
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

  /// Never by waiting for the device alone: after an error the streams come to rest with nothing
  /// done.
  void wait(Pending const& pending) override {
    if (!pending.event().state()) return;
    if (!pending.what().starts_with(mark)) return host_->wait(pending);
    while (!watch_->failed() && !pending.event().wait_for(5ms)) {
    }
    if (watch_->failed()) pending.event().wait_for(grace);
    watch_->rethrow();
    pending.event().wait(pending.what(), 0ms);
  }
  void barrier() override {
    for (auto const& lane : lanes_) wait({lane.last, std::string(mark)});
    host_->barrier();
  }

 private:
  /// One operation on its lane.
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

  /// Inside a group a call may be accepted without having been started.
  static bool accepted(ncclResult_t status) {
    return status == ncclSuccess || status == ncclInProgress;
  }
  static bool reduces(Kind kind) {
    return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
  }
  std::size_t lane_of(Kind kind) const { return reduces(kind) ? lanes_.size() - 1 : 0; }

  static bool is_float(Dtype dtype) {
    return dtype == Dtype::fp32 || dtype == Dtype::fp16 || dtype == Dtype::bf16;
  }
  static void expect_on_device(Operation const& o, void const* data) {
    TESSERA_VALIDATE(o.numel == 0 || memory::on_device(data), InternalError, describe(o),
                     ": one operand is in device memory, the other in host memory");
  }

  template <class Body>
  Pending run(Operation const& o, Event after, Body const& body) {
    watch_->rethrow();
    std::string what = concat(mark, describe(o));
    auto const index = lane_of(o.kind);
    auto& lane = lanes_[index];
    lane.stream->wait(after);
    try {
      body(Call{*lane.comm, *lane.stream, static_cast<cudaStream_t>(lane.stream->native_stream()),
                what, static_cast<std::size_t>(o.numel), nccl_type(o.dtype)});
    } catch (...) {
      watch_->fail(std::current_exception());
      watch_->rethrow();
    }
    lane.last = lane.stream->record();
    watch_->add(index, what, std::move(after), lane.last);
    return {lane.last, std::move(what)};
  }

  /// sum [count] of this rank's block; it may be that block.
  void sum_blocks(Call const& c, TensorView in, Blocks blocks, void* sum) const {
    if (blocks.offset == 0 && blocks.count == blocks.stride)
      return c.start([&](ncclComm_t comm) {
        return ncclReduceScatter(in.data(), sum, c.numel, c.type, ncclSum, comm, c.stream);
      });
    c.start_group([&](ncclComm_t comm) {
      auto status = ncclSuccess;
      for (int q = 0; accepted(status) && q < size(); ++q)
        status =
            ncclReduce(element(in, q * blocks.stride + blocks.offset), q == rank() ? sum : nullptr,
                       c.numel, c.type, ncclSum, q, comm, c.stream);
      return status;
    });
  }
  Pending gather_blocks(Operation const& o, void const* mine, TensorView out, Blocks blocks,
                        Event after) {
    return run(o, std::move(after), [=, this](Call const& c) {
      if (blocks.offset == 0 && blocks.count == blocks.stride)
        return c.start([&](ncclComm_t comm) {
          return ncclAllGather(mine, out.data(), c.numel, c.type, comm, c.stream);
        });
      c.start_group([&](ncclComm_t comm) {
        auto status = ncclSuccess;
        for (int q = 0; accepted(status) && q < size(); ++q) {
          void* const to = element(out, q * blocks.stride + blocks.offset);
          status = ncclBroadcast(q == rank() ? mine : to, to, c.numel, c.type, q, comm, c.stream);
        }
        return status;
      });
    });
  }
  /// Of the reductions' lane, kept: its operations run one after the other. Registered as the
  /// inputs are.
  TensorView scratch(Operation const& o) {
    watch_->rethrow();
    if (scratch_bytes_ < o.bytes()) {
      wait({lanes_.back().last, std::string(mark)});
      scratch_.reset();
      scratch_ =
          memory_.allocate("sums before they are added", memory::Purpose::communication, o.bytes());
      scratch_bytes_ = o.bytes();
    }
    return {scratch_.get(), o.dtype, {o.numel}};
  }

  std::unique_ptr<Collectives> host_;
  CheckedOperations arguments_;
  std::vector<Lane> lanes_;
  NcclMemory memory_;
  std::unique_ptr<NcclWatchdog> watch_;
  std::shared_ptr<void> scratch_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Collectives> make_nccl(std::unique_ptr<Collectives> host, Deadline deadline) {
  return std::make_unique<NcclCollectives>(
      std::move(host), std::min(deadline, Deadline(std::chrono::hours(24 * 365))));
}

}  // namespace tessera::comm::detail
#else

std::unique_ptr<tessera::comm::Collectives> tessera::comm::detail::make_nccl(
    std::unique_ptr<Collectives>, Deadline) {
  throw ConfigError(
      "collectives on devices need NCCL, and this build has none; configure with "
      "TESSERA_ENABLE_CUDA=ON (cmake --preset cuda)");
}

#endif
