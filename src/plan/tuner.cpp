#include "tessera/plan/tuner.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::plan {
namespace {

using config::OffloadDevice;

/// Times within this factor count as the same.
constexpr double clear = 1.005;
/// A slower micro-batch may be followed by a faster one; a much slower one is not.
constexpr double hopeless = 1.1;
/// A candidate whose step takes this many times as long as the best one's is given up.
constexpr double give_up = 2.0;
/// A kind this near to the best one is searched in both directions.
constexpr double near_best = 1.05;
/// One measurement may be this far off: candidates within this factor of the best one are measured
/// again, in turns, until they differ by more than `apart`.
constexpr double uncertain = 1.1;
constexpr double apart = 1.03;
constexpr std::size_t finalists = 5, best_with_neighbors = 2;
constexpr int most_turns = 6;
/// Part of the time that is kept for them.
constexpr double time_of_finalists = 0.25;
constexpr std::int64_t buckets[] = {std::int64_t{1} << 23, std::int64_t{1} << 25,
                                    std::int64_t{1} << 27};

bool is_same_kind(Choice a, Choice const& b) {
  a.micro_batch = b.micro_batch;
  a.accumulation = b.accumulation;
  return a == b;
}

bool is_faster(Trial const& a, Trial const& b) {
  return a.ran() && (!b.ran() || a.seconds < b.seconds);
}

/// What a kind that only saves memory saves it from; none: it is such a kind itself.
std::vector<Choice> larger_kinds(Choice const& kind) {
  std::vector<Choice> out;
  auto other = kind;
  if (kind.recompute != Recompute::none) {
    other.recompute = Recompute::none;
    out.push_back(other);
  }
  if (kind.offloads()) {
    other.recompute = kind.recompute;
    other.optimizer = other.parameters = OffloadDevice::none;
    out.push_back(other);
  }
  return out;
}

/// Whether the two differ by one step of one of: stage, offload, recomputation, micro-batch,
/// groups.
/// @param all  the choices there are
bool are_neighbors(Choice const& a, Choice const& b, std::vector<Choice> const& all) {
  int const stages = std::abs(a.stage - b.stage);
  int const recomputes = std::abs(static_cast<int>(a.recompute) - static_cast<int>(b.recompute));
  int const offloads =
      (a.optimizer != b.optimizer ? 1 : 0) + (a.parameters != b.parameters ? 1 : 0);
  int const groups = a.shard_group != b.shard_group ? 1 : 0;
  int const micro_batches = a.micro_batch != b.micro_batch ? 1 : 0;
  if (stages + recomputes + offloads + groups + micro_batches != 1) return false;
  auto const [low, high] = std::minmax(a.micro_batch, b.micro_batch);
  return std::none_of(all.begin(), all.end(), [&, low = low, high = high](Choice const& c) {
    return is_same_kind(c, a) && c.micro_batch > low && c.micro_batch < high;
  });
}

bool names_buckets(config::TrainingArguments const& arguments) {
  auto const* const zero = arguments.deepspeed.document.find("zero_optimization");
  return arguments.given("fsdp") || (zero && (zero->contains("reduce_bucket_size") ||
                                              zero->contains("allgather_bucket_size")));
}

}  // namespace

Tuner::Tuner(Planner& planner, config::Tuning const& limits, Means means)
    : planner_(planner), limits_(limits), means_(std::move(means)) {}

std::vector<Tuner::Kind> Tuner::admitted_kinds() {
  std::vector<Kind> out;
  auto const open = planner_.open();
  result_.open = open.size();
  for (auto const& choice : open) {
    if (choice.micro_batch < limits_.least_micro_batch ||
        choice.micro_batch > limits_.largest_micro_batch)
      continue;
    auto const& planned = planner_.evaluate(choice);
    if (!planned.refused.empty() || !planned.fits) continue;
    ++result_.admitted;
    auto kind = std::find_if(out.begin(), out.end(), [&](Kind const& k) {
      return is_same_kind(k.choices.front(), choice);
    });
    if (kind == out.end()) kind = out.insert(out.end(), Kind{});
    kind->choices.push_back(choice);
    double const seconds = planned.time ? planned.time->seconds : 0.0;
    kind->planned_seconds =
        kind->choices.size() == 1 ? seconds : std::min(kind->planned_seconds, seconds);
  }
  for (auto& kind : out)
    std::sort(kind.choices.begin(), kind.choices.end(),
              [](Choice const& a, Choice const& b) { return a.micro_batch < b.micro_batch; });
  std::stable_sort(out.begin(), out.end(), [](Kind const& a, Kind const& b) {
    if (a.planned_seconds != b.planned_seconds) return a.planned_seconds < b.planned_seconds;
    return is_faster_by_the_guides(a.choices.front(), b.choices.front());
  });
  // what a kind saves memory from is measured before it
  std::stable_partition(out.begin(), out.end(), [](Kind const& kind) {
    return larger_kinds(kind.choices.front()).empty();
  });
  return out;
}

