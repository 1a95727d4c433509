#pragma once
/// A status line on the terminal: redrawn in place while an operation runs, cleared before other
/// output.

#include <chrono>
#include <cstdint>
#include <string>

namespace tessera {

/// Writes to stderr if it is a terminal; otherwise does nothing.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine() { clear(); }
  StatusLine(StatusLine const&) = delete;
  StatusLine& operator=(StatusLine const&) = delete;
  void show(std::string const& text);
  void clear();
  bool on_terminal() const { return terminal_; }

 private:
  bool terminal_ = false, shown_ = false;
};

/// "verify [=======>            ]  38 %  1.9 of 5.0 GiB, 1.2 GiB/s, left 3s"
std::string progress_text(std::string const& label, std::int64_t done_bytes,
                          std::int64_t total_bytes, double seconds);

/// Shows progress_text() in a status line, at most ten times per second.
class ByteProgress {
 public:
  explicit ByteProgress(std::string label) : label_(std::move(label)), start_(Clock::now()) {}
  void operator()(std::int64_t done_bytes, std::int64_t total_bytes);
  void clear() { line_.clear(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  Clock::time_point start_, last_ = {};
  StatusLine line_;
};

}  // namespace tessera
