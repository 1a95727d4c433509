#include "tessera/core/status_line.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tessera/core/text.hpp"

namespace tessera {

StatusLine::StatusLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void StatusLine::show(std::string const& text) {
  if (!terminal_) return;
  std::fprintf(stderr, "\r%s\033[K", text.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void StatusLine::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

std::string progress_text(std::string const& label, std::int64_t done_bytes,
                          std::int64_t total_bytes, double seconds) {
  constexpr int width = 24;
  double const share =
      total_bytes > 0
          ? std::clamp(static_cast<double>(done_bytes) / static_cast<double>(total_bytes), 0.0, 1.0)
          : 0.0;
  double const rate = seconds > 0 ? static_cast<double>(done_bytes) / seconds : 0.0;
  double const left =
      rate > 0 ? static_cast<double>(std::max<std::int64_t>(total_bytes - done_bytes, 0)) / rate
               : NAN;
  std::string bar(static_cast<std::size_t>(share * width), '=');
  bar += bar.size() < width ? ">" : "";
  return fmt::format("  {} [{:<{}}] {:3.0f} %  {} of {}, {}/s, left {}", label, bar, width,
                     std::floor(100 * share), human_bytes(done_bytes), human_bytes(total_bytes),
                     human_bytes(std::llround(rate)), human_duration(left));
}

void ByteProgress::operator()(std::int64_t done_bytes, std::int64_t total_bytes) {
  if (!line_.on_terminal()) return;
  auto const now = Clock::now();
  if (now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  line_.show(progress_text(label_, done_bytes, total_bytes,
                           std::chrono::duration<double>(now - start_).count()));
}

}  // namespace tessera
