#include "tessera/train/report/status_file.hpp"

#include <algorithm>
#include <climits>
#include <utility>

#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

using Lock = std::unique_lock<std::timed_mutex>;

/// Attempts in a row that the batch system stopped after at most one step.
constexpr char const* short_attempts = "short_attempts";

/// Fields that describe the training in the directory rather than one attempt.
constexpr char const* kept_fields[] = {"completed", "trained_in_job", "last_checkpoint",
                                       short_attempts};

char const* name_of(StatusFile::State state) {
  static constexpr char const* names[] = {"starting",      "running", "saving",
                                          "stopped_early", "done",    "failed"};
  return names[static_cast<std::size_t>(state)];
}

std::string text_in(ConfigTree const& status, char const* field) {
  auto const* value = status.find(field);
  return value && value->is_string() ? value->as_string() : "";
}

/// An empty object when there is none, or none that can be read.
ConfigTree read_status(fs::path const& run_directory) {
  try {
    auto status = ConfigTree::read(run_directory / "status.json");
    return status.is_object() ? status : ConfigTree::object();
  } catch (Error const&) {
    return ConfigTree::object();
  }
}

}  // namespace

StatusFile::StatusFile(fs::path const& run_directory, ConfigTree identity)
    : document_(std::move(identity)) {
  take_over(run_directory);
}

void StatusFile::update(State state, std::int64_t step, std::int64_t total_steps) {
  Lock const lock(mutex_);
  auto const now = std::chrono::steady_clock::now();
  bool const changed = state_ != state;
  document_["state"] = name_of(state);
  document_["step"] = step;
  document_["total_steps"] = total_steps;
  state_ = state;
  if (!changed && now - last_write_ < std::chrono::seconds(1)) return;
  last_write_ = now;
  write();
}

void StatusFile::touch() {
  Lock const lock(mutex_);
  if (std::chrono::steady_clock::now() - last_write_ < std::chrono::seconds(5)) return;
  last_write_ = std::chrono::steady_clock::now();
  write();
}

void StatusFile::set(std::string const& key, ConfigTree value) {
  Lock const lock(mutex_);
  document_.set(key, std::move(value));
}

void StatusFile::checkpoint_saved(std::string const& name) {
  Lock const lock(mutex_);
  document_["last_checkpoint"] = name;
  write();
}

void StatusFile::training_begins(std::string const& job, std::string const& checkpoint) {
  Lock const lock(mutex_);
  document_.erase("completed");
  document_["trained_in_job"] = job;
  if (checkpoint.empty())
    document_.erase("last_checkpoint");
  else
    document_["last_checkpoint"] = checkpoint;
  write();
}

int StatusFile::attempt_stops(std::int64_t steps) {
  Lock const lock(mutex_);
  auto const* earlier = document_.find(short_attempts);
  std::int64_t const attempts =
      steps <= 1 ? (earlier && earlier->is_int() ? earlier->as_int() : 0) + 1 : 0;
  document_[short_attempts] = attempts;
  return static_cast<int>(std::min<std::int64_t>(attempts, INT_MAX));
}

void StatusFile::finish(Ending const& ending) {
  Lock const lock(mutex_);
  end(ending);
}

/// A write that hangs on its disk must not keep the process alive.
void StatusFile::finish_by_signal(int signal_number, std::string const& signal_name) {
  Lock const lock(mutex_, std::chrono::seconds(1));
  if (!lock) return;
  std::string const saved = text_in(document_, "last_checkpoint");
  end({State::failed, 128 + signal_number,
       concat("ended by a second ", signal_name, " without a save; ",
              saved.empty() ? "no checkpoint was written"
                            : concat("run the same command again to resume from ", saved)),
       -1, ""});
  file_.clear();
}

void StatusFile::end(Ending const& ending) {
  document_["state"] = name_of(ending.state);
  document_["exit_code"] = ending.exit_code;
  document_["reason"] = ending.reason;
  if (ending.suspect_rank >= 0) {
    document_["suspect_rank"] = ending.suspect_rank;
    document_["suspect_host"] = ending.suspect_host;
  }
  state_ = ending.state;
  write();
}

void StatusFile::take_over(fs::path const& run_directory) {
  Lock const lock(mutex_);
  if (!file_.empty() || run_directory.empty()) return;
  file_ = run_directory / "status.json";
  document_["started"] = utc_timestamp();
  auto const earlier = read_status(run_directory);
  for (char const* field : kept_fields)
    if (auto const* value = earlier.find(field);
        value && (value->is_bool() || value->is_string() || value->is_int()))
      document_.set(field, *value);
}

/// A status that cannot be written is logged; it must not end the training.
void StatusFile::write() {
  std::error_code failed;
  if (file_.empty() || !fs::exists(file_.parent_path(), failed))
    return;  // the run ended before it had a directory
  document_["updated"] = utc_timestamp();
  try {
    write_file_atomically(file_, document_.dump(2) + "\n");
  } catch (IoError const& e) {
    log::warning(concat("status.json could not be updated: ", e.what()));
  }
}

EarlierAttempts earlier_attempts(fs::path const& run_directory) {
  auto const status = read_status(run_directory);
  auto const* completed = status.find("completed");
  return {completed && completed->is_bool() && completed->as_bool(),
          text_in(status, "trained_in_job")};
}

bool run_has_failed(fs::path const& run_directory) {
  return text_in(read_status(run_directory), "state") == "failed";
}

}  // namespace tessera::train
