#include "tessera/checkpoint/format/directory.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <utility>

#include "format/detail/file.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The step of "step_00000100", or nothing.
std::optional<std::int64_t> step_of(std::string const& name) {
  constexpr std::string_view prefix = "step_";
  if (name.size() <= prefix.size() || name.compare(0, prefix.size(), prefix) != 0)
    return std::nullopt;
  std::int64_t step = 0;
  auto const [end, error] =
      std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

/// "<output_dir>/checkpoints" of a run directory, else the directory itself.
fs::path checkpoints_of(fs::path const& given) {
  return detail::directory_exists(given / "checkpoints") ? given / "checkpoints" : given;
}

/// What the file `latest` says, or nothing.
std::string latest_name(fs::path const& checkpoints) {
  if (!detail::path_exists(checkpoints / "latest")) return "";
  std::string text = detail::read_text(checkpoints / "latest", 4096);
  text.resize(std::min(text.find_first_of("\r\n \t"), text.size()));
  return text;
}

std::int64_t bytes_of(fs::path const& directory) {
  std::int64_t bytes = 0;
  std::error_code error;
  for (auto const& entry : fs::directory_iterator(directory, error))
    if (auto const size = entry.is_regular_file(error) ? entry.file_size(error) : 0; !error)
      bytes += static_cast<std::int64_t>(size);
  return bytes;
}

double age_of(fs::path const& file) {
  std::error_code error;
  auto const time = fs::last_write_time(file, error);
  return error ? 0.0
               : std::chrono::duration<double>(fs::file_time_type::clock::now() - time).count();
}

/// Directories there, for messages; the last of many.
std::string names_in(fs::path const& directory) {
  std::vector<std::string> all;
  std::error_code error;
  for (auto const& entry : fs::directory_iterator(directory, error))
    if (entry.is_directory(error)) all.push_back(entry.path().filename().string());
  std::sort(all.begin(), all.end());
  std::string names = all.empty() ? "no directory" : all.size() > 8 ? "..." : "";
  for (std::size_t i = all.size() > 8 ? all.size() - 8 : 0; i < all.size(); ++i)
    names += (names.empty() ? "" : ", ") + all[i];
  return names;
}

bool holds(std::vector<std::int64_t> const& list, std::int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

std::vector<std::pair<std::int64_t, fs::path>> step_directories(fs::path const& checkpoints) {
  std::vector<std::pair<std::int64_t, fs::path>> out;
  std::error_code error;
  for (auto const& entry : detail::entries_of(checkpoints))
    if (auto const step = step_of(entry.path().filename().string());
        step && entry.is_directory(error))
      out.emplace_back(*step, entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

std::string step_name(std::int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step_%08lld", static_cast<long long>(step));
  return name;
}

bool holds_only_model(fs::path const& step_directory) {
  std::error_code error;
  auto const has = [&](char const* name) { return fs::exists(step_directory / name, error); };
  // a run directory has a model of its own next to its checkpoints
  return !has("manifest.json") && !has("checkpoints") && has("config.json") &&
         (has("model.safetensors") || has("model.safetensors.index.json"));
}

CheckpointProblem examine(fs::path const& step_directory) {
  auto const damaged = [](std::string const& text) {
    return CheckpointProblem{CheckpointState::damaged, text};
  };
  try {
    if (!detail::path_exists(step_directory))
      return damaged(step_directory.string() + " is missing");
    if (!detail::path_exists(step_directory / "manifest.json")) {
      if (!holds_only_model(step_directory))
        return damaged(step_directory.string() + " has no manifest.json");
      return {CheckpointState::only_model,
              step_directory.string() +
                  " holds a model without optimizer state (--save_only_model); no run can resume "
                  "from it, but --model_name_or_path starts a new one with its weights"};
    }
    Manifest const manifest = read_manifest(step_directory);
    for (auto const& shard : manifest.shards) {
      auto const path = step_directory / shard.file;
      if (!detail::path_exists(path)) return damaged(path.string() + " is missing");
      std::error_code error;
      auto const size = fs::file_size(path, error);
      if (error) return damaged(concat(path.string(), ": ", error.message()));
      if (static_cast<std::int64_t>(size) != shard.bytes)
        return damaged(
            concat(path.string(), " has ", size, " bytes, ", shard.bytes, " were written"));
    }
    return {CheckpointState::complete, "", manifest.skipped_in_a_row == 0};
  } catch (IoError const& e) {
    return {CheckpointState::unreadable, e.what()};
  } catch (Error const& e) {
    return damaged(e.what());
  }
}

std::string find_problem(fs::path const& step_directory) { return examine(step_directory).text; }

namespace {

/// @throws IoError when it cannot be read
CheckpointProblem examine_readable(fs::path const& step_directory) {
  auto problem = examine(step_directory);
  if (problem.state == CheckpointState::unreadable) throw IoError(problem.text);
  return problem;
}

/// All checkpoints in the order in which a run would take them: the one that `latest` names, then
/// from the newest to the oldest. Those beyond the named one come last: the run went back behind
/// them once.
std::vector<std::pair<std::int64_t, fs::path>> candidates_of(fs::path const& checkpoints,
                                                             std::string const& latest) {
  auto candidates = step_directories(checkpoints);
  std::reverse(candidates.begin(), candidates.end());
  if (auto const named = step_of(latest)) {
    std::stable_partition(candidates.begin(), candidates.end(),
                          [&](auto const& one) { return one.first <= *named; });
    std::stable_partition(candidates.begin(), candidates.end(),
                          [&](auto const& one) { return one.second.filename() == latest; });
  }
  return candidates;
}

}  // namespace

std::optional<LatestCheckpoint> find_latest(fs::path const& given,
                                            std::vector<std::int64_t> const& refused) {
  fs::path const checkpoints = checkpoints_of(given);
  std::string const latest = latest_name(checkpoints);
  std::string note;
  bool is_older = !latest.empty() && !detail::path_exists(checkpoints / latest);
  if (latest.empty())
    note = concat(checkpoints.string(), " has no `latest`");
  else if (!step_of(latest) || is_older)
    note = concat("`latest` names '", latest, "', which is not a checkpoint");
  for (auto const& [step, directory] : candidates_of(checkpoints, latest)) {
    bool const named = directory.filename() == latest, is_refused = holds(refused, step);
    auto const problem = is_refused ? CheckpointProblem{} : examine_readable(directory);
    if (!is_refused && problem.state == CheckpointState::complete) {
      if (named) return LatestCheckpoint{directory, step, "", false};
      return LatestCheckpoint{directory, step,
                              concat(note, "; the newest complete checkpoint, ",
                                     directory.filename().string(), ", is used"),
                              is_older};
    }
    if (problem.state == CheckpointState::only_model) continue;
    is_older = true;
    if (named && is_refused)
      note = concat("`latest` names ", latest, ", which was refused");
    else if (named)
      note = concat("`latest` names ", latest, ", which is not complete (", problem.text, ")");
    else if (latest.empty())
      note += is_refused ? "" : concat("; ", problem.text);
  }
  return std::nullopt;
}

void require_no_damaged_checkpoint(fs::path const& given) {
  fs::path const checkpoints = checkpoints_of(given);
  std::vector<std::string> problems;
  for (auto const& [step, directory] : candidates_of(checkpoints, latest_name(checkpoints)))
    if (auto problem = examine_readable(directory); problem.state == CheckpointState::damaged)
      problems.push_back(std::move(problem.text));
  if (problems.empty()) return;
  std::size_t const count = problems.size();
  throw DataError(concat(count == 1   ? "the only checkpoint in "
                         : count == 2 ? "both checkpoints in "
                                      : concat("all ", count, " checkpoints in "),
                         checkpoints.string(), count == 1 ? " is damaged: " : " are damaged: ",
                         problems.front(), "; `tessera checkpoint verify --all ", given.string(),
                         "` lists all damage; restore the files from a copy, or use another "
                         "directory"));
}

namespace {

fs::path tagged_checkpoint(fs::path const& checkpoints, std::string const& tag) {
  std::int64_t step = 0;
  auto const [end, bad] = std::from_chars(tag.data(), tag.data() + tag.size(), step);
  std::string const name =
      bad == std::errc{} && end == tag.data() + tag.size() ? step_name(step) : tag;
  TESSERA_VALIDATE(detail::is_plain_name(name), UsageError, "'", tag,
                   "' is not the name of a checkpoint; use step_00000100 or 100");
  TESSERA_VALIDATE(detail::directory_exists(checkpoints / name), IoError, checkpoints.string(),
                   " has no checkpoint ", name, "; it has ", names_in(checkpoints));
  return checkpoints / name;
}

}  // namespace

fs::path resolve_checkpoint(fs::path const& given, std::string const& tag,
                            WhenDamaged when_damaged) {
  TESSERA_VALIDATE(detail::directory_exists(given), IoError, given.string(),
                   " is not a directory; give a run directory, its checkpoints or one checkpoint");
  fs::path const checkpoints = checkpoints_of(given);
  if (!tag.empty()) return tagged_checkpoint(checkpoints, tag);
  if (detail::path_exists(given / "manifest.json")) return given;
  if (checkpoints == given && step_of(given.filename().string())) {
    if (when_damaged == WhenDamaged::take) return given;
    throw DataError(examine_readable(given).text);
  }
  auto const found = find_latest(given);
  if (found && !found->is_older) return found->directory;
  if (when_damaged == WhenDamaged::take)
    for (auto const& [step, directory] : candidates_of(checkpoints, latest_name(checkpoints))) {
      auto const state = examine_readable(directory).state;
      if (state == CheckpointState::damaged) return directory;
      if (state == CheckpointState::complete) break;
    }
  if (found && when_damaged == WhenDamaged::use_older) {
    log::warning(found->note);
    return found->directory;
  }
  TESSERA_VALIDATE(!found, DataError, found->note, " only with --allow_older; or name one with ",
                   "--tag ", found->step);
  require_no_damaged_checkpoint(given);
  std::string const latest = latest_name(checkpoints);
  throw IoError(concat(checkpoints.string(), " has no checkpoint",
                       latest.empty() ? "" : concat(" (`latest` names '", latest, "')"),
                       "; one is a directory step_<number> with a manifest.json, or DeepSpeed's "
                       "with *_optim_states.pt"));
}

bool RetentionCount::keeps(CheckpointInfo const& checkpoint) {
  bool const newest = std::exchange(is_newest_, false);
  if (!checkpoint.made_progress) return newest;
  if (full()) return false;
  ++counted_;
  return true;
}

std::vector<CheckpointInfo> list_checkpoints(fs::path const& given) {
  fs::path const checkpoints = checkpoints_of(given);
  std::string const latest = latest_name(checkpoints);
  std::vector<CheckpointInfo> out;
  for (auto const& [step, path] : step_directories(checkpoints)) {
    CheckpointInfo one;
    one.name = path.filename().string();
    one.directory = path;
    one.step = step;
    one.bytes = bytes_of(path);
    one.age_seconds = age_of(path / "manifest.json");
    one.is_latest = one.name == latest;
    auto problem = examine(path);
    one.state = problem.state;
    one.problem = std::move(problem.text);
    one.made_progress = problem.made_progress;
    one.is_complete = one.state == CheckpointState::complete;
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace tessera::checkpoint
