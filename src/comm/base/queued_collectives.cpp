#include "base/queued_collectives.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "base/traffic_count.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/base/flight_recorder.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"

namespace tessera::comm::detail {
namespace {

using namespace std::chrono_literals;

/// A longer deadline could overflow the clock.
constexpr Deadline longest = std::chrono::hours(24 * 365);

std::byte* bytes_of(memory::TensorView v) { return static_cast<std::byte*>(v.data()); }
std::byte const* bytes_of(memory::ConstTensorView v) {
  return static_cast<std::byte const*>(v.data());
}

}  // namespace

QueuedCollectives::QueuedCollectives(std::unique_ptr<Transport> transport, Deadline deadline,
                                     std::string const& group)
    : transport_(std::move(transport)),
      network_(SimulatedNetwork::of_environment()),
      deadline_(std::min(deadline, longest)),
      operations_(Group{transport_->rank(), transport_->size(), group}),
      queue_(memory::make_worker_queue("comm")) {}

QueuedCollectives::~QueuedCollectives() {
  if (!last_.wait_for(grace)) transport_->abandon();
  queue_.reset();
}

void QueuedCollectives::wait_for_input(memory::Event const& after, Operation const& o) const {
  while (!after.wait_for(100ms))
    if (transport_->abandoned())
      throw PeerLostError(rank(), concat(describe(o), " was abandoned before its input was ready"));
  after.wait(name_of(o.kind), 0ms);
}

Pending QueuedCollectives::enqueue(Operation const& o, memory::Event after,
                                   std::function<void(Transport&)> body, Parts const* send) {
  count_traffic(o, send, rank(), size(), [this](int peer) { return transport_->is_on_node(peer); });
  if (network_)
    body = [body = std::move(body), delay = network_delay(o, send)](Transport& transport) {
      body(transport);
      std::this_thread::sleep_for(delay);
    };
  if (SynchronousCalls::active() && may_run_in_caller()) return run_in_caller(o, after, body);
  auto const input = after;
  queue_->submit([this, o, after = std::move(after), body = std::move(body)] {
    try {
      ++progress_;
      wait_for_input(after, o);
      ++progress_;
      body(*transport_);
      ++progress_;
    } catch (...) {
      transport_->abandon();
      throw;
    }
  });
  last_ = queue_->record();
  std::string what = describe(o);
  FlightRecorder::of_process().add(what, input, last_);
  return {last_, std::move(what)};
}

/// What this rank sends or receives, where that is more. All ranks of a node do so together.
std::chrono::nanoseconds QueuedCollectives::network_delay(Operation const& o,
                                                          Parts const* send) const {
  int messages = 0;
  std::size_t bytes = 0, of_node = 1;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    if (transport_->is_on_node(peer)) {
      ++of_node;
      continue;
    }
    auto const sent = bytes_to_peer(o, rank(), size(), peer, send);
    auto const received = send ? 0 : bytes_to_peer(o, peer, size(), rank(), nullptr);
    if (sent + received == 0) continue;
    ++messages;
    bytes += std::max(sent, received);
  }
  return network_->delay(messages, bytes * of_node);
}

bool QueuedCollectives::may_run_in_caller() const {
  return last_.done() && !transport_->abandoned();
}

Pending QueuedCollectives::run_in_caller(Operation const& o, memory::Event const& after,
                                         std::function<void(Transport&)> const& body) {
  auto const started = Clock::now();
  double const waited_before = memory::seconds_waited();
  try {
    FlightRecorder::of_process().run([o] { return describe(o); },
                                     [&] {
                                       wait_for_input(after, o);
                                       body(*transport_);
                                     });
  } catch (...) {
    transport_->abandon();
    queue_->submit([error = std::current_exception()] { std::rethrow_exception(error); });
    last_ = queue_->record();  // later operations end with the same error
    throw;
  }
  memory::add_waited(seconds_since(started) - (memory::seconds_waited() - waited_before));
  return {};
}

