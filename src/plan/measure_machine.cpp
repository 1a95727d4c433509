#include "tessera/plan/measure_machine.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "tessera/comm/base/planning_collectives.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/median.hpp"
#include "tessera/core/text.hpp"
#include "tessera/kernels/gemm/gemm.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/limits.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/plan/step_time.hpp"
#include "tessera/train/setup/memory_plan.hpp"

namespace tessera::plan {
namespace {

using memory::Buffer;
using memory::MemorySpace;
using memory::Purpose;

constexpr std::chrono::minutes deadline{5};
constexpr int rounds = 5;

void synchronize(memory::Queue& queue) { queue.record().wait("a measurement", deadline); }

/// Seconds of @p work, which enqueues on @p queue: the best of some rounds of several calls.
double best_seconds(memory::Queue& queue, std::function<void()> const& work) {
  constexpr double round_seconds = 0.02;
  auto const timed = [&](int calls) {
    auto const start = Clock::now();
    for (int i = 0; i < calls; ++i) work();
    synchronize(queue);
    return seconds_since(start) / calls;
  };
  (void)timed(1);
  int const calls = static_cast<int>(std::clamp(round_seconds / timed(1), 1.0, 1000.0));
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < rounds; ++round) best = std::min(best, timed(calls));
  return best;
}

/// Numbers near 1 as fp32 and as 16-bit values: a device draws less power, and is faster, with
/// zeros.
Buffer random_numbers(memory::Queue& queue, std::size_t bytes) {
  auto const space = memory::memory_space_of(queue);
  Buffer host("numbers", Purpose::workspace, bytes);
  std::mt19937 random(1);
  auto* const words = static_cast<std::uint32_t*>(host.data());
  for (std::size_t i = 0; i < bytes / sizeof(std::uint32_t); ++i)
    words[i] = 0x3f803f80u | (static_cast<std::uint32_t>(random()) & 0x007f007fu);
  if (space == MemorySpace::host) return host;
  Buffer out("numbers", Purpose::workspace, bytes, space);
  memory::copy(queue, out.data(), host.data(), bytes);
  synchronize(queue);
  return out;
}

struct Shape {
  std::int64_t m, n, k;
};
std::vector<Shape> shapes(MemorySpace space) {
  if (space == MemorySpace::device)
    return {{1024, 1024, 1024},
            {4096, 4096, 1024},
            {4096, 4096, 4096},
            {4096, 16384, 4096},
            {8192, 8192, 8192}};
  return {{128, 128, 128},  {256, 256, 256},  {512, 1024, 256},
          {512, 512, 1024}, {512, 2048, 512}, {1024, 1024, 1024}};
}

void measure_products(memory::Queue& queue, MachineProfile& out) {
  auto const all = shapes(memory::memory_space_of(queue));
  auto const largest = [&](auto const& numel) {
    std::int64_t most = 0;
    for (auto const& s : all) most = std::max(most, numel(s));
    return static_cast<std::size_t>(most) * sizeof(float);
  };
  auto const a = random_numbers(queue, largest([](Shape const& s) { return s.m * s.k; }));
  auto const b = random_numbers(queue, largest([](Shape const& s) { return s.k * s.n; }));
  Buffer const c("products", Purpose::workspace, largest([](Shape const& s) { return s.m * s.n; }),
                 memory::memory_space_of(queue));
  for (auto const dtype : {Dtype::fp32, Dtype::bf16})
    for (auto const& [m, n, k] : all) {
      double const seconds = best_seconds(queue, [&, m = m, n = n, k = k] {
        kernels::gemm(queue, {}, {c.data(), dtype, {m, n}}, {a.data(), dtype, {m, k}},
                      {b.data(), dtype, {k, n}});
      });
      double const flops =
          2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
      out.products.push_back({dtype, m, n, k, flops / seconds});
    }
}

/// A small GPT-2 and its batch.
struct PassShape {
  std::int64_t width, heads, layers, rows, sequence;
};
/// Measured pass and update of one rank with the model of a PassShape.
struct MeasuredPass {
  double seconds = 0.0, update_bandwidth = 0.0;
  double products = 0.0;   ///< seconds of its products at their speeds
  double attention = 0.0;  ///< seconds of its attention at the speed of the fastest product
  double operands = 0.0;   ///< bytes of operands and results of its products
};

/// Forward and backward passes and updates of one rank. All ranks of the node do it together.
MeasuredPass measure_pass(memory::Queue& queue, MachineProfile const& products,
                          PassShape const& shape) {
  auto const space = memory::memory_space_of(queue);
  auto config = model::default_config("gpt2");
  config.set("n_layer", shape.layers).set("n_embd", shape.width).set("n_head", shape.heads);
  config.set("vocab_size", space == MemorySpace::device ? 32768 : 4096);
  train::PlannedRun run{.ranks = 1, .space = space, .rows = shape.rows, .sequence = shape.sequence};
  run.engine.dtype = run.engine.communication_dtype =
      space == MemorySpace::device ? Dtype::bf16 : Dtype::fp32;
  auto const model = model::make_model(config, run.engine.dtype);
  auto const steps = train::plan_steps(*model, run, 1);
  auto const alone = comm::make_planning_collectives(1, space);
  auto const engine = zero::make_engine(run.engine, model->units(), *alone, queue);
  engine->initialize([](memory::UnitIndex, int, std::int64_t first, std::int64_t numel, float* to) {
    for (std::int64_t i = 0; i < numel; ++i)
      to[i] = 0.02f * std::sin(static_cast<float>(first + i));
  });
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(run.rows * run.sequence));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int>(i * 31 % 4000);
  std::vector<double> passes, updates;
  for (int round = 0; round <= rounds; ++round) {
    engine->begin_step();
    engine->begin_micro_step(0, 1);
    auto const start = Clock::now();
    (void)model->train({tokens.data(), run.rows, run.sequence, 0}, {}, *engine, queue).value();
    double const computed = seconds_since(start);
    engine->finish_step(1e-6);
    synchronize(queue);
    if (round == 0) continue;
    passes.push_back(computed);
    updates.push_back(seconds_since(start) - computed);
  }
  MeasuredPass out{.seconds = median(passes)};
  double bytes = 0.0;
  for (std::size_t i = steps.first_of_second; i < steps.work.size(); ++i) {
    auto const& work = steps.work[i];
    using Kind = memory::PlannedWork::Kind;
    if (work.kind == Kind::update) bytes += static_cast<double>(work.bytes);
    if (work.kind == Kind::attention)
      out.attention += seconds_of(work, "compute", {1, 1}, products);
    if (work.kind != Kind::product) continue;
    out.products += seconds_of(work, "compute", {1, 1}, products);
    out.operands += operand_bytes(work);
  }
  out.update_bandwidth = bytes / median(updates);
  return out;
}

