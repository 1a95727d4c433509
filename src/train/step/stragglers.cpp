#include "tessera/train/step/stragglers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/core/median.hpp"

namespace tessera::train {
namespace {

/// A rank is named when its own time is this multiple of the median of the others, and this much
/// longer.
constexpr double slow_factor = 1.3, slow_seconds = 0.02;
/// A rank asks for an exchange when it is above the mean by this factor. Of two ranks, one that is
/// slow_factor slower than the other is 1.13 times the mean.
constexpr double asking_factor = 1.1, asking_seconds = 0.002;
/// Steps until the next exchange after one that has named nobody.
constexpr std::int64_t pause_steps = 4;

template <class Steps, class Part>
double mean_of(Steps const& steps, Part const& part) {
  double sum = 0.0;
  for (auto const& step : steps) sum += part(step);
  return sum / static_cast<double>(steps.size());
}

/// For each rank the median of @p part of the times of the others.
template <class Part>
std::vector<double> medians_by(std::vector<OwnTime> const& times, Part const& part) {
  std::vector<double> values;
  for (auto const& time : times) values.push_back(part(time));
  return medians_of_others(values);
}

}  // namespace

std::vector<Straggler> slower_ranks(std::vector<OwnTime> const& times,
                                    std::vector<std::string> const& hosts) {
  std::vector<Straggler> out;
  if (times.size() < 2) return out;
  auto const totals = medians_by(times, [](OwnTime const&t) { return t.total(); }),
             computes = medians_by(times, [](OwnTime const&t) { return t.compute; }),
             inputs = medians_by(times, [](OwnTime const&t) { return t.input; });
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    double const own = times[rank].total(), others = totals[rank];
    if (others <= 0.0 || own < slow_factor * others || own - others < slow_seconds) continue;
    double const computing = times[rank].compute - computes[rank],
                 reading = times[rank].input - inputs[rank];
    out.push_back({.rank = static_cast<int>(rank),
                   .node = rank < hosts.size() ? hosts[rank] : "",
                   .what = computing >= reading ? "computing" : "reading samples",
                   .seconds = own,
                   .others = others});
  }
  return out;
}

OwnTime StragglerWatch::mean_own() const {
  return {mean_of(steps_, [](Step const& step) { return step.own.compute; }),
          mean_of(steps_, [](Step const& step) { return step.own.input; })};
}

bool StragglerWatch::is_slow() const {
  if (steps_.size() < window) return false;
  double const mean = mean_of(steps_, [](Step const& step) { return step.mean; });
  double const own = mean_own().total();
  return mean > 0.0 && own > asking_factor * mean && own - mean > asking_seconds;
}

std::vector<Straggler> StragglerWatch::after_step(std::int64_t step, StepOutcome const& outcome) {
  if (first_step_ < 0) first_step_ = step;
  if (step == first_step_ || !outcome.requests) return {};
  auto const& all = *outcome.requests;
  steps_.push_back({outcome.own, all.own_seconds, std::max(0.0, all.seconds - all.own_seconds)});
  if (steps_.size() > window) steps_.pop_front();
  if (!current_.empty() && step > named_step_ + 2 * renewal) current_.clear();
  auto found = all.is_slow && step >= next_exchange_ ? by_own_times(step) : by_links(step);
  if (found.empty()) return {};
  named_step_ = step;
  return current_ = std::move(found);
}

std::vector<Straggler> StragglerWatch::by_own_times(std::int64_t step) {
  auto const mine = mean_own();
  std::vector<double> const in{mine.compute, mine.input};
  std::vector<double> all(2 * static_cast<std::size_t>(comm_.size()));
  comm::SynchronousCalls const synchronous;
  comm_.wait(comm_.all_gather(memory::ConstTensorView(in.data(), Dtype::fp64, {2}),
                              memory::TensorView(all.data(), Dtype::fp64, {std::ssize(all)}),
                              {2, 2, 0}, {}));
  std::vector<OwnTime> times;
  for (std::size_t r = 0; r < all.size(); r += 2) times.push_back({all[r], all[r + 1]});
  auto found = slower_ranks(times, hosts_);
  next_exchange_ = step + (found.empty() ? pause_steps : renewal);
  return found;
}

/// A node is named when two measurements in a row say so. All ranks know the same times, so that
/// all measure after the same steps.
std::vector<Straggler> StragglerWatch::by_links(std::int64_t step) {
  if (ring_.size() < 3 || steps_.size() < window) return {};
  double const waited = mean_of(steps_, [](Step const& s) { return s.waited; });
  bool const waits_long = shortest_wait_
                              ? waited > slow_factor * *shortest_wait_ + slow_seconds
                              : waited > mean_of(steps_, [](Step const& s) { return s.mean; });
  shortest_wait_ = std::min(waited, shortest_wait_.value_or(waited));
  if (step < next_probe_ || (!waits_long && suspects_.empty())) return {};
  auto const slow = slow_links(probe_(comm_, ring_));
  std::vector<Straggler> found;
  std::vector<std::size_t> places;
  for (auto const& links : slow) {
    places.push_back(links.place);
    int const rank = ring_[links.place];
    if (std::ranges::find(suspects_, links.place) != suspects_.end())
      found.push_back({.rank = rank,
                       .node = hosts_[static_cast<std::size_t>(rank)],
                       .what = "network",
                       .seconds = links.seconds,
                       .others = links.others});
  }
  suspects_ = std::move(places);
  next_probe_ = step + (found.empty() && !suspects_.empty() ? pause_steps : renewal);
  if (suspects_.empty()) shortest_wait_ = waited;  // it has another reason
  return found;
}

std::string text_of(Straggler const& s) {
  if (s.what == "network")
    return fmt::format(
        "the network of node {} is {:.1f} times slower than that of the others: a mebibyte to the "
        "next node and back takes {:.4f} s, and {:.4f} s between other nodes",
        s.node, s.factor(), s.seconds, s.others);
  return fmt::format(
      "rank {}{} is {:.1f} times slower than the others: {} takes longer, {:.3f} s per step, and "
      "{:.3f} s on the median of the other ranks",
      s.rank, s.node.empty() ? "" : " on node " + s.node, s.factor(), s.what, s.seconds, s.others);
}

ConfigTree tree_of(std::vector<Straggler> const& stragglers) {
  ConfigTree::Array out;
  for (auto const& s : stragglers)
    out.push_back(ConfigTree::object()
                      .set("rank", s.rank)
                      .set("node", s.node)
                      .set("factor", s.factor())
                      .set("slow", s.what)
                      .set("own_seconds", s.seconds)
                      .set("others_seconds", s.others));
  return out;
}

}  // namespace tessera::train
