// Collectives by NCCL, user guide sections "Collective Operations", "Point-to-point communication", "Group Calls".
#include "detail/device_collectives.hpp"
#include "detail/nccl.hpp"

#ifdef TESSERA_HAVE_CUDA
#include <utility>

#include "tessera/kernels/elementwise.hpp"

namespace tessera::comm::detail {
namespace {

using memory::ConstTensorView;
using memory::Event;
using memory::TensorView;
using namespace std::chrono_literals;

/// Operations on device memory go to one stream, in the order of the calls, by the thread that calls; those on host memory go to
/// the host's collectives. Strided blocks are one group of per-rank operations, without packing.
class NcclCollectives final : public Collectives {
 public:
  NcclCollectives(std::unique_ptr<Collectives> host, Deadline deadline)
      : host_(std::move(host)), deadline_(deadline), stream_(memory::make_stream_queue("NCCL", memory::StreamPriority::high)),
        nccl_(*host_, deadline) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose, std::size_t bytes) override {
    return allocate_together(*host_, name, purpose, bytes);
  }

  Pending broadcast(TensorView data, int root, Event after) override {
    if (!memory::on_device(data.data())) return host_->broadcast(data, root, std::move(after));
    return run("broadcast", data.bytes(), after, [&](auto const& what) {
      nccl_.check(ncclBroadcast(data.data(), data.data(), count(data), nccl_type(data.dtype()), root, nccl_.get(), stream()), what);
    });
  }
  Pending all_reduce(TensorView data, ReduceOp op, Event after) override {
    if (!memory::on_device(data.data())) return host_->all_reduce(data, op, std::move(after));
    return run("all_reduce", data.bytes(), after, [&](auto const& what) {
      nccl_.check(ncclAllReduce(data.data(), data.data(), count(data), nccl_type(data.dtype()), nccl_op(op), nccl_.get(), stream()), what);
    });
  }
  Pending reduce(TensorView data, ReduceOp op, int root, Event after) override {
    if (!memory::on_device(data.data())) return host_->reduce(data, op, root, std::move(after));
    return run("reduce", data.bytes(), after, [&](auto const& what) {
      nccl_.check(ncclReduce(data.data(), data.data(), count(data), nccl_type(data.dtype()), nccl_op(op), root, nccl_.get(), stream()), what);
    });
  }
  Pending reduce_scatter(TensorView in, Blocks blocks, TensorView out, bool accumulate, Event after) override {
    check_blocks("reduce_scatter", blocks, size(), in.numel());
    if (!memory::on_device(in.data())) return host_->reduce_scatter(in, blocks, out, accumulate, std::move(after));
    return run("reduce_scatter", static_cast<std::size_t>(blocks.count) * size_of(in.dtype()), after, [&](auto const& what) {
      bool const direct = !accumulate && in.dtype() == out.dtype();
      TensorView const sum = direct ? out : scratch(in.dtype(), blocks.count);
      reduce_blocks(in, blocks, sum.data(), what);
      if (accumulate) kernels::add(*stream_, out, sum);
      else if (!direct) kernels::cast(*stream_, out, sum);
    });
  }
  Pending all_gather(TensorView inout, Blocks blocks, Event after) override {
    if (!memory::on_device(inout.data())) return host_->all_gather(inout, blocks, std::move(after));
    check_blocks("all_gather", blocks, size(), inout.numel());
    if (size() == 1) return {std::move(after), "all_gather"};
    return gather_blocks(element(inout, rank() * blocks.stride + blocks.offset), inout, blocks, after);
  }
  Pending all_gather(ConstTensorView in, TensorView out, Blocks blocks, Event after) override {
    if (!memory::on_device(out.data())) return host_->all_gather(in, out, blocks, std::move(after));
    check_blocks("all_gather", blocks, size(), out.numel());
    return gather_blocks(element(in, blocks.offset), out, blocks, after);
  }
  Pending scatter(ConstTensorView in, TensorView out, int root, Event after) override {
    if (!memory::on_device(out.data())) return host_->scatter(in, out, root, std::move(after));
    return run("scatter", out.bytes(), after, [&](auto const& what) {
      group(what, [&] {
        for (int q = 0; rank() == root && q < size(); ++q)
          started(ncclSend(element(in, q * out.numel()), count(out), nccl_type(out.dtype()), q, nccl_.get(), stream()), what);
        started(ncclRecv(out.data(), count(out), nccl_type(out.dtype()), root, nccl_.get(), stream()), what);
      });
    });
  }
  Pending gather(ConstTensorView in, TensorView out, int root, Event after) override {
    if (!memory::on_device(in.data())) return host_->gather(in, out, root, std::move(after));
    return run("gather", in.bytes(), after, [&](auto const& what) {
      group(what, [&] {
        started(ncclSend(in.data(), count(in), nccl_type(in.dtype()), root, nccl_.get(), stream()), what);
        for (int q = 0; rank() == root && q < size(); ++q)
          started(ncclRecv(element(out, q * in.numel()), count(in), nccl_type(in.dtype()), q, nccl_.get(), stream()), what);
      });
    });
  }

