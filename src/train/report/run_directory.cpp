#include "tessera/train/report/run_directory.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <random>
#include <string_view>

#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/tools/import.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "tessera/topology/launcher.hpp"
#include "tessera/train/report/status_file.hpp"

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

constexpr char trash_prefix[] = ".trash.";

/// @throws IoError when @p directory exists and cannot be listed
std::vector<fs::path> entries_of(fs::path const& directory) {
  std::error_code failed;
  std::vector<fs::path> entries;
  if (!fs::exists(fs::symlink_status(directory, failed))) return entries;
  for (fs::directory_iterator it(directory, failed), end; !failed && it != end;
       it.increment(failed))
    entries.push_back(it->path());
  TESSERA_VALIDATE(!failed, IoError, "cannot read the directory ", directory.string(), ": ",
                   failed.message());
  return entries;
}

/// Removes files that a killed run left half written or half removed. The lock is held, so no job
/// writes them.
void remove_torn_files(fs::path const& directory) {
  std::error_code ignored;
  for (auto const& entry : entries_of(directory)) {
    std::string const name = entry.filename().string();
    if (name.starts_with("status.json.tmp.") || name.starts_with("metrics.jsonl.tmp.") ||
        name.starts_with(".write-test.") || name.starts_with(trash_prefix))
      fs::remove_all(entry, ignored);
  }
}

