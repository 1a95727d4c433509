#include "commands.hpp"

#include <fmt/format.h>

#include <ctime>
#include <memory>

#include "recovery/run_history.hpp"
#include "recovery/run_watch.hpp"
#include "status_watch.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

struct StatusArguments {
  std::vector<std::string> words;
  bool code = false, watch = false;
  std::int64_t since = 0;
};

/// A run directory, or the output_dir in arguments of tessera-train.
fs::path run_directory_of(std::vector<std::string> const& words) {
  if (words.size() == 1 && fs::is_directory(words[0])) return words[0];
  TESSERA_VALIDATE(words.size() > 1 || words[0].starts_with("-") || words[0].ends_with(".json"),
                   IoError, "no run directory ", words[0], "; give a run's output_dir");
  return config::parse_arguments(words).output_dir;
}

std::string utc_of(std::int64_t seconds) {
  std::time_t const time = seconds;
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&time));
  return text;
}

ConfigTree read_status(fs::path const& run) { return ConfigTree::read(run / "status.json"); }

void print_status(fs::path const& run) {
  auto const status = read_status(run);
  for (char const* key :
       {"state", "step", "total_steps", "exit_code", "reason", "suspect_rank", "suspect_host",
        "last_checkpoint", "world_size", "nodes", "host", "SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID",
        "SLURM_RESTART_COUNT", "PBS_JOBID", "started", "updated"})
    if (auto const* value = status.find(key))
      fmt::print("{:<20} {}\n", key, value->is_string() ? value->as_string() : value->dump());
  if (!fs::exists(run / history_file)) return;
  auto const history = ConfigTree::read(run / history_file);
  fmt::print("{:<20} {}\n{:<20} {}\n", "failures", failures_text(history), "goodput",
             goodput_text(history));
}

}  // namespace

std::int64_t recorded_exit_code(ConfigTree const& status, fs::path const& run, std::int64_t since) {
  std::string const updated = status.get_string("updated", "");
  TESSERA_VALIDATE(has_ended(status), IoError, "the run in ", run.string(), " is ",
                   status.get_string("state", "unknown"), " since ", updated,
                   ": no exit code is recorded; see `tessera doctor --why ", run.string(), "`");
  TESSERA_VALIDATE(updated >= utc_of(since), IoError, run.string(), "/status.json was written at ",
                   updated, ", before ", utc_of(since),
                   ": the later attempt has recorded no status");
  return status.get_int("exit_code", static_cast<int>(ExitCode::internal));
}

void add_status(Command& app) {
  auto const a = std::make_shared<StatusArguments>();
  auto& status = app.add_command("status", "Print the state of a run, from its status.json");
  status
      .add_rest(
          "run DIR", a->words,
          "the run's output_dir; or, after --, the arguments of tessera-train that contain it",
          Command::Rest::own)
      .required();
  status.add("--code", a->code, "print only the exit code; fails while the run has not ended");
  status.add("--since", a->since,
             "with --code: fail if the status was written before this time (seconds since 1970)");
  status.add("--watch", a->watch,
             "show progress, loss, throughput and time left until the run ends; one line for each "
             "change where output is not a terminal");
  status.run([a] {
    auto const run = run_directory_of(a->words);
    if (a->watch)
      watch(run);
    else if (a->code)
      fmt::print("{}\n", recorded_exit_code(read_status(run), run, a->since));
    else
      print_status(run);
  });
}

}  // namespace tessera::cli