/// Measures passes of three models: two that differ in the length of the sequences only show the
/// speed of attention, two that differ in width that of the kernels between the products, whose
/// time grows with the operands where that of products grows with their flops.
void measure_passes(memory::Queue& queue, MachineProfile& out) {
  bool const device = memory::memory_space_of(queue) == MemorySpace::device;
  PassShape const short_rows =
                      device ? PassShape{1024, 16, 4, 16, 512} : PassShape{256, 4, 4, 4, 64},
                  long_rows =
                      device ? PassShape{1024, 16, 4, 2, 4096} : PassShape{256, 4, 4, 1, 256},
                  wide = device ? PassShape{4096, 32, 2, 16, 512} : PassShape{768, 12, 2, 4, 64};
  auto const a = measure_pass(queue, out, short_rows), b = measure_pass(queue, out, long_rows),
             c = measure_pass(queue, out, wide);
  out.memory_bandwidth = c.update_bandwidth;
  double const slope = (b.seconds - a.seconds) / (b.attention - a.attention);  // 1 / efficiency
  double const attention = std::max(slope, 1.0);
  // x products + q operands / bandwidth = the rest of the pass, for the narrow and the wide model
  double const ra = a.seconds - attention * a.attention, rc = c.seconds - attention * c.attention;
  double const oa = a.operands / out.memory_bandwidth, oc = c.operands / out.memory_bandwidth;
  double const determinant = a.products * oc - c.products * oa;
  double const x = (ra * oc - rc * oa) / determinant,
               q = (a.products * rc - c.products * ra) / determinant;
  double const slower = std::max(x, 1.0);
  out.pass_efficiency = 1.0 / (q > 0.0 ? slower : std::max(rc / c.products, 1.0));
  out.pass_traffic = q > 0.0 ? std::max(0.0, (rc - slower * c.products) / oc) : 0.0;
  // the pass efficiency holds for attention too
  out.attention_efficiency = std::min(1.0, 1.0 / (attention * out.pass_efficiency));
}

void measure_host_link(memory::Queue& queue, MachineProfile& out) {
  constexpr std::size_t large = std::size_t{64} << 20;
  Buffer const host("link", Purpose::workspace, large, MemorySpace::pinned);
  Buffer const device("link", Purpose::workspace, large, MemorySpace::device);
  double slowest = 0.0;
  for (bool const to_device : {false, true})
    slowest = std::max(slowest, best_seconds(queue, [&] {
                         memory::copy(queue, to_device ? device.data() : host.data(),
                                      to_device ? host.data() : device.data(), large);
                       }));
  double const small =
      best_seconds(queue, [&] { memory::copy(queue, device.data(), host.data(), 64); });
  out.host_link = {small, static_cast<double>(large) / std::max(slowest - small, 1e-9)};
}

