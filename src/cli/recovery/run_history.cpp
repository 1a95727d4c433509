#include "recovery/run_history.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

constexpr char const* lost_key = "lost_seconds";
constexpr char const* kinds_of_loss[] = {"stall", "start", "restore", "recomputation"};

double between(RunHistory::Time from, RunHistory::Time to) {
  return std::max(0.0, std::chrono::duration<double>(to - from).count());
}

ConfigTree no_loss() {
  ConfigTree tree;
  for (char const* kind : kinds_of_loss) tree.set(kind, 0.0);
  return tree;
}

void add(ConfigTree& losses, char const* kind, double seconds) {
  losses.set(kind, losses.get_double(kind, 0.0) + seconds);
}

double sum(ConfigTree const& losses) {
  double total = 0.0;
  for (char const* kind : kinds_of_loss) total += losses.get_double(kind, 0.0);
  return total;
}

std::string loss_text(ConfigTree const& losses) {
  std::string text;
  for (char const* kind : kinds_of_loss)
    text +=
        fmt::format("{}{} {:.1f} s", text.empty() ? "" : ", ", kind, losses.get_double(kind, 0.0));
  return text;
}

std::vector<ConfigTree> failures_of(ConfigTree const& history) {
  auto const* failures = history.find("failures");
  return failures && failures->is_array() ? failures->as_array() : std::vector<ConfigTree>();
}

ConfigTree no_failures() {
  ConfigTree tree;
  tree.set("schema", 1).set("attempts", 0).set(lost_key, no_loss());
  return tree.set("failures", ConfigTree::array());
}

}  // namespace

RunHistory::RunHistory(ConfigTree earlier, Time now)
    : document_(std::move(earlier)), started_(now), phase_began_(now) {
  elapsed_before_ = document_.get_double("elapsed_seconds", 0.0);
  if (!document_.contains("failures")) document_ = no_failures();
  document_.erase("exit_code");
  document_.erase("reason");
}

void RunHistory::attempt_begins(int ranks, Time now) {
  document_.set("attempts", document_.get_int("attempts", 0) + 1).set("ranks", ranks);
  phase_ = Phase::starting;
  phase_began_ = now;
}

void RunHistory::training_begins(std::int64_t restored, double restore_seconds, Time now) {
  if (std::exchange(may_start_over_, false) && restored == 0 && elapsed_before_ > 0.0) {
    auto const ranks = document_.get_int("ranks", 0);
    document_ = no_failures().set("attempts", 1).set("ranks", ranks);
    elapsed_before_ = 0.0;
  }
  double const start = between(phase_began_, now);
  restore_seconds = std::clamp(restore_seconds, 0.0, start);
  lose("start", start - restore_seconds);
  lose("restore", restore_seconds);
  step_ = restored_ = restored;
  phase_ = step_ < failed_step_ ? Phase::recomputing : Phase::progress;
  phase_began_ = now;
}

void RunHistory::step_completed(std::int64_t step, Time now) {
  step_ = step;
  if (phase_ != Phase::recomputing || step_ < failed_step_) return;
  lose("recomputation", between(phase_began_, now));
  phase_ = Phase::progress;
}

void RunHistory::attempt_failed(Failure const& failure, Time last_sign, Time now) {
  if (phase_ == Phase::starting)
    lose("start", between(phase_began_, now));
  else if (phase_ == Phase::recomputing)
    lose("recomputation", between(phase_began_, last_sign));
  bool const stalls = phase_ != Phase::starting;
  failed_step_ = std::max(failed_step_, step_);
  ConfigTree entry;
  entry.set("time", utc_timestamp())
      .set("step", step_)
      .set("kind", failure.kind)
      .set("reason", failure.reason)
      .set("exit_code", failure.exit_code)
      .set("ranks", document_.get_int("ranks", 0));
  if (failure.rank >= 0) entry.set("rank", failure.rank);
  if (!failure.host.empty()) entry.set("node", failure.host);
  entry.set("node_lost", failure.node_lost).set(lost_key, no_loss());
  if (failure.excludes_node) entry.set("node_excluded", true);
  document_["failures"].push_back(std::move(entry));
  if (stalls) lose("stall", between(last_sign, now));
  phase_ = Phase::starting;
  phase_began_ = now;
}

void RunHistory::run_ended(int exit_code, std::string const& reason, Time now) {
  if (phase_ == Phase::recomputing) lose("recomputation", between(phase_began_, now));
  document_.set("exit_code", exit_code).set("reason", reason);
}

/// Losses after a failure are those of that failure as well.
void RunHistory::lose(char const* what, double seconds) {
  add(document_[lost_key], what, seconds);
  auto failures = failures_of(document_);
  if (failures.empty()) return;
  add(failures.back()[lost_key], what, seconds);
  document_.set("failures", std::move(failures));
}

ConfigTree RunHistory::tree(Time now) const {
  auto document = document_;
  double const elapsed = elapsed_before_ + between(started_, now);
  double const useful = elapsed - sum(document.at(lost_key));
  document.set("elapsed_seconds", elapsed)
      .set("goodput", elapsed > 0.0 ? std::clamp(useful / elapsed, 0.0, 1.0) : 0.0)
      .set("updated", utc_timestamp());
  return document;
}

std::string failures_text(ConfigTree const& history) {
  auto const failures = failures_of(history);
  if (failures.empty()) return "none";
  std::map<std::string, int> kinds;
  for (auto const& failure : failures) ++kinds[failure.get_string("kind", "unknown")];
  std::string text;
  for (auto const& [kind, count] : kinds)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, kind);
  return fmt::format("{}: {}", failures.size(), text);
}

std::string goodput_text(ConfigTree const& history) {
  auto const* losses = history.find(lost_key);
  return fmt::format("{:.1f} % of {}; lost: {}", 100.0 * history.get_double("goodput", 0.0),
                     human_duration(history.get_double("elapsed_seconds", 0.0)),
                     loss_text(losses ? *losses : ConfigTree::object()));
}

std::vector<std::string> excluded_nodes(ConfigTree const& history) {
  std::vector<std::string> out;
  for (auto const& failure : failures_of(history))
    if (failure.get_bool("node_excluded", false)) out.push_back(failure.get_string("node", ""));
  return out;
}

std::vector<std::string> history_lines(ConfigTree const& history, std::size_t most) {
  auto const failures = failures_of(history);
  std::vector<std::string> lines;
  for (std::size_t i = failures.size() - std::min(most, failures.size()); i < failures.size();
       ++i) {
    auto const& failure = failures[i];
    std::string const node = failure.get_string("node", "");
    auto const* losses = failure.find(lost_key);
    lines.push_back(fmt::format(
        "{} after step {} on {} {}{}: {}; lost {:.1f} s ({})", failure.get_string("time", "?"),
        failure.get_int("step", 0), failure.get_int("ranks", 0),
        plural(failure.get_int("ranks", 0), "rank"), node.empty() ? "" : ", node " + node,
        failure.get_string("reason", "?"), losses ? sum(*losses) : 0.0,
        loss_text(losses ? *losses : ConfigTree::object())));
  }
  return lines;
}

}  // namespace tessera::cli
