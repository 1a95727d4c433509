#include "tessera/comm/compose/benchmark.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "compose/mpi_reference.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/median.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::comm {
namespace {

using memory::TensorView;
using Clock = std::chrono::steady_clock;

/// An operation and size that needs longer is not repeated further.
constexpr double seconds_per_row = 5.0;

topology::RankGroup group_named(std::string const& name, topology::MpiSession const& session) {
  auto const& info = session.info();
  if (name == "world") return {0, info.rank, info.world_size, "world"};
  if (name == "node") return topology::node_group(session.nodes(), info.rank);
  if (name == "rail") return topology::rail_group(session.nodes(), info.rank);
  int size = 0;
  bool const shard = name.starts_with("shard:");
  char const* const end = name.data() + name.size();
  TESSERA_VALIDATE(shard && std::from_chars(name.data() + 6, end, size).ptr == end, ConfigError,
                   "\"", name, "\" is no group of ranks; use world, node, rail or shard:4");
  return topology::shard_group(info.world_size, info.rank, size);
}

/// Element @p i of the input of rank @p q: small integers, whose sums every dtype holds exactly for
/// up to 85 ranks.
float input_of(int q, std::int64_t i) { return static_cast<float>((i + q) % 4); }

/// The operands of one rank, and what the operations do to them. Values of a group of n ranks are
/// in @p n shards.
class Operands {
 public:
  Operands(Collectives& comm, memory::Queue& compute, Dtype dtype, std::size_t bytes)
      : comm_(comm),
        compute_(compute),
        dtype_(dtype),
        shard_(static_cast<std::int64_t>(bytes / size_of(dtype)) / comm.size()),
        in_(comm.allocate("benchmark.in", memory::Purpose::communication, this->bytes())),
        out_(comm.allocate("benchmark.out", memory::Purpose::communication, this->bytes())) {
    for (int q = 0; q < comm.size(); ++q) {
      for (int i = 0; i < 4; ++i) sums_[i] += input_of(q, i);
    }
  }

  std::int64_t numel() const { return shard_ * comm_.size(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }

  void start(std::string const& operation) {
    TensorView const all(in_.get(), dtype_, {numel()}), result(out_.get(), dtype_, {numel()});
    TensorView const part = all.rows(0, shard_), result_part = result.rows(0, shard_);
    StridedShards const shards{shard_, shard_, 0};
    if (operation == "broadcast") return finish(comm_.broadcast(all, 0, {}));
    if (operation == "all_reduce") return finish(comm_.all_reduce(all, ReduceOp::sum, {}));
    if (operation == "reduce") return finish(comm_.reduce(all, ReduceOp::sum, 0, {}));
    if (operation == "reduce_scatter")
      return finish(
          comm_.reduce_scatter(all, shards, result_part, memory::WriteMode::overwrite, {}));
    if (operation == "all_gather") return finish(comm_.all_gather(all, shards, {}));
    if (operation == "all_to_all") return finish(comm_.all_to_all(all, result, {}));
    if (operation == "scatter") return finish(comm_.scatter(all, result_part, 0, {}));
    finish(comm_.gather(part, result, 0, {}));
  }

  /// Runs @p operation on fresh inputs and counts the wrong elements of the result.
  std::int64_t count_wrong(std::string const& operation) {
    fill();
    start(operation);
    auto const expected = result_of(operation);
    if (!expected.value) return 0;
    std::vector<float> const got = values(expected.in_place ? in_.get() : out_.get());
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < expected.numel; ++i) {
      float const want = expected.value(i);
      float const allowed = dtype_ == Dtype::fp32 ? 0.0f : want / 128.0f;
      wrong += !(std::abs(got[static_cast<std::size_t>(i)] - want) <= allowed);
    }
    return wrong;
  }

 private:
  struct Expected {
    bool in_place = false;
    std::int64_t numel = 0;
    std::function<float(std::int64_t)> value;  ///< empty: this rank has no result
  };

  void finish(Pending const& pending) { comm_.wait(pending); }

  float sum_of(std::int64_t i) const { return sums_[i % 4]; }

  Expected result_of(std::string const& operation) const {
    std::int64_t const first = shard_ * comm_.rank(), shard = shard_;
    bool const root = comm_.rank() == 0;
    int const rank = comm_.rank();
    if (operation == "broadcast")
      return {true, numel(), [](std::int64_t i) { return input_of(0, i); }};
    if (operation == "all_reduce" || (operation == "reduce" && root))
      return {true, numel(), [this](std::int64_t i) { return sum_of(i); }};
    if (operation == "reduce_scatter")
      return {false, shard, [this, first](std::int64_t i) { return sum_of(first + i); }};
    if (operation == "all_gather")
      return {true, numel(),
              [shard](std::int64_t i) { return input_of(static_cast<int>(i / shard), i); }};
    if (operation == "all_to_all")
      return {false, numel(), [shard, rank](std::int64_t i) {
                return input_of(static_cast<int>(i / shard), rank * shard + i % shard);
              }};
    if (operation == "scatter")
      return {false, shard, [first](std::int64_t i) { return input_of(0, first + i); }};
    if (operation == "gather" && root)
      return {false, numel(),
              [shard](std::int64_t i) { return input_of(static_cast<int>(i / shard), i % shard); }};
    return {};
  }

