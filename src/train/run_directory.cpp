#include "tessera/train/run_directory.hpp"

#include <unistd.h>

#include <cstdio>
#include <functional>
#include <random>

#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

void make_writable(fs::path const& directory) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  TESSERA_VALIDATE(!failed, IoError, "cannot create the output directory ", directory.string(),
                   ": ", failed.message(), "; choose another one with --output_dir");
  fs::path const probe = directory / concat(".write-test.", ::getpid());
  write_file_atomically(probe, "");
  fs::remove(probe, failed);
}

/// Removes files that a killed run left half written. The lock is held, so no job writes them.
void remove_torn_files(fs::path const& directory) {
  std::vector<fs::path> torn;
  for (auto const& entry : fs::directory_iterator(directory)) {
    std::string const name = entry.path().filename().string();
    if (name.starts_with("status.json.tmp.") || name.starts_with("metrics.jsonl.tmp.") ||
        name.starts_with(".write-test."))
      torn.push_back(entry.path());
  }
  std::error_code ignored;
  for (auto const& file : torn) fs::remove(file, ignored);
}

/// Files other than those of a run that was killed before its first checkpoint: such a run starts
/// again by the same command.
bool holds_other_files(fs::path const& directory) {
  for (auto const& entry : fs::directory_iterator(directory)) {
    std::string const name = entry.path().filename().string();
    if (name.front() == '.' || name == "status.json" || name == "metrics.jsonl") continue;
    if (name != "checkpoints" || !checkpoint::list_checkpoints(entry.path()).empty()) return true;
  }
  return false;
}

bool asks_for_latest(std::string const& given) { return given == "true" || given == "latest"; }
bool asks_for_none(std::string const& given) { return given == "false" || given == "never"; }

/// "100" or "step_00000100": a checkpoint of this run.
bool is_step(std::string const& given) {
  std::string const digits = given.starts_with("step_") ? given.substr(5) : given;
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
}

/// A checkpoint that was given by step or path is used or refused, never replaced.
StartingPoint named_checkpoint(config::TrainingArguments const& arguments,
                               std::string const& given) {
  bool const step = is_step(given) && !fs::exists(given);
  if (!step && checkpoint::holds_only_model(given))
    throw DataError(
        concat("--resume_from_checkpoint ", given, ": ", checkpoint::find_problem(given)));
  auto const directory = step ? checkpoint::resolve_checkpoint(arguments.output_dir, given)
                              : checkpoint::resolve_checkpoint(given);
  std::string const problem = checkpoint::find_problem(directory);
  TESSERA_VALIDATE(
      problem.empty(), DataError, "--resume_from_checkpoint ", given, ": ", problem,
      "; `tessera checkpoint ls ", arguments.output_dir.string(),
      "` lists the others, --resume_from_checkpoint auto takes the newest complete one");
  return {directory, "resuming from " + directory.string(), false};
}

/// For the message that there is no checkpoint to resume from.
std::string note_of_models(fs::path const& directory) {
  for (auto const& one : checkpoint::list_checkpoints(directory))
    if (checkpoint::holds_only_model(one.directory))
      return concat(" (", one.name, " holds only a model, written with --save_only_model)");
  return "";
}

StartingPoint choose(config::TrainingArguments const& arguments) {
  fs::path const& directory = arguments.output_dir;
  if (!arguments.do_train) return {};
  std::string const& given = arguments.resume_from_checkpoint;
  if (asks_for_none(given) || (arguments.overwrite_output_dir && given.empty())) {
    TESSERA_VALIDATE(arguments.overwrite_output_dir || !holds_other_files(directory), UsageError,
                     "the output directory ", directory.string(),
                     " is not empty; use --overwrite_output_dir, or another --output_dir");
    return {};
  }
  if (!given.empty() && !asks_for_latest(given) && given != "auto")
    return named_checkpoint(arguments, given);
  if (auto const found = checkpoint::find_latest(directory)) {
    std::string note = concat("resuming from ", found->directory.string());
    if (!found->note.empty()) note += concat(" (", found->note, ")");
    return {found->directory, note, true};
  }
  TESSERA_VALIDATE(!asks_for_latest(given), IoError, "--resume_from_checkpoint ", given,
                   ": there is no complete checkpoint in ", directory.string());
  TESSERA_VALIDATE(arguments.overwrite_output_dir || !holds_other_files(directory), UsageError,
                   "the output directory ", directory.string(),
                   " is not empty and holds no checkpoint to resume from",
                   note_of_models(directory),
                   "; use --overwrite_output_dir, or another --output_dir");
  return {};
}

/// Rank 0 decides and broadcasts: one view of a shared directory, and one error on all ranks.
StartingPoint decide_on_root(comm::Collectives& comm,
                             std::function<StartingPoint()> const& decide) {
  std::string const answer = comm::broadcast_from_root(comm, [&]() -> std::string {
    try {
      auto const start = decide();
      return concat(start.may_fall_back ? '+' : '=', start.checkpoint.string(), "\n", start.note);
    } catch (DirectoryInUse const& e) {
      return concat("!", e.what());
    }
  });
  if (answer[0] == '!') throw DirectoryInUse(answer.substr(1));
  std::size_t const newline = answer.find('\n');
  return {answer.substr(1, newline - 1), answer.substr(newline + 1), answer[0] == '+'};
}

}  // namespace

StartingPoint prepare_run_directory(config::TrainingArguments const& arguments,
                                    comm::Collectives& comm, std::unique_ptr<RunLock>& lock) {
  return decide_on_root(comm, [&] {
    make_writable(arguments.output_dir);
    lock = std::make_unique<RunLock>(arguments.output_dir);
    remove_torn_files(arguments.output_dir);
    return choose(arguments);
  });
}

StartingPoint fall_back(config::TrainingArguments const& arguments,
                        std::vector<std::int64_t> const& refused, comm::Collectives& comm) {
  return decide_on_root(comm, [&]() -> StartingPoint {
    auto const found = checkpoint::find_latest(arguments.output_dir, refused);
    if (!found) return {};
    return {found->directory, concat("resuming from ", found->directory.string()), true};
  });
}

std::string new_run_id() {
  std::string const time = utc_timestamp();  // 2026-01-31T12:00:00Z
  std::string digits;
  for (char const c : time)
    if (c >= '0' && c <= '9') digits += c;
  std::random_device source;
  char random[16];
  std::snprintf(random, sizeof random, "%08x%04x", static_cast<unsigned>(source()),
                static_cast<unsigned>(source()) & 0xffffu);
  return concat(digits.substr(0, 8), "-", digits.substr(8), "-", random);
}

void remove_previous_run(fs::path const& directory) {
  std::error_code ignored;
  for (char const* name : {"checkpoints", "metrics.jsonl", "all_results.json", "train_results.json",
                           "eval_results.json"})
    fs::remove_all(directory / name, ignored);
}

}  // namespace tessera::train
