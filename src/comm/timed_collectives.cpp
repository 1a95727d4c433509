#include "tessera/comm/timed_collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "tessera/core/text.hpp"

namespace tessera::comm {
namespace {

/// Data that crosses a link per element of the message, for @p ranks ranks.
double bus_factor(std::string const& operation, double ranks) {
  if (operation == "all_reduce") return 2.0 * (ranks - 1.0) / ranks;
  if (operation == "all_gather" || operation == "reduce_scatter") return (ranks - 1.0) / ranks;
  return 1.0;
}

double mean(std::vector<double> const& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double gigabits(std::size_t bytes, double seconds) {
  return seconds > 0.0 ? 8e-9 * static_cast<double>(bytes) / seconds : 0.0;
}

}  // namespace

TimedCollectives::TimedCollectives(std::unique_ptr<Collectives> inner, Options options)
    : inner_(std::move(inner)), options_(std::move(options)) {}

std::vector<TimedCollectives::Entry> TimedCollectives::entries() const {
  std::lock_guard lock(mutex_);
  std::vector<Entry> out;
  for (auto const& [of, seconds] : times_) out.push_back({of.first, of.second, seconds});
  return out;
}

std::string TimedCollectives::table() const {
  std::string out =
      fmt::format("{:<15} {:>12} {:>8} {:>12} {:>12} {:>14} {:>14}\n", "operation", "message",
                  "count", "total ms", "mean ms", "algbw Gbit/s", "busbw Gbit/s");
  for (auto const& entry : entries()) {
    double const average = mean(entry.seconds), rate = gigabits(entry.bytes, average);
    out +=
        fmt::format("{:<15} {:>12} {:>8} {:>12.3f} {:>12.3f} {:>14.3f} {:>14.3f}\n",
                    entry.operation, human_bytes(static_cast<std::int64_t>(entry.bytes)),
                    entry.seconds.size(), 1e3 * average * static_cast<double>(entry.seconds.size()),
                    1e3 * average, rate, rate * bus_factor(entry.operation, size()));
  }
  return out;
}

Pending TimedCollectives::timed(Operation const& operation, memory::Event const& after,
                                std::function<Pending()> const& start) {
  bool const measured =
      options_.operations.empty() ||
      std::ranges::find(options_.operations, operation.name) != options_.operations.end();
  if (!measured) return start();
  inner_->wait(Pending(after, operation.name));
  auto const begin = std::chrono::steady_clock::now();
  Pending pending = start();
  inner_->wait(pending);
  double const seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::size_t const bytes = static_cast<std::size_t>(operation.numel) * size_of(operation.dtype);
  {
    std::lock_guard lock(mutex_);
    times_[{operation.name, bytes}].push_back(seconds);
  }
  if (options_.each)
    options_.each(fmt::format(
        "comm op: {} | time (ms): {:.3f} | msg size: {} | algbw (Gbps): {:.3f}", operation.name,
        1e3 * seconds, human_bytes(static_cast<std::int64_t>(bytes)), gigabits(bytes, seconds)));
  return pending;
}

Pending TimedCollectives::broadcast(memory::TensorView data, int root, memory::Event after) {
  return timed({"broadcast", data.numel(), data.dtype()}, after,
               [&] { return inner_->broadcast(data, root, after); });
}

Pending TimedCollectives::all_reduce(memory::TensorView data, ReduceOp op, memory::Event after) {
  return timed({"all_reduce", data.numel(), data.dtype()}, after,
               [&] { return inner_->all_reduce(data, op, after); });
}

Pending TimedCollectives::reduce(memory::TensorView data, ReduceOp op, int root,
                                 memory::Event after) {
  return timed({"reduce", data.numel(), data.dtype()}, after,
               [&] { return inner_->reduce(data, op, root, after); });
}

Pending TimedCollectives::reduce_scatter(memory::TensorView in, StridedShards shards,
                                         memory::TensorView out, memory::WriteMode mode,
                                         memory::Event after) {
  return timed({"reduce_scatter", shards.count * size(), in.dtype()}, after,
               [&] { return inner_->reduce_scatter(in, shards, out, mode, after); });
}

Pending TimedCollectives::all_gather(memory::TensorView inout, StridedShards shards,
                                     memory::Event after) {
  return timed({"all_gather", shards.count * size(), inout.dtype()}, after,
               [&] { return inner_->all_gather(inout, shards, after); });
}

Pending TimedCollectives::all_gather(memory::ConstTensorView in, memory::TensorView out,
                                     StridedShards shards, memory::Event after) {
  return timed({"all_gather", shards.count * size(), out.dtype()}, after,
               [&] { return inner_->all_gather(in, out, shards, after); });
}

Pending TimedCollectives::scatter(memory::ConstTensorView in, memory::TensorView out, int root,
                                  memory::Event after) {
  return timed({"scatter", out.numel() * size(), out.dtype()}, after,
               [&] { return inner_->scatter(in, out, root, after); });
}

Pending TimedCollectives::gather(memory::ConstTensorView in, memory::TensorView out, int root,
                                 memory::Event after) {
  return timed({"gather", in.numel() * size(), in.dtype()}, after,
               [&] { return inner_->gather(in, out, root, after); });
}

}  // namespace tessera::comm