bool Tuner::may_continue() {
  if (!result_.ended_by.empty()) return false;
  if (static_cast<std::int64_t>(result_.trials.size()) >= limits_.trials)
    result_.ended_by = concat("the limit of ", counted(limits_.trials, "trial"));
  else if (means_.time_left() <= time_of_finalists * available_)
    result_.ended_by = concat("the limit of ", limits_.minutes, " minutes");
  return result_.ended_by.empty();
}

Trial Tuner::try_choice(Choice const& choice) {
  double const useful = result_.best && !limits_.exhaustive ? give_up * result_.best->seconds
                                                            : std::numeric_limits<double>::max();
  auto trial = means_.measure(choice, useful);
  result_.trials.push_back(trial);
  if (trial.ran() && (!result_.best || is_faster(trial, *result_.best))) result_.best = trial;
  return trial;
}

/// Measures the choices from @p first on until memory or speed ends.
void Tuner::climb_from(Kind& kind, std::ptrdiff_t first, std::ptrdiff_t direction) {
  int slower = 0;
  auto const end = static_cast<std::ptrdiff_t>(kind.choices.size());
  for (auto i = first; i >= 0 && i < end && slower < 2 && may_continue(); i += direction) {
    auto const trial = try_choice(kind.choices[static_cast<std::size_t>(i)]);
    bool const ends =
        !trial.ran() || (kind.best.ran() && trial.seconds > hopeless * kind.best.seconds);
    bool const gained = !kind.best.ran() || clear * trial.seconds < kind.best.seconds;
    slower = gained ? 0 : slower + 1;
    if (is_faster(trial, kind.best)) kind.best = trial;
    // a larger micro-batch does not fit either, a smaller one may
    if (ends && (direction > 0 || trial.ran())) break;
    if (!trial.ran()) slower = 0;
  }
}

void Tuner::climb(Kind& kind) {
  std::int64_t const wanted =
      result_.best ? result_.best->choice.micro_batch
                   : given_choice(planner_.request().arguments, planner_.given()).micro_batch;
  auto const above = std::find_if(kind.choices.begin(), kind.choices.end(),
                                  [&](Choice const& c) { return c.micro_batch > wanted; });
  auto const start = std::max<std::ptrdiff_t>(above - kind.choices.begin() - 1, 0);
  bool const leads = !result_.best;
  climb_from(kind, start, 1);
  // other kinds have their optimum near that of the first one
  bool const promising = leads || (kind.best.ran() && result_.best &&
                                   kind.best.seconds < near_best * result_.best->seconds);
  bool const grew =
      kind.best.ran() &&
      kind.best.choice.micro_batch > kind.choices[static_cast<std::size_t>(start)].micro_batch;
  if (!kind.best.ran() || (promising && !grew)) climb_from(kind, start - 1, -1);
}

/// Removes micro-batches that run without what the kind saves memory with: they are faster there.
void Tuner::leave_useful(Kind& kind, std::vector<Kind> const& measured) const {
  for (auto const& larger : larger_kinds(kind.choices.front())) {
    auto const is_larger = [&](Choice const& c) { return is_same_kind(c, larger); };
    // what saves nothing useful by itself does not with something else either
    if (std::any_of(useless_.begin(), useless_.end(), is_larger)) return kind.choices.clear();
    auto const found = std::find_if(measured.begin(), measured.end(), [&](Kind const& other) {
      return is_larger(other.choices.front());
    });
    if (found == measured.end() || !found->best.ran()) continue;
    // speed ended before memory: a larger micro-batch gains nothing
    std::int64_t most = 0;
    bool memory_ended = false;
    for (auto const& trial : result_.trials) {
      if (!is_same_kind(trial.choice, larger)) continue;
      if (trial.ran()) most = std::max(most, trial.choice.micro_batch);
    }
    auto const& largest = found->choices.back();
    auto const batch = largest.micro_batch * largest.accumulation;
    memory_ended = found->best.choice.micro_batch == most &&
                   (most < largest.micro_batch || largest.micro_batch < batch);
    std::erase_if(kind.choices,
                  [&](Choice const& c) { return !memory_ended || c.micro_batch <= most; });
    if (kind.choices.empty()) return;
  }
}