void QueuedCollectives::wait(Pending const& pending) {
  for (;;) {
    std::uint64_t const seen = progress_;
    if (pending.event().wait_for(deadline_ + grace)) break;
    if (seen == progress_)
      throw PeerLostError(
          -1, concat(pending.what(), ": rank ", rank(), " has waited for ",
                     deadline_text(deadline_ + grace),
                     " and its communication thread makes no progress; a rank may compute or write "
                     "for longer than the communication deadline: then raise the deadline"));
  }
  pending.event().wait(pending.what(), 0ms);
}

std::shared_ptr<void> QueuedCollectives::allocate(std::string const& name, memory::Purpose purpose,
                                                  std::size_t bytes) {
  Operation const o = operations_.allocate(bytes);
  struct Result {
    std::shared_ptr<void> memory;
    std::optional<OutOfMemoryError> refused;  // on all ranks, so that the worker thread continues
  };
  auto const result = std::make_shared<Result>();
  wait(enqueue(o, {}, [=](Transport& t) {
    try {
      result->memory = t.allocate(o, name, purpose);
    } catch (OutOfMemoryError const& error) {
      result->refused = error;
    }
  }));
  if (result->refused) throw OutOfMemoryError(*result->refused);
  return result->memory;
}

std::unique_ptr<Collectives> QueuedCollectives::split(topology::RankGroup const& group) {
  Operation const o = operations_.split();
  auto const made = std::make_shared<std::unique_ptr<Transport>>();
  wait(enqueue(o, {}, [=](Transport& t) { *made = t.split(o, group); }));
  if (!*made) return nullptr;
  auto& transport = **made;
  TESSERA_VALIDATE(group.size == 0 || transport.size() == group.size, InternalError, describe(o),
                   ": ", group.name, " has ", transport.size(), " ranks, not ", group.size);
  if (transport.rank() == 0)
    log::debug(concat(group.name, ": ", transport.size(), " ranks, ", transport.name()));
  return std::make_unique<QueuedCollectives>(std::move(*made), deadline_, group.name);
}

void QueuedCollectives::barrier() {
  Operation const o = operations_.barrier();
  SynchronousCalls const synchronous;
  wait(enqueue(o, {}, [o](Transport& t) { t.barrier(o); }));
}

Pending QueuedCollectives::broadcast(memory::TensorView data, int root, memory::Event after) {
  Operation const o = operations_.broadcast(data, root);
  return enqueue(o, std::move(after), [o, data](Transport& t) { t.broadcast(o, bytes_of(data)); });
}

Pending QueuedCollectives::all_reduce(memory::TensorView data, ReduceOp op, memory::Event after) {
  Operation const o = operations_.all_reduce(data, op);
  return enqueue(o, std::move(after), [o, data](Transport& t) { t.all_reduce(o, bytes_of(data)); });
}

Pending QueuedCollectives::reduce(memory::TensorView data, ReduceOp op, int root,
                                  memory::Event after) {
  Operation const o = operations_.reduce(data, op, root);
  return enqueue(o, std::move(after), [o, data](Transport& t) { t.reduce(o, bytes_of(data)); });
}

Pending QueuedCollectives::reduce_scatter(memory::TensorView in, StridedShards shards,
                                          memory::TensorView out, memory::WriteMode mode,
                                          memory::Event after) {
  Operation const o = operations_.reduce_scatter(in, shards, out);
  return enqueue(o, std::move(after), [o, in, out, mode](Transport& t) {
    t.reduce_scatter(o, bytes_of(in), {bytes_of(out), out.dtype(), mode});
  });
}

Pending QueuedCollectives::all_gather(memory::TensorView inout, StridedShards shards,
                                      memory::Event after) {
  Operation const o = operations_.all_gather(inout, shards);
  return enqueue(o, std::move(after),
                 [o, inout](Transport& t) { t.all_gather(o, nullptr, bytes_of(inout)); });
}

