#include "tessera/checkpoint/format/directory.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <utility>

#include "format/detail/file.hpp"
#include "tessera/core/error.hpp"

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
  std::error_code error;
  if (fs::is_directory(given / "checkpoints", error)) return given / "checkpoints";
  return given;
}

/// What the file `latest` says, or nothing.
std::string latest_name(fs::path const& checkpoints) {
  std::error_code error;
  if (!fs::exists(checkpoints / "latest", error)) return "";
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

/// Checkpoint directories by step; temporary ones are not among them.
std::vector<std::pair<std::int64_t, fs::path>> step_directories(fs::path const& checkpoints) {
  std::vector<std::pair<std::int64_t, fs::path>> out;
  std::error_code error;
  for (auto const& entry : fs::directory_iterator(checkpoints, error))
    if (auto const step = step_of(entry.path().filename().string());
        step && entry.is_directory(error))
      out.emplace_back(*step, entry.path());
  std::sort(out.begin(), out.end());
  return out;
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

std::string step_name(std::int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step_%08lld", static_cast<long long>(step));
  return name;
}

bool holds_only_model(fs::path const& step_directory) {
  std::error_code error;
  auto const has = [&](char const* name) { return fs::exists(step_directory / name, error); };
  return !has("manifest.json") && has("config.json") &&
         (has("model.safetensors") || has("model.safetensors.index.json"));
}

namespace {

/// find_problem(), and whether the last step of a checkpoint updated the weights.
std::string inspect(fs::path const& step_directory, bool& made_progress) {
  try {
    std::error_code error;
    if (holds_only_model(step_directory))
      return step_directory.string() +
             " holds a model without optimizer state (--save_only_model); no run can resume from "
             "it, but --model_name_or_path starts a new one with its weights";
    if (!fs::exists(step_directory / "manifest.json", error))
      return step_directory.string() + " has no manifest.json; its save never ended";
    Manifest const manifest = read_manifest(step_directory);
    made_progress = manifest.skipped_in_a_row == 0;
    for (auto const& shard : manifest.shards) {
      auto const path = step_directory / shard.file;
      auto const size = fs::file_size(path, error);
      if (error) return concat(path.string(), ": ", error.message());
      if (static_cast<std::int64_t>(size) != shard.bytes)
        return concat(path.string(), " has ", size, " bytes, ", shard.bytes, " were written");
    }
    return "";
  } catch (Error const& e) {
    return e.what();
  }
}

}  // namespace

std::string find_problem(fs::path const& step_directory) {
  bool made_progress = true;
  return inspect(step_directory, made_progress);
}

std::optional<LatestCheckpoint> find_latest(fs::path const& given,
                                            std::vector<std::int64_t> const& refused) {
  fs::path const checkpoints = checkpoints_of(given);
  std::string note;
  std::string const latest = latest_name(checkpoints);
  auto const named = step_of(latest);
  if (named && !holds(refused, *named)) {
    std::string const problem = find_problem(checkpoints / latest);
    if (problem.empty()) return LatestCheckpoint{checkpoints / latest, *named, ""};
    note = concat("`latest` names ", latest, ", which is not complete (", problem, ")");
  } else if (named) {
    note = concat("`latest` names ", latest, ", which was refused");
  } else {
    note = latest.empty() ? concat(checkpoints.string(), " has no `latest`")
                          : concat("`latest` names '", latest, "', which is not a checkpoint");
  }
  // newest first; those beyond the named one come last: the run went back behind them once
  auto candidates = step_directories(checkpoints);
  std::reverse(candidates.begin(), candidates.end());
  if (named)
    std::stable_partition(candidates.begin(), candidates.end(),
                          [&](auto const& one) { return one.first <= *named; });
  for (auto const& [step, directory] : candidates) {
    if (holds(refused, step) || directory.filename() == latest) continue;
    if (find_problem(directory).empty())
      return LatestCheckpoint{directory, step,
                              concat(note, "; the newest complete checkpoint, ",
                                     directory.filename().string(), ", is used")};
  }
  return std::nullopt;
}

fs::path resolve_checkpoint(fs::path const& given, std::string const& tag) {
  std::error_code error;
  TESSERA_VALIDATE(fs::is_directory(given, error), IoError, given.string(),
                   " is not a directory; give a run directory, its checkpoints or one checkpoint");
  if (tag.empty() && fs::exists(given / "manifest.json", error)) return given;
  fs::path const checkpoints = checkpoints_of(given);
  if (!tag.empty()) {
    std::int64_t step = 0;
    auto const [end, bad] = std::from_chars(tag.data(), tag.data() + tag.size(), step);
    std::string const name =
        bad == std::errc{} && end == tag.data() + tag.size() ? step_name(step) : tag;
    TESSERA_VALIDATE(detail::is_plain_name(name), UsageError, "'", tag,
                     "' is not the name of a checkpoint; use step_00000100 or 100");
    TESSERA_VALIDATE(fs::is_directory(checkpoints / name, error), IoError, checkpoints.string(),
                     " has no checkpoint ", name, "; it has ", names_in(checkpoints));
    return checkpoints / name;
  }
  auto const found = find_latest(given);
  if (found) return found->directory;
  auto const all = step_directories(checkpoints);
  TESSERA_VALIDATE(all.empty(), DataError, "none of the ", all.size(), " checkpoints in ",
                   checkpoints.string(),
                   " is complete; the newest: ", find_problem(all.back().second));
  throw IoError(concat(checkpoints.string(),
                       " has no checkpoint"
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
    one.problem = inspect(path, one.made_progress);
    one.is_complete = one.problem.empty();
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace tessera::checkpoint
