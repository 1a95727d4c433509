#include "tessera/comm/base/timed_collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "tessera/comm/base/traffic.hpp"
#include "tessera/core/text.hpp"

namespace tessera::comm {
namespace {

std::string label_of(std::string const& operation, std::string const& group) {
  return group.empty() ? operation : operation + ", " + group;
}

double mean(std::vector<double> const& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double gigabits(std::size_t bytes, double seconds) {
  return seconds > 0.0 ? 8e-9 * static_cast<double>(bytes) / seconds : 0.0;
}

}  // namespace

TimedCollectives::TimedCollectives(std::unique_ptr<Collectives> inner, Options options)
    : TimedCollectives(std::move(inner), std::move(options), {}, std::make_shared<Log>()) {}

TimedCollectives::TimedCollectives(std::unique_ptr<Collectives> inner, Options options,
                                   std::string group, std::shared_ptr<Log> log)
    : inner_(std::move(inner)),
      options_(std::move(options)),
      group_(std::move(group)),
      log_(std::move(log)) {}

std::unique_ptr<Collectives> TimedCollectives::split(topology::RankGroup const& group) {
  auto of_group = inner_->split(group);
  if (!of_group) return nullptr;
  return std::unique_ptr<Collectives>(
      new TimedCollectives(std::move(of_group), options_, group.name, log_));
}

std::vector<TimedCollectives::Entry> TimedCollectives::entries() const {
  std::lock_guard lock(log_->mutex);
  std::vector<Entry> out;
  for (auto const& [of, times] : log_->times)
    out.push_back({std::get<0>(of), std::get<1>(of), std::get<2>(of), times.ranks, times.seconds});
  return out;
}

std::string TimedCollectives::table() const {
  std::string out =
      fmt::format("{:<15} {:>12} {:>8} {:>12} {:>12} {:>14} {:>14}\n", "operation", "message",
                  "count", "total ms", "mean ms", "algbw Gbit/s", "busbw Gbit/s");
  for (auto const& entry : entries()) {
    double const average = mean(entry.seconds), rate = gigabits(entry.bytes, average);
    out += fmt::format("{:<15} {:>12} {:>8} {:>12.3f} {:>12.3f} {:>14.3f} {:>14.3f}\n",
                       label_of(entry.operation, entry.group),
                       human_bytes(static_cast<std::int64_t>(entry.bytes)), entry.seconds.size(),
                       1e3 * average * static_cast<double>(entry.seconds.size()), 1e3 * average,
                       rate, rate * bus_factor(entry.operation, entry.ranks));
  }
  return out;
}

namespace {

/// All-to-all operations of parts of any size: each rank sends another number of bytes.
constexpr char const* uneven_all_to_all = "all_to_all_v";

/// Whether every rank measures the same calls under this entry.
bool is_compared(TimedCollectives::Entry const& entry) {
  return entry.group.empty() && entry.operation != uneven_all_to_all;
}

/// The measured seconds of the operations of all ranks, one after the other.
std::vector<double> seconds_of(std::vector<TimedCollectives::Entry> const& entries) {
  std::vector<double> out;
  for (auto const& entry : entries)
    if (is_compared(entry)) out.insert(out.end(), entry.seconds.begin(), entry.seconds.end());
  return out;
}

/// Which operations were measured, how often: a text that ranks compare.
std::string counts_of(std::vector<TimedCollectives::Entry> const& entries) {
  std::string out;
  for (auto const& entry : entries)
    if (is_compared(entry))
      out += fmt::format("{} {} {}\n", entry.operation, entry.bytes, entry.seconds.size());
  return out;
}

}  // namespace

TimedCollectives::Stragglers TimedCollectives::stragglers() {
  auto const all = entries();
  auto const own = seconds_of(all);
  bool const same = broadcast_bytes(*inner_, counts_of(all), 0) == counts_of(all);
  if (!agree(*inner_, same) || own.empty()) return {};
  auto shortest = own;
  all_reduce_values(*inner_, shortest, ReduceOp::min);
  std::vector<double> waited(own.size()), last_of(static_cast<std::size_t>(size()), 0.0);
  for (std::size_t i = 0; i < own.size(); ++i) waited[i] = own[i] - shortest[i];
  for (double const time : waited) last_of[static_cast<std::size_t>(rank())] += time == 0.0;
  all_reduce_values(*inner_, waited, ReduceOp::sum);
  all_reduce_values(*inner_, last_of, ReduceOp::sum);

  Stragglers out;
  out.last_of.assign(last_of.begin(), last_of.end());
  for (auto const& entry : all) {
    if (!is_compared(entry)) continue;
    Stragglers::Row row{entry.operation, entry.bytes, entry.seconds.size()};
    for (std::size_t i = 0; i < row.count; ++i, ++out.calls)
      row.least_seconds += shortest[out.calls], row.waiting_seconds += waited[out.calls] / size();
    out.rows.push_back(std::move(row));
  }
  return out;
}

std::string TimedCollectives::Stragglers::table() const {
  if (rows.empty()) return {};
  std::string out = fmt::format("{:<15} {:>12} {:>8} {:>14} {:>14}\n", "operation", "message",
                                "count", "min ms", "straggler ms");
  for (auto const& row : rows)
    out += fmt::format("{:<15} {:>12} {:>8} {:>14.3f} {:>14.3f}\n", row.operation,
                       human_bytes(static_cast<std::int64_t>(row.bytes)), row.count,
                       1e3 * row.least_seconds, 1e3 * row.waiting_seconds);
  for (std::size_t q = 0; q < last_of.size(); ++q)
    out += fmt::format("rank {} came last to {} of {} operations\n", q, last_of[q], calls);
  return out;
}

ConfigTree TimedCollectives::json(Stragglers const& stragglers) const {
  ConfigTree::Array operations, waiting, last_of;
  for (auto const& entry : entries()) {
    double const average = mean(entry.seconds);
    operations.push_back(
        ConfigTree::object()
            .set("operation", entry.operation)
            .set("group", entry.group.empty() ? "world" : entry.group)
            .set("ranks", entry.ranks)
            .set("bytes", static_cast<std::int64_t>(entry.bytes))
            .set("count", static_cast<std::int64_t>(entry.seconds.size()))
            .set("mean_seconds", average)
            .set("least_seconds", *std::ranges::min_element(entry.seconds))
            .set("most_seconds", *std::ranges::max_element(entry.seconds))
            .set("bus_bandwidth", average > 0.0
                                      ? static_cast<double>(entry.bytes) *
                                            bus_factor(entry.operation, entry.ranks) / average
                                      : 0.0));
  }
  for (auto const& row : stragglers.rows)
    waiting.push_back(ConfigTree::object()
                          .set("operation", row.operation)
                          .set("bytes", static_cast<std::int64_t>(row.bytes))
                          .set("count", static_cast<std::int64_t>(row.count))
                          .set("least_seconds", row.least_seconds)
                          .set("waiting_seconds", row.waiting_seconds));
  for (std::int64_t const count : stragglers.last_of) last_of.emplace_back(count);
  return ConfigTree::object()
      .set("operations", std::move(operations))
      .set("waiting", std::move(waiting))
      .set("came_last", std::move(last_of));
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
    std::lock_guard lock(log_->mutex);
    auto& times = log_->times[{operation.name, group_, bytes}];
    times.ranks = size();
    times.seconds.push_back(seconds);
  }
  if (options_.each)
    options_.each(
        fmt::format("comm op: {} | time (ms): {:.3f} | msg size: {} | algbw (Gbps): {:.3f}",
                    label_of(operation.name, group_), 1e3 * seconds,
                    human_bytes(static_cast<std::int64_t>(bytes)), gigabits(bytes, seconds)));
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

Pending TimedCollectives::all_to_all(memory::ConstTensorView in, memory::TensorView out,
                                     memory::Event after) {
  return timed({"all_to_all", in.numel(), in.dtype()}, after,
               [&] { return inner_->all_to_all(in, out, after); });
}

/// The message is what this rank sends.
Pending TimedCollectives::all_to_all(memory::ConstTensorView in, Parts const& send,
                                     memory::TensorView out, Parts const& receive,
                                     memory::Event after) {
  auto const sent = std::accumulate(send.counts.begin(), send.counts.end(), std::int64_t{0});
  return timed({uneven_all_to_all, sent, in.dtype()}, after,
               [&] { return inner_->all_to_all(in, send, out, receive, after); });
}

Pending TimedCollectives::send(memory::ConstTensorView data, int to, memory::Event after) {
  return timed({"send", data.numel(), data.dtype()}, after,
               [&] { return inner_->send(data, to, after); });
}

Pending TimedCollectives::receive(memory::TensorView data, int from, memory::Event after) {
  return timed({"receive", data.numel(), data.dtype()}, after,
               [&] { return inner_->receive(data, from, after); });
}

}  // namespace tessera::comm
