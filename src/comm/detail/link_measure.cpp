#include "detail/link_measure.hpp"

#include <algorithm>
#include <chrono>
#include <functional>

#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"

namespace tessera::comm::detail {
namespace {

constexpr std::int64_t large = std::int64_t{1} << 20;  ///< bytes per rank

/// The shortest of a few repetitions: other load only makes them longer.
double shortest_seconds(int repetitions, std::function<void()> const& body) {
  double shortest = 1e30;
  for (int i = 0; i < repetitions; ++i) {
    auto const start = std::chrono::steady_clock::now();
    body();
    std::chrono::duration<double> const time = std::chrono::steady_clock::now() - start;
    shortest = std::min(shortest, time.count());
  }
  return shortest;
}

LinkFigures measure(Collectives& comm) {
  auto const memory = comm.allocate("measured links", memory::Purpose::communication,
                                    static_cast<std::size_t>(large * comm.size()));
  memory::TensorView const all(memory.get(), Dtype::uint8, {large * comm.size()});
  auto const gather = [&](std::int64_t bytes) {
    return [&comm, all, bytes] { comm.wait(comm.all_gather(all, {bytes, large, 0}, {})); };
  };
  LinkFigures figures;
  figures.latency_seconds = shortest_seconds(10, gather(8));
  double const seconds = shortest_seconds(3, gather(large)) - figures.latency_seconds;
  figures.bytes_per_second =
      static_cast<double>(large * (comm.size() - 1)) / std::max(seconds, 1e-9);
  return figures;
}

}  // namespace

Links measure_links(Collectives& world, Collectives& node, Collectives* leaders) {
  LinkFigures const inside = node.size() > 1 ? measure(node) : LinkFigures{0.0, 1e30};
  LinkFigures const across = leaders ? measure(*leaders) : LinkFigures{0.0, 1e30};
  std::vector<double> worst{inside.latency_seconds, -inside.bytes_per_second,
                            across.latency_seconds, -across.bytes_per_second};
  all_reduce_values(world, worst, ReduceOp::max);
  Links const links{{worst[0], -worst[1]}, {worst[2], -worst[3]}};
  if (world.rank() == 0)
    log::info(concat("links: inside nodes ", 1e6 * links.node.latency_seconds, " us, ",
                     human_bytes(static_cast<std::int64_t>(links.node.bytes_per_second)),
                     "/s; between nodes ", 1e6 * links.network.latency_seconds, " us, ",
                     human_bytes(static_cast<std::int64_t>(links.network.bytes_per_second)), "/s"));
  return links;
}

}  // namespace tessera::comm::detail
