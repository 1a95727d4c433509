#include "tessera/plan/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::plan {
namespace {

using Kind = memory::PlannedWork::Kind;

/// Quantile of the standard normal distribution.
double normal_quantile(double probability) {
  double low = -40.0, high = 40.0;
  for (int i = 0; i < 200; ++i) {
    double const middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < probability ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

}  // namespace

Simulation::Simulation(Work work, std::vector<RankClass> const& classes)
    : work_(std::move(work)),
      classes_(classes),
      missing_(work_.steps.work.size() * classes.size()),
      arrived_(work_.steps.work.size()),
      computing_(classes.size()) {
  auto const& pieces = work_.steps.work;
  TESSERA_EXPECT(!classes.empty() && work_.seconds.size() == pieces.size());
  auto const& queues = work_.steps.queues;
  compute_queue_ =
      static_cast<int>(std::find(queues.begin(), queues.end(), "compute") - queues.begin());
  for (auto const& c : classes_) slowest_network_ = std::max(slowest_network_, c.network);
  find_followers();
  for (std::size_t c = 0; c < classes_.size(); ++c)
    for (std::size_t i = 0; i < pieces.size(); ++i)
      missing_[c * pieces.size() + i] = static_cast<std::uint16_t>(pieces[i].after.size());
  for (std::size_t c = 0; c < classes_.size(); ++c)
    for (std::size_t i = 0; i < pieces.size(); ++i)
      if (pieces[i].after.empty()) start(static_cast<int>(c), static_cast<int>(i), 0.0);
  while (!events_queue_.empty()) {
    auto const event = events_queue_.top();
    events_queue_.pop();
    if (event.rank_class == network) {
      ++events_;
      network_busy_ = false;
      set_rates(1.0, event.time);
      for (std::size_t c = 0; c < classes_.size(); ++c)
        finish(static_cast<int>(c), event.work, event.time);
      if (!network_busy_ && !waiting_.empty()) start_collective(event.time);
      continue;
    }
    auto& computing = computing_[static_cast<std::size_t>(event.rank_class)];
    if (is_compute(event.work)) {
      if (computing.work != event.work || computing.version != event.version) continue;
      computing.work = -1;
    }
    ++events_;
    finish(event.rank_class, event.work, event.time);
  }
}

void Simulation::find_followers() {
  auto const& pieces = work_.steps.work;
  first_follower_.resize(pieces.size() + 1);
  for (auto const& piece : pieces)
    for (int const before : piece.after) ++first_follower_[static_cast<std::size_t>(before) + 1];
  std::partial_sum(first_follower_.begin(), first_follower_.end(), first_follower_.begin());
  followers_.resize(static_cast<std::size_t>(first_follower_.back()));
  auto next = first_follower_;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    for (int const before : pieces[i].after)
      followers_[static_cast<std::size_t>(next[static_cast<std::size_t>(before)]++)] =
          static_cast<int>(i);
}

bool Simulation::is_compute(int work) const {
  return work_.steps.work[static_cast<std::size_t>(work)].queue == compute_queue_;
}

void Simulation::start(int rank_class, int work, double time) {
  auto const i = static_cast<std::size_t>(work);
  if (work_.steps.work[i].kind == Kind::collective) {
    if (++arrived_[i] < static_cast<int>(classes_.size())) return;
    waiting_.push({time, work});
    if (!network_busy_) start_collective(time);
    return;
  }
  auto const& of = classes_[static_cast<std::size_t>(rank_class)];
  double const seconds = work_.seconds[i] * of.compute;
  if (!is_compute(work)) {
    events_queue_.push({time + seconds, work, rank_class, 0});
    return;
  }
  auto& computing = computing_[static_cast<std::size_t>(rank_class)];
  computing.work = work;
  computing.remaining = seconds;
  computing.rate = network_busy_ ? 1.0 - work_.collective_share : 1.0;
  schedule(rank_class, time);
}

/// The computing piece of a class ends when its rate stays.
void Simulation::schedule(int rank_class, double time) {
  auto& computing = computing_[static_cast<std::size_t>(rank_class)];
  computing.since = time;
  ++computing.version;
  if (computing.rate > 0.0 || computing.remaining == 0.0)
    events_queue_.push(
        {computing.remaining == 0.0 ? time : time + computing.remaining / computing.rate,
         computing.work, rank_class, computing.version});
}

void Simulation::set_rates(double rate, double time) {
  if (work_.collective_share == 0.0) return;
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    auto& computing = computing_[c];
    if (computing.work < 0) continue;
    computing.remaining =
        std::max(0.0, computing.remaining - computing.rate * (time - computing.since));
    computing.rate = rate;
    schedule(static_cast<int>(c), time);
  }
}

void Simulation::finish(int rank_class, int work, double time) {
  auto const i = static_cast<std::size_t>(work);
  if (is_compute(work)) {
    auto& end = ends_[i >= work_.steps.first_of_second ? 1 : 0];
    end = std::max(end, time);
  }
  auto const row = static_cast<std::size_t>(rank_class) * work_.steps.work.size();
  for (auto f = first_follower_[i]; f < first_follower_[i + 1]; ++f) {
    int const next = followers_[static_cast<std::size_t>(f)];
    if (--missing_[row + static_cast<std::size_t>(next)] == 0) start(rank_class, next, time);
  }
}

/// @pre the network is free and a collective waits
void Simulation::start_collective(double time) {
  int const work = waiting_.top().work;
  waiting_.pop();
  network_busy_ = true;
  double const seconds = work_.seconds[static_cast<std::size_t>(work)] * slowest_network_;
  events_queue_.push({time + seconds, work, network, 0});
  set_rates(1.0 - work_.collective_share, time);
}

std::vector<RankClass> classes_with_jitter(std::int64_t ranks, double jitter) {
  if (jitter <= 0.0 || ranks < 2) return {{.ranks = ranks}};
  // Blom, "Statistical estimates and transformed beta-variables", 1958: the expected largest of n
  auto const n = static_cast<double>(ranks);
  double const largest = normal_quantile((n - 0.375) / (n + 0.25));
  return {{.ranks = ranks - 1}, {.ranks = 1, .compute = 1.0 + jitter * largest}};
}

}  // namespace tessera::plan