/// Files other than those of a run that was killed before its first checkpoint: such a run starts
/// again by the same command.
bool holds_other_files(fs::path const& directory) {
  constexpr std::string_view of_a_failed_run[] = {"status.json",
                                                  "metrics.jsonl",
                                                  "flight_record",
                                                  "comms_logger.json",
                                                  "tuning.json",
                                                  "tuned.json",
                                                  "runs",
                                                  "wandb",
                                                  "mlruns",
                                                  "recovery.json",
                                                  "eval_results.json",
                                                  "all_results.json"};
  for (auto const& entry : entries_of(directory)) {
    std::string const name = entry.filename().string();
    if (name.front() == '.' ||
        std::ranges::find(of_a_failed_run, name) != std::end(of_a_failed_run))
      continue;
    if (name != "checkpoints" || !checkpoint::list_checkpoints(entry).empty()) return true;
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

/// Checkpoints of other programs, with the command that makes them usable.
void refuse_other_programs(config::TrainingArguments const& arguments, fs::path const& given) {
  std::string const flag = concat("--resume_from_checkpoint ", given.string());
  fs::path const& output = arguments.output_dir;
  if (checkpoint::holds_deepspeed_checkpoint(given)) {
    bool const free = checkpoint::list_checkpoints(output).empty();
    std::string const target = (free ? output / "checkpoints" : fs::path(output) += ".imported");
    throw UsageError(concat(
        flag, " is a checkpoint of DeepSpeed; convert it with `tessera import ", given.string(),
        " ", target, "`, then run the same command ",
        free ? "without --resume_from_checkpoint" : "with --resume_from_checkpoint " + target));
  }
  TESSERA_VALIDATE(!fs::exists(given / "trainer_state.json"), UsageError, flag,
                   " is a checkpoint of the Hugging Face Trainer, whose optimizer state is not "
                   "read; --model_name_or_path ",
                   given.string(), " starts a new run from its weights");
}

/// A checkpoint that was given by step or path is used or refused, never replaced.
StartingPoint named_checkpoint(config::TrainingArguments const& arguments,
                               std::string const& given) {
  bool const step = is_step(given) && !fs::exists(given);
  if (!step && checkpoint::holds_only_model(given))
    throw DataError(
        concat("--resume_from_checkpoint ", given, ": ", checkpoint::find_problem(given)));
  if (!step) refuse_other_programs(arguments, given);
  auto const directory =
      step ? checkpoint::resolve_checkpoint(arguments.output_dir, given)
           : checkpoint::resolve_checkpoint(given, "", checkpoint::WhenDamaged::use_older);
  std::string const problem = checkpoint::find_problem(directory);
  TESSERA_VALIDATE(
      problem.empty(), DataError, "--resume_from_checkpoint ", given, ": ", problem,
      "; `tessera checkpoint ls ", arguments.output_dir.string(),
      "` lists the others, --resume_from_checkpoint auto takes the newest complete one");
  return {directory, "resuming from " + directory.string(), false};
}

using Listed = std::vector<checkpoint::CheckpointInfo>;

/// Checkpoints that hold only a model are results, too.
void refuse_models(Listed const& listed, fs::path const& directory) {
  for (auto const& one : listed)
    TESSERA_VALIDATE(
        !checkpoint::holds_only_model(one.directory), UsageError, "the output directory ",
        directory.string(), " holds no checkpoint to resume from (", one.name,
        " holds only a model, written with --save_only_model); use another --output_dir, there "
        "with --model_name_or_path ",
        one.directory.string(), " to start from that model");
}

void refuse_other_files(config::TrainingArguments const& arguments) {
  TESSERA_VALIDATE(arguments.overwrite_output_dir || !holds_other_files(arguments.output_dir),
                   UsageError, "the output directory ", arguments.output_dir.string(),
                   " is not empty and holds no checkpoint to resume from; use "
                   "--overwrite_output_dir, or another --output_dir");
}

/// --resume_from_checkpoint never in a directory with checkpoints: only both flags remove them.
void refuse_existing_run(config::TrainingArguments const& arguments) {
  if (arguments.overwrite_output_dir) return;
  auto const listed = checkpoint::list_checkpoints(arguments.output_dir);
  TESSERA_VALIDATE(listed.empty(), UsageError, "the output directory ",
                   arguments.output_dir.string(),
                   " holds a run (newest checkpoint: ", listed.back().name,
                   "); --resume_from_checkpoint never removes it only together with "
                   "--overwrite_output_dir; or use another --output_dir");
  refuse_other_files(arguments);
}

/// Which flag asks for a run from the first step.
enum class FreshStart { no, overwrite, never };
FreshStart fresh_start(config::TrainingArguments const& arguments) {
  if (asks_for_none(arguments.resume_from_checkpoint)) return FreshStart::never;
  return arguments.overwrite_output_dir && arguments.resume_from_checkpoint.empty()
             ? FreshStart::overwrite
             : FreshStart::no;
}

/// Why a run resumes in spite of a flag that starts fresh; empty: it starts fresh. The same command
/// is run again after every interruption, by people and by Slurm, so neither flag may cost
/// progress.
std::string reason_to_resume(config::TrainingArguments const& arguments, FreshStart asked) {
  auto const earlier = earlier_attempts(arguments.output_dir);
  auto const facts = topology::launcher_facts(topology::process_environment());
  bool const known = !facts.job_id.empty() || asked == FreshStart::overwrite;
  if (facts.restart_count > 0 && known && facts.job_id == earlier.trained_in_job)
    return "this job was restarted";
  if (asked == FreshStart::overwrite && !earlier.completed) return "the run has not finished";
  return "";
}

/// Logs why the run resumes, before anything of the checkpoint can be refused.
void say_why_resumed(fs::path const& found, FreshStart asked, std::string const& reason) {
  std::string const what = concat("resuming ", found.string(), " in spite of ");
  if (asked == FreshStart::overwrite)
    log::info(concat(what, "--overwrite_output_dir, because ", reason,
                     "; to remove this run and start fresh, add --resume_from_checkpoint never"));
  if (asked == FreshStart::never)
    log::info(concat(what, "--resume_from_checkpoint never, because ", reason));
}

/// Without training only --resume_from_checkpoint names a checkpoint, whose weights are used.
StartingPoint choose_weights(config::TrainingArguments const& arguments) {
  std::string const& given = arguments.resume_from_checkpoint;
  if (given.empty() || asks_for_none(given)) return {};
  StartingPoint start;
  if (asks_for_latest(given) || given == "auto") {
    auto const found = checkpoint::find_latest(arguments.output_dir);
    TESSERA_VALIDATE(found || given == "auto", IoError, "--resume_from_checkpoint ", given,
                     ": there is no complete checkpoint in ", arguments.output_dir.string());
    if (!found) return {};
    start.checkpoint = found->directory;
  } else {
    start = named_checkpoint(arguments, given);
  }
  start.note = concat("weights from ", start.checkpoint.string());
  return start;
}

StartingPoint choose(config::TrainingArguments const& arguments) {
  fs::path const& directory = arguments.output_dir;
  if (!arguments.do_train) return choose_weights(arguments);
  (void)entries_of(directory / "checkpoints");
  std::string const& given = arguments.resume_from_checkpoint;
  FreshStart const asked = fresh_start(arguments);
  std::string reason;
  if (asked != FreshStart::no) {
    reason = reason_to_resume(arguments, asked);
    if (reason.empty()) return refuse_existing_run(arguments), StartingPoint{};
  } else if (!given.empty() && !asks_for_latest(given) && given != "auto") {
    return named_checkpoint(arguments, given);
  }
  if (auto const found = checkpoint::find_latest(directory)) {
    say_why_resumed(found->directory, asked, reason);
    std::string note = concat("resuming from ", found->directory.string());
    if (!found->note.empty()) note += concat(" (", found->note, ")");
    return {found->directory, note, true};
  }
  checkpoint::require_no_damaged_checkpoint(directory);
  auto const listed = checkpoint::list_checkpoints(directory);
  TESSERA_VALIDATE(!asks_for_latest(given), IoError, "--resume_from_checkpoint ", given,
                   ": there is no complete checkpoint in ", directory.string());
  refuse_models(listed, directory);
  refuse_other_files(arguments);
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

/// Whether the run needs its directory. One that only generates text would make trainer_output with
/// nothing but a status.
bool uses_directory(config::TrainingArguments const& arguments) {
  std::error_code failed;
  return arguments.do_train || arguments.do_eval || arguments.do_predict ||
         arguments.given("output_dir") || fs::exists(arguments.output_dir, failed);
}

}  // namespace

StartingPoint prepare_run_directory(config::TrainingArguments const& arguments,
                                    comm::Collectives& comm, std::unique_ptr<RunLock>& lock) {
  return decide_on_root(comm, [&] {
    if (!uses_directory(arguments)) return choose(arguments);
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

std::string name_of_job() {
  return topology::launcher_facts(topology::process_environment()).job_id;
}

namespace {

std::int64_t bytes_in(fs::path const& path) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) {
    auto const bytes = fs::file_size(path, failed);
    return failed ? 0 : static_cast<std::int64_t>(bytes);
  }
  std::int64_t bytes = 0;
  for (fs::recursive_directory_iterator it(path, failed), end; !failed && it != end;
       it.increment(failed))
    if (it->is_regular_file(failed)) bytes += static_cast<std::int64_t>(it->file_size(failed));
  return bytes;
}

std::string with_size(std::string const& name, std::int64_t bytes) {
  return concat(name, " (", human_bytes(bytes), ")");
}

/// Each checkpoint with its size; of more than ten the first, the last, and the sum.
std::string describe(Listed const& listed) {
  if (listed.empty()) return "";
  if (listed.size() > 10) {
    std::int64_t sum = 0;
    for (auto const& one : listed) sum += one.bytes;
    return with_size(concat(listed.size(), " checkpoints from ", listed.front().name, " to ",
                            listed.back().name),
                     sum);
  }
  std::vector<std::string> names;
  for (auto const& one : listed) names.push_back(with_size(one.name, one.bytes));
  return join(names);
}

constexpr char const* result_files[] = {"metrics.jsonl", "all_results.json", "train_results.json",
                                        "eval_results.json", "predict_results.json"};

}  // namespace

void remove_previous_run(fs::path const& directory) {
  std::error_code failed;
  fs::path const checkpoints = directory / "checkpoints",
                 trash = directory / concat(trash_prefix, "checkpoints");
  std::vector<std::string> removed;
  if (fs::exists(checkpoints, failed)) {
    if (auto const listed = describe(checkpoint::list_checkpoints(directory)); !listed.empty())
      removed.push_back(listed);
    fs::remove_all(trash, failed);
    fs::rename(checkpoints, trash, failed);
    TESSERA_VALIDATE(!failed, IoError, "cannot remove ", checkpoints.string(), ": ",
                     failed.message(), "; correct the permissions, or use another --output_dir");
  }
  for (char const* name : result_files)
    if (fs::exists(directory / name, failed))
      removed.push_back(with_size(name, bytes_in(directory / name)));
  if (!removed.empty())
    log::info(concat("starting fresh in ", directory.string(), ": removing ", join(removed)));
  for (char const* name : result_files) fs::remove(directory / name, failed);
  fs::remove_all(directory / "flight_record", failed);
  fs::remove_all(trash, failed);
}

}  // namespace tessera::train
