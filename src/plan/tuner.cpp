#include "tessera/plan/tuner.hpp"

#include <algorithm>
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
/// Finalists are those within this factor of the best one.
constexpr double near_best = 1.05;
constexpr std::size_t finalists = 3;
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

bool names_buckets(config::TrainingArguments const& arguments) {
  auto const* const zero = arguments.deepspeed.find("zero_optimization");
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
  else if (means_.time_left() <= 0.0)
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
    auto const found = std::find_if(measured.begin(), measured.end(), [&](Kind const& other) {
      return is_same_kind(other.choices.front(), larger);
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

/// Two measurements of a few steps differ by some percent: the finalists run once more, and each
/// keeps its faster one.
void Tuner::repeat_the_best() {
  if (!result_.best) return;
  auto all = result_.trials;
  std::erase_if(all, [&](Trial const& t) {
    return !t.ran() || t.seconds > near_best * result_.best->seconds;
  });
  std::sort(all.begin(), all.end(), is_faster);
  if (all.size() > finalists) all.resize(finalists);
  if (all.size() < 2) return;
  for (auto& trial : all) {
    if (means_.time_left() <= 0.0) break;
    auto const again = try_choice(trial.choice);
    if (is_faster(again, trial)) trial = again;
  }
  result_.best = *std::min_element(all.begin(), all.end(), is_faster);
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
    leave_useful(kind, measured);
    if (kind.choices.empty()) continue;
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
  double const available = means_.time_left();
  auto kinds = admitted_kinds();
  if (limits_.exhaustive)
    measure_all(kinds);
  else
    search(kinds);
  try_buckets();
  repeat_the_best();
  if (result_.ended_by.empty())
    result_.ended_by = limits_.exhaustive ? "every candidate" : "every candidate that could win";
  result_.seconds = available - means_.time_left();
  return result_;
}

}  // namespace tessera::plan
