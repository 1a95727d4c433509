#include "tessera/checkpoint/tools/prune.hpp"

#include <algorithm>
#include <chrono>

#include "format/detail/file.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/tools/verify.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

bool is_leftover(std::string const& name) {
  return (name.rfind("step_", 0) == 0 && name.find(".tmp.") != std::string::npos) ||
         name.rfind(".trash.", 0) == 0 || name.rfind("latest.tmp.", 0) == 0;
}

double idle_of(fs::path const& path) {
  std::error_code error;
  auto newest = fs::last_write_time(path, error);
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;  // a save may be at work here
    if (auto const time = fs::last_write_time(it->path(), gone); !gone)
      newest = std::max(newest, time);
  }
  return std::chrono::duration<double>(fs::file_time_type::clock::now() - newest).count();
}

std::int64_t bytes_in(fs::path const& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error))
    return static_cast<std::int64_t>(fs::file_size(path, error));
  std::int64_t bytes = 0;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    if (it->is_regular_file(gone)) bytes += static_cast<std::int64_t>(it->file_size(gone));
  }
  return bytes;
}

/// Out of sight first: a reader, or a run that starts, never meets half a checkpoint.
void discard(fs::path const& path) {
  fs::path const trash =
      path.filename().string().rfind(".trash.", 0) == 0
          ? path
          : path.parent_path() / (".trash." + path.filename().string() + ".pruned");
  std::error_code error;
  if (trash != path) {
    fs::remove_all(trash, error);
    detail::rename_path(path, trash);
    detail::flush_directory(path.parent_path());
  }
  fs::remove_all(trash, error);
  TESSERA_VALIDATE(!error, IoError, "cannot remove ", trash.string(), ": ", error.message(),
                   "; remove it by hand or run the same command again");
}

class Pruning {
 public:
  explicit Pruning(PruneOptions const& options) : options_(options) {}

  /// Newest first: the ones that stay are known before anything is removed.
  void decide_checkpoints() {
    auto listed = list_checkpoints(options_.checkpoints);
    std::reverse(listed.begin(), listed.end());
    RetentionCount retention(options_.keep);
    bool any_complete = false;
    for (auto const& checkpoint : listed) {
      if (checkpoint.state == CheckpointState::unreadable) throw IoError(checkpoint.problem);
      std::string problem = checkpoint.problem;
      if (problem.empty() && !retention.full() && options_.check == PruneOptions::Check::checksums)
        if (auto const report = verify(checkpoint.directory); !report.ok())
          problem = report.problems.front();
      PrunedCheckpoint decision{checkpoint.name, "", checkpoint.bytes, false};
      if (!problem.empty())
        decide_damaged(decision, problem, checkpoint.is_latest);
      else if (any_complete = true; retention.keeps(checkpoint))
        decision.why = checkpoint.made_progress
                           ? concat("complete, one of the newest ", options_.keep)
                           : "complete, the newest; saved while steps were skipped, not counted";
      else if (checkpoint.is_latest)
        decision.why = "complete, `latest` names it";
      else if (checkpoint.age_seconds < options_.older_than_seconds)
        decision.why = concat("complete, only ", human_duration(checkpoint.age_seconds), " old");
      else
        decision.removed = true, decision.why = "complete, older than those that stay";
      add(std::move(decision), checkpoint.directory);
    }
    if (!any_complete) keep_newest_damaged();
  }

  void decide_unfinished() {
    for (auto const& checkpoint : list_unfinished(options_.checkpoints)) {
      PrunedCheckpoint decision{checkpoint.name, "", checkpoint.bytes, false};
      if (checkpoint.is_complete)
        decision.why = "a complete save; the next start of the run gives it its name";
      else if (checkpoint.idle_seconds < options_.idle_seconds)
        decision.why = concat("unfinished, written to ", human_duration(checkpoint.idle_seconds),
                              " ago: perhaps a save in progress");
      else
        decide_damaged(decision, "left by an interrupted save", false);
      add(std::move(decision), checkpoint.path);
    }
  }

  std::vector<PrunedCheckpoint> carry_out() {
    if (options_.mode == PruneOptions::Mode::remove)
      for (std::size_t i = decisions_.size(); i-- > 0;)
        if (decisions_[i].removed) discard(paths_[i]);
    std::reverse(decisions_.begin(), decisions_.end());
    return std::move(decisions_);
  }

 private:
  /// Half a checkpoint is better than none.
  void keep_newest_damaged() {
    for (auto& decision : decisions_)
      if (decision.removed && !is_leftover(decision.name)) {
        decision.removed = false;
        decision.why += " (kept: no checkpoint is complete)";
        return;
      }
  }
  void decide_damaged(PrunedCheckpoint& decision, std::string const& problem, bool is_latest) {
    decision.why = "damaged: " + problem;
    decision.removed = options_.damaged == PruneOptions::Damaged::remove && !is_latest;
    if (is_latest) decision.why += " (`latest` names it: kept)";
  }
  void add(PrunedCheckpoint decision, fs::path const& path) {
    decisions_.push_back(std::move(decision));
    paths_.push_back(path);
  }

  PruneOptions const& options_;
  std::vector<PrunedCheckpoint> decisions_;  ///< newest first
  std::vector<fs::path> paths_;
};

}  // namespace

std::vector<UnfinishedSave> list_unfinished(fs::path const& given) {
  fs::path const checkpoints =
      detail::directory_exists(given / "checkpoints") ? given / "checkpoints" : given;
  std::vector<UnfinishedSave> out;
  for (auto const& entry : detail::entries_of(checkpoints)) {
    std::string const name = entry.path().filename().string();
    if (!is_leftover(name)) continue;
    UnfinishedSave unfinished{name, entry.path(), bytes_in(entry.path()), idle_of(entry.path()),
                              false};
    fs::path const final = checkpoints / name.substr(0, name.find(".tmp."));
    unfinished.is_complete = name.rfind("step_", 0) == 0 && !detail::path_exists(final) &&
                             find_problem(entry.path()).empty();
    out.push_back(std::move(unfinished));
  }
  std::sort(out.begin(), out.end(), [](auto const& a, auto const& b) { return a.name > b.name; });
  return out;
}

std::vector<PrunedCheckpoint> prune(PruneOptions const& options) {
  TESSERA_VALIDATE(options.keep >= 1, UsageError, "keep is ", options.keep,
                   "; at least the newest complete checkpoint stays");
  TESSERA_VALIDATE(detail::directory_exists(options.checkpoints), IoError,
                   options.checkpoints.string(),
                   " is not a directory; give a run's output_dir or its checkpoints directory");
  Pruning pruning(options);
  pruning.decide_unfinished();
  pruning.decide_checkpoints();
  return pruning.carry_out();
}

}  // namespace tessera::checkpoint
