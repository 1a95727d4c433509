#include "compose/link_measure.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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

void log_links(Links const& links, char const* what) {
  log::info(concat(what, ": inside nodes ", 1e6 * links.node.latency_seconds, " us, ",
                   human_bytes(static_cast<std::int64_t>(links.node.bytes_per_second)),
                   "/s; between nodes ", 1e6 * links.network.latency_seconds, " us, ",
                   human_bytes(static_cast<std::int64_t>(links.network.bytes_per_second)), "/s"));
}

}  // namespace

Links measure_links(Collectives& world, Collectives& node, Collectives* leaders) {
  LinkFigures const inside = node.size() > 1 ? measure(node) : LinkFigures{0.0, 1e30};
  LinkFigures const across = leaders ? measure(*leaders) : LinkFigures{0.0, 1e30};
  std::vector<double> worst{inside.latency_seconds, -inside.bytes_per_second,
                            across.latency_seconds, -across.bytes_per_second};
  all_reduce_values(world, worst, ReduceOp::max);
  Links const links{{worst[0], -worst[1]}, {worst[2], -worst[3]}};
  if (world.rank() == 0) log_links(links, "links");
  return links;
}

Links links_from_text(std::string const& text) {
  double figures[4] = {};
  int read = 0;
  bool const has_all = std::sscanf(text.c_str(), "%lf,%lf,%lf,%lf%n", &figures[0], &figures[1],
                                   &figures[2], &figures[3], &read) == 4 &&
                       static_cast<std::size_t>(read) == text.size();
  auto const is_link = [](double latency_us, double gigabytes) {
    return latency_us >= 0.0 && latency_us <= 1e6 && gigabytes > 0.0 && gigabytes <= 1e9;
  };
  TESSERA_VALIDATE(has_all && is_link(figures[0], figures[1]) && is_link(figures[2], figures[3]),
                   ConfigError, "TESSERA_LINKS is '", text,
                   "'; use INSIDE_US,INSIDE_GB_PER_S,BETWEEN_US,BETWEEN_GB_PER_S, such as "
                   "5,40,3,12: latencies from 0 to 1000000 us and positive bandwidths per node, "
                   "inside nodes and between them; or unset it, and the links are measured");
  return {{1e-6 * figures[0], 1e9 * figures[1]}, {1e-6 * figures[2], 1e9 * figures[3]}};
}

Links links_of_job(Collectives& world, Collectives& node, Collectives* leaders) {
  char const* const given = std::getenv("TESSERA_LINKS");
  std::string const text = broadcast_bytes(world, given ? given : "", 0);
  if (text.empty()) return measure_links(world, node, leaders);
  Links const links = links_from_text(text);
  if (world.rank() == 0) log_links(links, "links of TESSERA_LINKS");
  return links;
}

}  // namespace tessera::comm::detail
