#pragma once
/// The search for the fastest choice by measuring few of them.

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config/reporting.hpp"
#include "tessera/plan/planner.hpp"

namespace tessera::plan {

/// What a few steps of a choice have shown.
struct Trial {
  Choice choice;
  double seconds = 0.0;  ///< per step; 0: it did not run
  std::string refused;   ///< why it did not run
  bool ran() const { return seconds > 0.0; }
};

struct TuningResult {
  std::vector<Trial> trials;  ///< in the order of measuring; a choice may be there twice
  std::size_t open = 0;       ///< choices that the arguments leave open
  std::size_t admitted = 0;   ///< open choices that fit by the plan
  std::string ended_by;       ///< "every candidate that could win", ...
  std::optional<Trial> best;  ///< none: nothing ran
  double seconds = 0.0;       ///< seconds of the search
};

/// Measures micro-batches of the kinds of choices (stage, offload, recomputation) in the plan's
/// order: by its times where it has them, else by the guides. Within a kind the micro-batch grows
/// until memory or speed ends. A kind that only saves memory is measured with micro-batches that do
/// not fit without it. Then the neighbors of the best choice and its buckets. An exhaustive search
/// measures all that fits instead, each to its end. At last those that are near the best one are
/// measured again in turns; a quarter of the time is kept for them.
class Tuner {
 public:
  struct Means {
    /// Measures a choice; may give up after a step that takes longer than the given seconds.
    std::function<Trial(Choice const&, double)> measure;
    /// Seconds that are left for the search, the same on all ranks.
    std::function<double()> time_left;
  };
  Tuner(Planner& planner, config::Tuning const& limits, Means means);

  TuningResult run();

 private:
  /// Admitted choices that differ in the micro-batch, the smallest first.
  struct Kind {
    std::vector<Choice> choices;
    double planned_seconds = 0.0;  ///< planned seconds of the fastest; 0: the plan has no times
    Trial best;
  };
  std::vector<Kind> admitted_kinds();
  bool may_continue();
  Trial try_choice(Choice const& choice);
  void search(std::vector<Kind>& kinds);
  void measure_all(std::vector<Kind> const& kinds);
  void climb(Kind& kind);
  void climb_from(Kind& kind, std::ptrdiff_t first, std::ptrdiff_t direction);
  void leave_useful(Kind& kind, std::vector<Kind> const& measured) const;
  bool is_measured(Choice const& choice) const;
  void try_neighbors(std::vector<Choice> const& admitted);
  void try_buckets();
  std::vector<Trial> contenders() const;
  void decide_among_the_best();

  Planner& planner_;
  config::Tuning limits_;
  Means means_;
  TuningResult result_;
  /// First useless choice of each kind that is not measured: speed ends before memory
  std::vector<Choice> useless_;
  double available_ = 0.0;  ///< seconds of the complete search
};

}  // namespace tessera::plan
