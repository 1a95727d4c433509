#include "recovery/run_watch.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

/// Longer than some lines of metrics.jsonl.
constexpr std::streamoff tail_bytes = 64 * 1024;

std::string tail_of(fs::path const& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return "";
  in.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(in.tellg()) - tail_bytes));
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::optional<std::int64_t> last_step_in(std::string const& metrics) {
  std::size_t end = metrics.rfind('\n');
  while (end != std::string::npos && end > 0) {
    std::size_t const before = metrics.rfind('\n', end - 1);
    std::size_t const begin = before == std::string::npos ? 0 : before + 1;
    try {
      auto const record = ConfigTree::parse(metrics.substr(begin, end - begin), "metrics.jsonl");
      if (record.contains("loss")) return record.get_int("step", 0);
    } catch (Error const&) {  // the first line of the tail is cut
    }
    end = before;
  }
  return std::nullopt;
}

bool has_ended(ConfigTree const& status) {
  std::string const state = status.get_string("state", "");
  return state == "done" || state == "failed" || state == "stopped_early";
}

RunWatch::RunWatch(fs::path const& run_directory)
    : status_file_(run_directory / "status.json"),
      metrics_file_(run_directory / "metrics.jsonl"),
      status_stamp_(stamp_of(status_file_)),
      metrics_stamp_(stamp_of(metrics_file_)) {}

bool RunWatch::look() {
  bool changed = false;
  if (auto const now = stamp_of(status_file_); now != status_stamp_ && now.size >= 0) {
    changed = true;
    status_stamp_ = now;
    try {
      status_ = ConfigTree::read(status_file_);
    } catch (Error const&) {  // the next one counts
    }
  }
  if (auto const now = stamp_of(metrics_file_); now != metrics_stamp_ && now.size >= 0) {
    changed = true;
    metrics_stamp_ = now;
    // the file is cut at the checkpoint's step before the first step
    if (state() != "starting" && status_) step_ = last_step_in(tail_of(metrics_file_));
  }
  return changed;
}

RunWatch::Stamp RunWatch::stamp_of(fs::path const& file) {
  struct stat about {};
  if (::stat(file.c_str(), &about) != 0) return {};
  return {about.st_ino, about.st_size, about.st_mtim.tv_sec, about.st_mtim.tv_nsec};
}

}  // namespace tessera::cli
