#include "tessera/train/step/link_probe.hpp"

#include <algorithm>

#include "tessera/core/clock.hpp"

namespace tessera::train {
namespace {

constexpr std::int64_t message_bytes = std::int64_t{1} << 20;
constexpr int repetitions = 3;
constexpr double slow_link_factor = 2.0, slow_link_seconds = 0.001;

/// There and back. The rank that @p begins sends first.
void exchange(comm::Collectives& comm, memory::TensorView const& message, int peer, bool begins) {
  if (begins) comm.wait(comm.send(message, peer, {}));
  comm.wait(comm.receive(message, peer, {}));
  if (!begins) comm.wait(comm.send(message, peer, {}));
}

/// The shortest of some exchanges after one that makes both ranks ready.
double round_trip(comm::Collectives& comm, memory::TensorView const& message, int peer,
                  bool begins) {
  exchange(comm, message, peer, begins);
  double shortest = 0.0;
  for (int i = 0; i < repetitions; ++i) {
    auto const started = Clock::now();
    exchange(comm, message, peer, begins);
    double const seconds = seconds_since(started);
    shortest = i == 0 ? seconds : std::min(shortest, seconds);
  }
  return shortest;
}

}  // namespace

std::vector<int> lowest_rank_of_each(std::vector<std::string> const& hosts) {
  std::vector<int> ranks;
  for (auto host = hosts.begin(); host != hosts.end(); ++host)
    if (std::find(hosts.begin(), host, *host) == host)
      ranks.push_back(static_cast<int>(host - hosts.begin()));
  return ranks;
}

/// Links of the same round have no rank in common. With an odd number of links, the last one has
/// the third round for itself.
std::vector<double> ring_round_trips(comm::Collectives& comm, std::vector<int> const& ring) {
  std::size_t const links = ring.size();
  std::vector<char> bytes(static_cast<std::size_t>(message_bytes));
  memory::TensorView const message(bytes.data(), Dtype::uint8, {message_bytes});
  std::vector<double> seconds(links, 0.0);
  comm::SynchronousCalls const synchronous;
  for (std::size_t round = 0; round < 3; ++round)
    for (std::size_t link = 0; link < links; ++link) {
      std::size_t const its_round = links % 2 == 1 && link + 1 == links ? 2 : link % 2;
      int const first = ring[link], second = ring[(link + 1) % links];
      if (its_round != round || (comm.rank() != first && comm.rank() != second)) continue;
      bool const begins = comm.rank() == first;
      double const time = round_trip(comm, message, begins ? second : first, begins);
      if (begins) seconds[link] = time;
    }
  comm::all_reduce_values(comm, seconds, comm::ReduceOp::max);
  return seconds;
}

std::vector<SlowLinks> slow_links(std::vector<double> const& round_trips) {
  std::vector<SlowLinks> out;
  std::size_t const links = round_trips.size();
  if (links < 3) return out;
  auto sorted = round_trips;
  std::ranges::sort(sorted);
  double const usual = sorted[links / 4];
  for (std::size_t place = 0; place < links; ++place) {
    double const faster = std::min(round_trips[(place + links - 1) % links], round_trips[place]);
    if (faster > slow_link_factor * usual && faster - usual > slow_link_seconds)
      out.push_back({place, faster, usual});
  }
  return out;
}

}  // namespace tessera::train