  /// Never by waiting for the device alone: a peer that died is seen through the communicator, and after the deadline it is ended.
  void wait(Pending const& pending) override {
    if (!pending.event().state()) return;
    auto const start = std::chrono::steady_clock::now();
    while (!pending.event().wait_for(5ms)) {
      nccl_.look(pending.what());
      if (std::chrono::steady_clock::now() - start <= deadline_) continue;
      nccl_.abort();
      throw PeerLostError(-1, concat("NCCL: ", pending.what(), " on rank ", rank(), " did not finish within ", deadline_.count(),
                                     " ms; a rank is missing. NCCL_DEBUG=INFO says what each rank waits for"));
    }
    pending.event().wait(pending.what(), 0ms);
  }
  void barrier() override { host_->barrier(); }

 private:
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_->native_stream()); }
  template <class View>
  static std::size_t count(View const& view) {
    return static_cast<std::size_t>(view.numel());
  }

  template <class Body>
  Pending run(char const* name, std::size_t bytes, Event const& after, Body&& body) {
    std::string const what = concat(name, " number ", ++calls_, " (", bytes, " bytes a rank)");
    nccl_.look(what);
    stream_->wait(after);
    body(what);
    return {stream_->record(), what};
  }
  /// Inside a group a call may be accepted without having been started.
  void started(ncclResult_t status, std::string const& what) {
    if (status != ncclInProgress) nccl_.check(status, what);
  }
  template <class Body>
  void group(std::string const& what, Body&& body) {
    nccl_.check(ncclGroupStart(), what);
    body();
    nccl_.check(ncclGroupEnd(), what);
  }

  /// sum [count] of this rank's block; it may be that block.
  void reduce_blocks(TensorView in, Blocks blocks, void* sum, std::string const& what) {
    auto const type = nccl_type(in.dtype());
    auto const n = static_cast<std::size_t>(blocks.count);
    if (blocks.offset == 0 && blocks.count == blocks.stride)
      return nccl_.check(ncclReduceScatter(in.data(), sum, n, type, ncclSum, nccl_.get(), stream()), what);
    group(what, [&] {
      for (int q = 0; q < size(); ++q)
        started(ncclReduce(element(in, q * blocks.stride + blocks.offset), q == rank() ? sum : nullptr, n, type, ncclSum, q, nccl_.get(), stream()), what);
    });
  }
  Pending gather_blocks(void const* mine, TensorView out, Blocks blocks, Event const& after) {
    auto const type = nccl_type(out.dtype());
    auto const n = static_cast<std::size_t>(blocks.count);
    return run("all_gather", n * size_of(out.dtype()), after, [&](auto const& what) {
      if (blocks.offset == 0 && blocks.count == blocks.stride)
        return nccl_.check(ncclAllGather(mine, out.data(), n, type, nccl_.get(), stream()), what);
      group(what, [&] {
        for (int q = 0; q < size(); ++q) {
          void* const to = element(out, q * blocks.stride + blocks.offset);
          started(ncclBroadcast(q == rank() ? mine : to, to, n, type, q, nccl_.get(), stream()), what);
        }
      });
    });
  }
  /// Of this stream, kept: its operations run one after the other.
  TensorView scratch(Dtype dtype, std::int64_t numel) {
    auto const bytes = static_cast<std::size_t>(numel) * size_of(dtype);
    if (scratch_.bytes() < bytes) {
      if (scratch_.data()) stream_->record().wait("the operations that use the former scratch memory", deadline_);
      scratch_ = memory::Buffer();
      scratch_ = memory::Buffer("sums before they are added", memory::Purpose::communication, bytes, memory::Tier::device);
    }
    return {scratch_.data(), dtype, {numel}};
  }

  std::unique_ptr<Collectives> host_;
  Deadline deadline_;
  std::unique_ptr<memory::Queue> stream_;
  memory::Buffer scratch_;
  NcclComm nccl_;
  std::uint64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Collectives> make_nccl(std::unique_ptr<Collectives> host, Deadline deadline) {
  return std::make_unique<NcclCollectives>(std::move(host), std::min(deadline, Deadline(std::chrono::hours(24 * 365))));
}

}  // namespace tessera::comm::detail
#else

std::unique_ptr<tessera::comm::Collectives> tessera::comm::detail::make_nccl(std::unique_ptr<Collectives>, Deadline) {
  throw ConfigError("collectives on devices need NCCL, and this build has none; configure with TESSERA_ENABLE_CUDA=ON (cmake --preset cuda)");
}

#endif
