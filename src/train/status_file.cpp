#include "tessera/train/status_file.hpp"

#include <utility>

#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

char const* name_of(StatusFile::State state) {
  switch (state) {
    case StatusFile::State::starting:
      return "starting";
    case StatusFile::State::running:
      return "running";
    case StatusFile::State::saving:
      return "saving";
    case StatusFile::State::stopped_early:
      return "stopped_early";
    case StatusFile::State::done:
      return "done";
    case StatusFile::State::failed:
      return "failed";
  }
  return "unknown";
}

}  // namespace

StatusFile::StatusFile(fs::path const& run_directory, ConfigTree identity)
    : document_(std::move(identity)) {
  take_over(run_directory);
}

void StatusFile::update(State state, std::int64_t step, std::int64_t total_steps) {
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

void StatusFile::checkpoint_saved(std::string const& name) {
  document_["last_checkpoint"] = name;
  write();
}

void StatusFile::finish(Ending const& ending) {
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
  if (!file_.empty() || run_directory.empty()) return;
  file_ = run_directory / "status.json";
  document_["started"] = utc_timestamp();
}

/// A status that cannot be written is logged; it must not end the training.
void StatusFile::write() {
  if (file_.empty() || !fs::exists(file_.parent_path()))
    return;  // the run ended before it had a directory
  document_["updated"] = utc_timestamp();
  try {
    write_file_atomically(file_, document_.dump(2) + "\n");
  } catch (IoError const& e) {
    log::warning(concat("status.json could not be updated: ", e.what()));
  }
}

bool run_has_failed(fs::path const& run_directory) {
  try {
    return ConfigTree::read(run_directory / "status.json").get_string("state", "") == "failed";
  } catch (Error const&) {
    return false;
  }
}

}  // namespace tessera::train