Pending QueuedCollectives::all_gather(memory::ConstTensorView in, memory::TensorView out,
                                      StridedShards shards, memory::Event after) {
  Operation const o = operations_.all_gather(in, out, shards);
  std::byte const* const shard =
      in.empty() ? nullptr : bytes_of(in) + static_cast<std::size_t>(o.offset) * o.element_bytes();
  return enqueue(o, std::move(after),
                 [o, shard, out](Transport& t) { t.all_gather(o, shard, bytes_of(out)); });
}

Pending QueuedCollectives::scatter(memory::ConstTensorView in, memory::TensorView out, int root,
                                   memory::Event after) {
  Operation const o = operations_.scatter(in, out, root);
  return enqueue(o, std::move(after),
                 [o, in, out](Transport& t) { t.scatter(o, bytes_of(in), bytes_of(out)); });
}

Pending QueuedCollectives::gather(memory::ConstTensorView in, memory::TensorView out, int root,
                                  memory::Event after) {
  Operation const o = operations_.gather(in, out, root);
  return enqueue(o, std::move(after),
                 [o, in, out](Transport& t) { t.gather(o, bytes_of(in), bytes_of(out)); });
}

Pending QueuedCollectives::all_to_all(memory::ConstTensorView in, memory::TensorView out,
                                      memory::Event after) {
  Operation const o = operations_.all_to_all(in, out);
  return enqueue(o, std::move(after),
                 [o, in, out](Transport& t) { t.all_to_all(o, bytes_of(in), bytes_of(out)); });
}

Pending QueuedCollectives::all_to_all(memory::ConstTensorView in, Parts const& send,
                                      memory::TensorView out, Parts const& receive,
                                      memory::Event after) {
  Operation const o = operations_.all_to_all(in, send, out, receive);
  auto body = [o, in, send, out, receive](Transport& t) {
    t.all_to_all(o, bytes_of(in), send, bytes_of(out), receive);
  };
  return enqueue(o, std::move(after), std::move(body), &send);
}

Pending QueuedCollectives::send(memory::ConstTensorView data, int to, memory::Event after) {
  Operation const o = operations_.send(data, to);
  return enqueue(o, std::move(after), [o, data](Transport& t) { t.send(o, bytes_of(data)); });
}

Pending QueuedCollectives::receive(memory::TensorView data, int from, memory::Event after) {
  Operation const o = operations_.receive(data, from);
  return enqueue(o, std::move(after), [o, data](Transport& t) { t.receive(o, bytes_of(data)); });
}

SimulatedNetwork SimulatedNetwork::from_text(std::string const& text) {
  double latency_us = 0.0, gigabytes = 0.0;
  int read = 0;
  bool const has_both =
      std::sscanf(text.c_str(), "%lf,%lf%n", &latency_us, &gigabytes, &read) == 2 &&
      static_cast<std::size_t>(read) == text.size();
  TESSERA_VALIDATE(has_both && latency_us >= 0.0 && latency_us <= 1e6 && gigabytes > 0.0 &&
                       std::isfinite(gigabytes),
                   ConfigError, "TESSERA_SIMULATED_NETWORK is '", text,
                   "'; use LATENCY_US,GB_PER_S, such as 20,1: a latency from 0 to 1000000 us and a "
                   "positive bandwidth per node");
  return {1e-6 * latency_us, 1e9 * gigabytes};
}

std::optional<SimulatedNetwork> SimulatedNetwork::of_environment() {
  char const* const text = std::getenv("TESSERA_SIMULATED_NETWORK");
  if (!text) return {};
  return from_text(text);
}

std::chrono::nanoseconds SimulatedNetwork::delay(int messages, std::size_t bytes) const {
  double const seconds = messages * latency_seconds + static_cast<double>(bytes) / bytes_per_second;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * seconds));
}

}  // namespace tessera::comm::detail
