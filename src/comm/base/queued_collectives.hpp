#pragma once
/// Collectives over a transport: the caller checks the arguments, a worker thread runs the
/// operations in call order. Also those of one rank on its device, and those through pinned host
/// memory.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/checked_operations.hpp"
#include "base/transport.hpp"
#include "tessera/comm/base/collectives.hpp"

namespace tessera::comm::detail {

/// Time that a destructor waits for operations in flight, and that wait() adds to the deadline.
inline constexpr Deadline grace = std::chrono::seconds(5);

/// A network between simulated nodes, for tests and benchmarks on one machine: an operation takes
/// longer by what its messages to other nodes would take.
struct SimulatedNetwork {
  double latency_seconds = 0.0;   ///< per message
  double bytes_per_second = 1.0;  ///< bandwidth of a node, shared by its ranks

  /// Parses "LATENCY_US,GB_PER_S". @throws ConfigError
  static SimulatedNetwork from_text(std::string const& text);
  /// Parses the variable TESSERA_SIMULATED_NETWORK; none where it is not set.
  static std::optional<SimulatedNetwork> of_environment();

  /// A rank's messages to other nodes follow each other. @param bytes of all ranks of the node
  std::chrono::nanoseconds delay(int messages, std::size_t bytes) const;
};

class QueuedCollectives final : public Collectives {
 public:
  /// @param group name of the group; empty: all ranks of the job
  QueuedCollectives(std::unique_ptr<Transport> transport, Deadline deadline,
                    std::string const& group = {});
  /// Waits a few seconds for operations in flight, then abandons them.
  ~QueuedCollectives() override;

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::unique_ptr<Collectives> split(topology::RankGroup const& group) override;
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override;
  Pending broadcast(memory::TensorView data, int root, memory::Event after) override;
  Pending all_reduce(memory::TensorView data, ReduceOp op, memory::Event after) override;
  Pending reduce(memory::TensorView data, ReduceOp op, int root, memory::Event after) override;
  Pending reduce_scatter(memory::TensorView in, StridedShards shards, memory::TensorView out,
                         memory::WriteMode mode, memory::Event after) override;
  Pending all_gather(memory::TensorView inout, StridedShards shards, memory::Event after) override;
  Pending all_gather(memory::ConstTensorView in, memory::TensorView out, StridedShards shards,
                     memory::Event after) override;
  Pending scatter(memory::ConstTensorView in, memory::TensorView out, int root,
                  memory::Event after) override;
  Pending gather(memory::ConstTensorView in, memory::TensorView out, int root,
                 memory::Event after) override;
  Pending all_to_all(memory::ConstTensorView in, memory::TensorView out,
                     memory::Event after) override;
  Pending all_to_all(memory::ConstTensorView in, Parts const& send, memory::TensorView out,
                     Parts const& receive, memory::Event after) override;
  Pending send(memory::ConstTensorView data, int to, memory::Event after) override;
  Pending receive(memory::TensorView data, int from, memory::Event after) override;
  void wait(Pending const& pending) override;
  void barrier() override;

 private:
  /// @param send of an all_to_all_v
  Pending enqueue(Operation const& operation, memory::Event after,
                  std::function<void(Transport&)> body, Parts const* send = nullptr);
  /// Runs an operation in the calling thread, which would wait for it. @pre may_run_in_caller()
  Pending run_in_caller(Operation const& operation, memory::Event const& after,
                        std::function<void(Transport&)> const& body);
  /// Nothing is in flight and nothing has failed.
  bool may_run_in_caller() const;
  void wait_for_input(memory::Event const& after, Operation const& operation) const;

  /// Returns the delay of an operation between simulated nodes.
  std::chrono::nanoseconds network_delay(Operation const& operation, Parts const* send) const;

  std::unique_ptr<Transport> transport_;
  std::optional<SimulatedNetwork> network_;
  Deadline deadline_;
  CheckedOperations operations_;
  std::atomic<std::uint64_t> progress_{0};  ///< counts the steps of the worker thread
  memory::Event last_;
  std::unique_ptr<memory::Queue> queue_;
};

/// Copies, conversions and sums on a stream of the device; no library takes part. Operands in host
/// memory are passed on to @p host, which has one rank.
std::unique_ptr<Collectives> make_single_rank(std::unique_ptr<Collectives> host);

/// Collectives on device memory through pinned host memory and the collectives of the host.
std::unique_ptr<Collectives> make_staged(std::unique_ptr<Collectives> host, Deadline deadline);

}  // namespace tessera::comm::detail