  void fill() {
    std::vector<std::byte> host(bytes());
    for (std::int64_t i = 0; i < numel(); ++i) {
      float const value = input_of(comm_.rank(), i);
      if (dtype_ == Dtype::fp32)
        reinterpret_cast<float*>(host.data())[i] = value;
      else if (dtype_ == Dtype::bf16)
        reinterpret_cast<bfloat16*>(host.data())[i] = bfloat16(value);
      else
        reinterpret_cast<float16*>(host.data())[i] = float16(value);
    }
    memory::copy(compute_, in_.get(), host.data(), bytes());
    finish(Pending(compute_.record(), "copy of operands"));
  }

  std::vector<float> values(void const* from) {
    std::vector<std::byte> host(bytes());
    memory::copy(compute_, host.data(), from, bytes());
    finish(Pending(compute_.record(), "copy of operands"));
    std::vector<float> out(static_cast<std::size_t>(numel()));
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = dtype_ == Dtype::fp32 ? reinterpret_cast<float const*>(host.data())[i]
               : dtype_ == Dtype::bf16
                   ? static_cast<float>(reinterpret_cast<bfloat16 const*>(host.data())[i])
                   : static_cast<float>(reinterpret_cast<float16 const*>(host.data())[i]);
    return out;
  }

  Collectives& comm_;
  memory::Queue& compute_;
  Dtype dtype_;
  std::int64_t shard_;
  std::shared_ptr<void> in_, out_;
  float sums_[4] = {};
};

/// Fewer of large messages, more of small ones.
int repetitions_of(std::size_t bytes, int given) {
  if (given > 0) return given;
  return bytes >= std::size_t{128} << 20 ? 5 : bytes >= std::size_t{1} << 20 ? 11 : 101;
}

/// Seconds of the slowest rank of all, started together.
double slowest_seconds(Collectives& world, std::function<void()> const& body) {
  world.barrier();
  auto const start = Clock::now();
  body();
  return all_reduce_value(world, seconds_since(start), ReduceOp::max);
}

/// Times one group of every rank.
class GroupBenchmark {
 public:
  GroupBenchmark(topology::MpiSession const& session, Collectives& world, memory::Queue& compute,
                 BenchmarkOptions const& options, std::string const& name)
      : world_(world),
        compute_(compute),
        options_(options),
        group_(group_named(name, session)),
        split_(name == "world" ? nullptr : world.split(group_)),
        comm_(split_ ? *split_ : world) {
    if (memory::memory_space_of(compute) == memory::MemorySpace::host)
      mpi_.emplace(session, group_);
  }

  void run(std::size_t bytes, std::vector<BenchmarkRow>& rows) {
    Operands operands(comm_, compute_, options_.dtype, bytes);
    auto const operations =
        options_.operations.empty() ? benchmark_operations() : options_.operations;
    for (auto const& operation : operations)
      rows.push_back(time(operation, operands, repetitions_of(bytes, options_.repetitions)));
  }

 private:
  BenchmarkRow time(std::string const& operation, Operands& operands, int repetitions) {
    BenchmarkRow row;
    row.operation = operation;
    row.group = group_.name;
    row.bytes = operands.bytes();
    row.ranks = comm_.size();
    row.wrong = all_reduce_value(world_, operands.count_wrong(operation), ReduceOp::sum);
    bool const with_mpi = mpi_ && detail::MpiReference::supports(operation, options_.dtype);
    auto const mpi_bytes = with_mpi ? row.bytes : 0;
    memory::Buffer const in("benchmark.mpi_in", memory::Purpose::workspace, mpi_bytes),
        out("benchmark.mpi_out", memory::Purpose::workspace, mpi_bytes);
    std::vector<double> own, of_mpi;
    double spent = 0.0;
    for (int i = -1; i < repetitions && (own.empty() || spent < seconds_per_row); ++i) {
      double const a = slowest_seconds(world_, [&] { operands.start(operation); });
      double const b =
          with_mpi
              ? slowest_seconds(
                    world_,
                    [&] { mpi_->run(operation, options_.dtype, row.bytes, in.data(), out.data()); })
              : 0.0;
      spent += a + b;
      if (i < 0) continue;  // warm-up
      own.push_back(a);
      of_mpi.push_back(b);
    }
    row.repetitions = static_cast<int>(own.size());
    row.median_seconds = median(own);
    row.least_seconds = *std::ranges::min_element(own);
    row.mpi_median_seconds = median(of_mpi);
    return row;
  }

  Collectives& world_;
  memory::Queue& compute_;
  BenchmarkOptions const& options_;
  topology::RankGroup group_;
  std::unique_ptr<Collectives> split_;
  Collectives& comm_;
  std::optional<detail::MpiReference> mpi_;
};

}  // namespace

std::vector<std::string> const& benchmark_operations() {
  static std::vector<std::string> const all{"broadcast",  "all_reduce", "reduce",  "reduce_scatter",
                                            "all_gather", "all_to_all", "scatter", "gather"};
  return all;
}

std::vector<BenchmarkRow> run_benchmark(topology::MpiSession const& session, Collectives& world,
                                        memory::Queue& compute, BenchmarkOptions const& options) {
  for (auto const& operation : options.operations)
    TESSERA_VALIDATE(std::ranges::count(benchmark_operations(), operation) == 1, ConfigError, "\"",
                     operation, "\" is no operation; use ", join(benchmark_operations()));
  std::vector<BenchmarkRow> rows;
  std::vector<std::string> const world_only{"world"};
  for (auto const& name : options.groups.empty() ? world_only : options.groups) {
    GroupBenchmark group(session, world, compute, options, name);
    for (std::size_t bytes = options.smallest; bytes <= options.largest; bytes *= 4)
      group.run(bytes, rows);
  }
  return rows;
}

}  // namespace tessera::comm
