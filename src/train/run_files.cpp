#include "tessera/train/run_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"

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

/// A status that cannot be written must not end a training that can go on: said once, then silent.
void StatusFile::write() {
  if (file_.empty() || !fs::exists(file_.parent_path()))
    return;  // a run refused before it had a directory leaves none
  document_["updated"] = utc_timestamp();
  try {
    write_file_atomically(file_, document_.dump(2) + "\n");
  } catch (IoError const& e) {
    log::warning(concat("status.json is not up to date: ", e.what()));
  }
}

bool run_has_failed(fs::path const& run_directory) {
  try {
    return ConfigTree::read(run_directory / "status.json").get_string("state", "") == "failed";
  } catch (Error const&) {
    return false;
  }
}

MetricsFile::MetricsFile(fs::path const& run_directory, std::int64_t first_step)
    : file_(run_directory / "metrics.jsonl") {
  std::string kept;
  if (first_step > 1) {
    std::ifstream in(file_);
    for (std::string line; std::getline(in, line);) {
      try {
        if (ConfigTree::parse(line, file_.string()).get_int("step", 0) < first_step)
          kept += line + "\n";
      } catch (DataError const&) {  // the torn last line of a killed run
      }
    }
  }
  write_file_atomically(file_, kept);
  descriptor_ = ::open(file_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) throw IoError(with_errno("cannot open " + file_.string(), errno));
}

MetricsFile::~MetricsFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void MetricsFile::write(ConfigTree const& record) {
  try {
    write_all(descriptor_, record.dump() + "\n", file_);
  } catch (IoError const& e) {
    log::warning(concat("metrics are being lost: ", e.what()));
  }
}

Progress::Progress(bool enabled, std::int64_t total_steps)
    : enabled_(enabled), total_steps_(total_steps), started_(std::chrono::steady_clock::now()) {}

double Progress::seconds_left(std::int64_t step) const {
  double const elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  std::int64_t const done = step - first_step_;
  return done > 0 ? elapsed / static_cast<double>(done) * static_cast<double>(total_steps_ - step)
                  : NAN;
}

void Progress::line(Sample const& s) {
  if (first_step_ < 0) first_step_ = s.step - 1;
  if (!enabled_) return;
  clear();
  auto const digits = std::to_string(total_steps_).size();
  std::string const scale = s.show_loss_scale ? fmt::format("  scale {:g}", s.loss_scale) : "";
  log::info(fmt::format(
      "step {:>{}}/{}  loss {:.4f}  grad_norm {:.3f}  lr {:.3e}  {:.0f} tokens/s{}  left {}",
      s.step, digits, total_steps_, s.loss, s.grad_norm, s.learning_rate, s.tokens_per_second,
      scale, human_duration(seconds_left(s.step))));
}

void Progress::live(std::int64_t step) {
  if (first_step_ < 0) first_step_ = step - 1;
  if (!enabled_) return;
  live_.show(fmt::format("  step {}/{}, left {} ", step, total_steps_,
                         human_duration(seconds_left(step))));
}

void Progress::clear() { live_.clear(); }

}  // namespace tessera::train
