#pragma once
/// Finds ranks that are slower than the others for reasons of their own. The mean of the ranks' own
/// times travels with each step's gradient norm; only when a rank is above it do the ranks exchange
/// their times. Where all wait longer than before and no rank is slow, the nodes send each other
/// messages (link_probe.hpp).

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/train/step/link_probe.hpp"
#include "tessera/train/step/outcome.hpp"

namespace tessera::train {

/// The ranks whose own times are above those of the others, by their means over the same steps.
/// @param hosts  of every rank
std::vector<Straggler> slower_ranks(std::vector<OwnTime> const& times,
                                    std::vector<std::string> const& hosts);

/// Follows the own times of this rank and of all ranks.
class StragglerWatch {
 public:
  /// Steps whose mean counts, so that one long step names nobody.
  static constexpr std::size_t window = 8;
  /// A rank that is still slow is named again after this many steps. After twice as many without it
  /// being named, it no longer counts as slow.
  static constexpr std::int64_t renewal = 20;
  using Probe = std::function<std::vector<double>(comm::Collectives&, std::vector<int> const&)>;

  /// @param hosts  of every rank of @p comm, which outlives the watch
  StragglerWatch(comm::Collectives& comm, std::vector<std::string> hosts,
                 Probe probe = ring_round_trips)
      : comm_(comm),
        hosts_(std::move(hosts)),
        ring_(lowest_rank_of_each(hosts_)),
        probe_(std::move(probe)) {}

  /// This rank has been slower than the mean: StepRequests::is_slow.
  bool is_slow() const;
  /// Exchanges times if a rank was slow, and measures links if all wait for long. Collective then.
  /// @param outcome  of a step whose requests were exchanged
  /// @return the ranks that are named after this step
  std::vector<Straggler> after_step(std::int64_t step, StepOutcome const& outcome);
  /// The slow ranks as last named; empty once they are no longer slow.
  std::vector<Straggler> const& current() const { return current_; }

 private:
  struct Step {
    OwnTime own;
    double mean = 0.0;    ///< mean of all ranks of OwnTime::total()
    double waited = 0.0;  ///< mean of all ranks of the rest of the step
  };
  OwnTime mean_own() const;
  std::vector<Straggler> by_own_times(std::int64_t step);
  std::vector<Straggler> by_links(std::int64_t step);

  comm::Collectives& comm_;
  std::vector<std::string> hosts_;
  std::vector<int> ring_;  ///< a rank of each node
  Probe probe_;
  std::deque<Step> steps_;
  std::int64_t first_step_ = -1;  ///< it is left out: it also makes buffers and plans
  std::int64_t next_exchange_ = 0, next_probe_ = 0;  ///< steps
  std::optional<double> shortest_wait_;              ///< mean of a window
  std::vector<std::size_t> suspects_;                ///< places in the ring
  std::int64_t named_step_ = 0;
  std::vector<Straggler> current_;
};

/// "rank 3 on node n1 is 1.9 times slower than the others: computing takes 0.41 s per step, ..."
std::string text_of(Straggler const& straggler);
ConfigTree tree_of(std::vector<Straggler> const& stragglers);

}  // namespace tessera::train