/// The ring model of the ranks of @p group, from a small and a large all-gather. All groups measure
/// at the same time; the slowest one counts.
Link measure_ring(comm::Collectives& world, comm::Collectives& group) {
  int const n = group.size();
  constexpr std::int64_t large = std::int64_t{16} << 20, small = 64;
  auto const memory = group.allocate("network", Purpose::communication,
                                     static_cast<std::size_t>(large) * sizeof(float));
  auto const agreed = [&](std::int64_t numel) {
    memory::TensorView const data(memory.get(), Dtype::fp32, {numel / n * n});
    double best = std::numeric_limits<double>::max();
    for (int round = 0; round <= rounds; ++round) {
      world.barrier();
      auto const start = Clock::now();
      group.wait(group.all_gather(data, {numel / n, numel / n, 0}, {}));
      if (round > 0) best = std::min(best, seconds_since(start));
    }
    return comm::all_reduce_value(world, best, comm::ReduceOp::max);
  };
  double const latency = agreed(small * n);
  double const transfer = std::max(agreed(large) - latency, 1e-9);
  double const passed = static_cast<double>(large) / n * (n - 1) * sizeof(float);
  return {latency / (n - 1), passed / transfer};
}

/// On several nodes the ranks of a node, and then one rank per node, all of them at the same time.
void measure_network(Measurement const& where, MachineProfile& out) {
  auto& world = where.comm;
  int const nodes = where.cluster.nodes, per_node = where.cluster.ranks_per_node,
            rank = world.rank();
  if (world.size() == 1) return;
  if (nodes == 1) {
    out.intra_node = measure_ring(world, world);
    return;
  }
  try {
    if (per_node > 1) {
      auto const node = world.split({rank / per_node, rank, per_node, "measured node"});
      out.intra_node = measure_ring(world, *node);
    }
    auto const rail = world.split({rank % per_node, rank, nodes, "measured rail"});
    out.inter_node = measure_ring(world, *rail);
  } catch (ConfigError const&) {  // an NCCL without groups: a ring of all ranks
    out.intra_node = out.inter_node = measure_ring(world, world);
    out.inter_node.bandwidth /= per_node;
  }
}