bool Tuner::is_measured(Choice const& choice) const {
  return std::any_of(result_.trials.begin(), result_.trials.end(),
                     [&](Trial const& t) { return t.choice == choice; });
}

/// What saves memory may also be faster, for instance where an update on the host is: the choices
/// next to the best ones are measured too, as long as one of them is better.
void Tuner::try_neighbors(std::vector<Choice> const& admitted) {
  for (bool gained = result_.best.has_value(); gained;) {
    double const before = result_.best->seconds;
    auto centers = contenders();
    if (centers.size() > best_with_neighbors) centers.resize(best_with_neighbors);
    for (auto const& center : centers)
      for (auto const& choice : admitted)
        if (are_neighbors(center.choice, choice, admitted) && !is_measured(choice) &&
            may_continue())
          (void)try_choice(choice);
    gained = clear * result_.best->seconds < before;
  }
}

void Tuner::try_buckets() {
  if (!result_.best || planner_.request().cluster.ranks() < 2 ||
      names_buckets(planner_.request().arguments))
    return;
  for (auto const numel : buckets) {
    if (numel >= planner_.parameters() || !may_continue()) return;
    auto choice = result_.best->choice;
    choice.bucket_numel = numel;
    auto const& planned = planner_.evaluate(choice);
    if (planned.refused.empty() && planned.fits) (void)try_choice(choice);
  }
}

/// The shortest measurements of different choices that may be the fastest, the shortest first.
std::vector<Trial> Tuner::contenders() const {
  std::vector<Trial> out;
  for (auto const& trial : result_.trials) {
    if (!trial.ran() || trial.seconds > uncertain * result_.best->seconds) continue;
    auto const same = std::find_if(out.begin(), out.end(),
                                   [&](Trial const& t) { return t.choice == trial.choice; });
    if (same == out.end())
      out.push_back(trial);
    else if (is_faster(trial, *same))
      *same = trial;
  }
  std::sort(out.begin(), out.end(), is_faster);
  if (out.size() > finalists) out.resize(finalists);
  return out;
}

/// The shortest of many measurements is the luckiest one. So those that may be the fastest are
/// measured again in turns, each as often as the others, until one is left or another turn does
/// not change their times.
void Tuner::decide_among_the_best() {
  if (!result_.best) return;
  auto of = contenders();
  for (int turn = 0; turn < most_turns && of.size() > 1; ++turn) {
    bool changed = false;
    for (auto& trial : of) {
      if (means_.time_left() <= 0.0) break;
      auto const again = try_choice(trial.choice);
      changed = changed || (again.ran() && clear * again.seconds < trial.seconds);
      if (is_faster(again, trial)) trial = again;
    }
    std::sort(of.begin(), of.end(), is_faster);
    std::erase_if(of,
                  [best = of.front().seconds](Trial const& t) { return t.seconds > apart * best; });
    if (!changed) break;
  }
  if (!of.empty()) result_.best = of.front();
}

void Tuner::measure_all(std::vector<Kind> const& kinds) {
  for (auto const& kind : kinds)
    for (auto const& choice : kind.choices)
      if (may_continue()) (void)try_choice(choice);
}

void Tuner::search(std::vector<Kind>& kinds) {
  std::vector<Kind> measured;
  std::int64_t without_gain = 0;
  for (auto& kind : kinds) {
    if (!may_continue()) break;
    auto const first = kind.choices.front();
    leave_useful(kind, measured);
    if (kind.choices.empty()) {
      useless_.push_back(first);
      continue;
    }
    double const before = result_.best ? result_.best->seconds : 0.0;
    climb(kind);
    bool const gained = result_.best && clear * result_.best->seconds < before;
    without_gain = gained || before == 0.0 ? 0 : without_gain + 1;
    measured.push_back(kind);
    if (without_gain >= limits_.early_stopping && result_.ended_by.empty())
      result_.ended_by =
          concat(counted(without_gain, "kind"), " of candidates without improvement");
  }
}

TuningResult Tuner::run() {
  available_ = means_.time_left();
  auto kinds = admitted_kinds();
  std::vector<Choice> admitted;
  for (auto const& kind : kinds)
    admitted.insert(admitted.end(), kind.choices.begin(), kind.choices.end());
  if (limits_.exhaustive) {
    measure_all(kinds);
  } else {
    search(kinds);
    try_neighbors(admitted);
  }
  try_buckets();
  decide_among_the_best();
  if (result_.ended_by.empty())
    result_.ended_by = limits_.exhaustive ? "every candidate" : "every candidate that could win";
  result_.seconds = available_ - means_.time_left();
  return result_;
}

}  // namespace tessera::plan