/// Products while all-gathers are in flight: how much longer they take than without, in parts of
/// the time of the all-gathers. What exceeds 1 makes the collectives slower.
void measure_collective_share(Measurement const& where, MachineProfile& out) {
  int const n = where.comm.size();
  if (n == 1) return;
  auto const space = memory::memory_space_of(where.compute);
  std::int64_t const width = space == MemorySpace::device ? 4096 : 512;
  auto const bytes = static_cast<std::size_t>(width * width) * sizeof(float);
  auto const a = random_numbers(where.compute, bytes), b = random_numbers(where.compute, bytes);
  Buffer const c("products", Purpose::workspace, bytes, space);
  constexpr std::int64_t numel = std::int64_t{4} << 20;
  auto const memory = where.comm.allocate("network", Purpose::communication,
                                          static_cast<std::size_t>(numel) * sizeof(float));
  memory::TensorView const data(memory.get(), Dtype::fp32, {numel / n * n});
  auto const seconds = [&](int gathers, int products) {
    double best = std::numeric_limits<double>::max();
    for (int round = 0; round <= rounds; ++round) {
      where.comm.barrier();
      auto const start = Clock::now();
      std::vector<comm::Pending> pending;
      for (int i = 0; i < gathers; ++i)
        pending.push_back(where.comm.all_gather(data, {numel / n, numel / n, 0}, {}));
      for (int i = 0; i < products; ++i)
        kernels::gemm(where.compute, {}, {c.data(), Dtype::fp32, {width, width}},
                      {a.data(), Dtype::fp32, {width, width}},
                      {b.data(), Dtype::fp32, {width, width}});
      synchronize(where.compute);
      for (auto const& one : pending) where.comm.wait(one);
      if (round > 0) best = std::min(best, seconds_since(start));
    }
    return comm::all_reduce_value(where.comm, best, comm::ReduceOp::max);
  };
  constexpr int gathers = 4;
  double const moved = seconds(gathers, 0), one = seconds(0, 1);
  int const products = static_cast<int>(std::clamp(2.0 * moved / one, 1.0, 10'000.0));
  double const computed = seconds(0, products);
  double const share = std::max(0.0, seconds(gathers, products) - computed) / moved;
  out.collective_share = std::min(share, 1.0);
  if (share <= 1.0) return;
  out.intra_node.bandwidth /= share;
  out.inter_node.bandwidth /= share;
}

void measure_drive(Measurement const& where, MachineProfile& out) {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  Buffer const data("drive", Purpose::workspace, bytes);
  std::fill_n(static_cast<char*>(data.data()), bytes, 'x');
  auto const file = where.directory / fmt::format("measured.{}", where.comm.rank());
  int const handle = ::open(file.c_str(), O_CREAT | O_RDWR | O_TRUNC, 0600);
  TESSERA_VALIDATE(handle >= 0, IoError, with_errno("cannot write " + file.string(), errno),
                   "; choose another directory");
  auto const transfer = [&](auto const& call) {
    where.comm.barrier();
    auto const start = Clock::now();
    for (std::size_t at = 0; at < bytes;) {
      auto const moved = call(static_cast<char*>(data.data()) + at, bytes - at, at);
      if (moved <= 0) return 0.0;
      at += static_cast<std::size_t>(moved);
    }
    return ::fsync(handle) == 0 ? static_cast<double>(bytes) / seconds_since(start) : 0.0;
  };
  double const written = transfer([&](char* from, std::size_t count, std::size_t at) {
    return ::pwrite(handle, from, count, static_cast<off_t>(at));
  });
  ::posix_fadvise(handle, 0, 0, POSIX_FADV_DONTNEED);
  double const read = transfer([&](char* to, std::size_t count, std::size_t at) {
    return ::pread(handle, to, count, static_cast<off_t>(at));
  });
  ::close(handle);
  std::filesystem::remove(file);
  out.drive_write = comm::all_reduce_value(where.comm, written, comm::ReduceOp::min);
  out.drive_read = comm::all_reduce_value(where.comm, read, comm::ReduceOp::min);
  out.save_bandwidth = out.drive_write * where.cluster.ranks_per_node;
}

/// Resident bytes of this process that the memory tracker does not count.
std::int64_t untracked_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  statm >> size >> resident;
  auto const tracked =
      static_cast<std::int64_t>(memory::MemoryTracker::of_process().current_total());
  return std::max<std::int64_t>(0, resident * ::sysconf(_SC_PAGESIZE) - tracked);
}

void measure_memory(Measurement const& where, MachineProfile& out) {
  auto const ranks = static_cast<std::size_t>(where.cluster.ranks_per_node);
  out.host_memory = static_cast<std::int64_t>(memory::available_memory(ranks).bytes);
  out.reserved_memory = untracked_bytes();
  if (!out.has_device) return;
  auto const total = memory::describe_device(memory::Runtime::device()).total_bytes;
  auto const used = total - std::min(total, memory::free_device_bytes());
  auto const tracked = memory::MemoryTracker::of_device().current_total();
  out.device_memory = static_cast<std::int64_t>(total);
  out.reserved_memory = static_cast<std::int64_t>(used - std::min(used, tracked));
}

}  // namespace

MachineProfile measure_machine(Measurement const& where) {
  auto const slowest = [&](double value) {
    return comm::all_reduce_value(where.comm, value, comm::ReduceOp::min);
  };
  MachineProfile out;
  out.name = where.host;
  out.measured = true;
  out.has_device = memory::memory_space_of(where.compute) == MemorySpace::device;
  out.ranks_per_node = where.cluster.ranks_per_node;
  out.source =
      fmt::format("measured on {} by {} on {}, {}", where.host, counted(where.comm.size(), "rank"),
                  counted(where.cluster.nodes, "node"), memory::Runtime::description());
  measure_products(where.compute, out);
  for (auto& product : out.products) product.flops = slowest(product.flops);
  measure_passes(where.compute, out);
  out.attention_efficiency = slowest(out.attention_efficiency);
  out.pass_efficiency = slowest(out.pass_efficiency);
  out.pass_traffic = -slowest(-out.pass_traffic);
  out.memory_bandwidth = out.host_memory_bandwidth = slowest(out.memory_bandwidth);
  if (out.has_device) {
    auto const host = memory::make_inline_queue("host");
    out.host_memory_bandwidth =
        slowest(measure_pass(*host, out, {768, 12, 2, 4, 64}).update_bandwidth);
    measure_host_link(where.compute, out);
  }
  measure_network(where, out);
  measure_collective_share(where, out);
  measure_drive(where, out);
  measure_memory(where, out);
  return out;
}

}  // namespace tessera::plan
