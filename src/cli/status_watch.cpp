#include "status_watch.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>
#include <thread>

#include "recovery/run_watch.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/train/report/run_lock.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

/// The newest record that has @p key, or null.
ConfigTree const* newest(std::vector<ConfigTree> const& records, std::string_view key) {
  auto const at = std::ranges::find_if(records.rbegin(), records.rend(),
                                       [&](auto const& r) { return r.contains(key); });
  return at == records.rend() ? nullptr : &*at;
}

double number(ConfigTree const& record, std::string_view key) {
  auto const* value = record.find(key);
  return value && value->is_number() ? value->as_double() : NAN;
}

/// Seconds until the last step at the mean pace of the newest steps; NaN before the first one.
double seconds_left(ConfigTree const& status, std::vector<ConfigTree> const& records) {
  constexpr int newest_steps = 50;
  double seconds = 0.0;
  int steps = 0;
  for (auto record = records.rbegin(); record != records.rend() && steps < newest_steps; ++record) {
    if (!record->contains("seconds")) continue;
    seconds += number(*record, "seconds");
    ++steps;
  }
  return steps > 0
             ? seconds / steps *
                   static_cast<double>(status.get_int("total_steps", 0) - status.get_int("step", 0))
             : NAN;
}

std::string progress_bar(double share, std::int64_t width) {
  auto const filled = static_cast<std::size_t>(share * static_cast<double>(width));
  return fmt::format("[{:<{}}]", std::string(filled, '='), width);
}

/// The losses of the newest steps as one block character each, from the smallest to the largest.
std::string sparkline(std::vector<ConfigTree> const& records, std::size_t width) {
  std::vector<double> losses;
  for (auto const& record : records)
    if (double const loss = number(record, "loss"); std::isfinite(loss)) losses.push_back(loss);
  if (losses.size() < 2) return "";
  if (losses.size() > width) losses.erase(losses.begin(), losses.end() - std::ptrdiff_t(width));
  auto const [low, high] = std::ranges::minmax(losses);
  constexpr int levels = 8;
  std::string out;
  for (double const loss : losses) {
    double const share = high > low ? (loss - low) / (high - low) : 0.0;
    append_code_point(U'\u2581' + static_cast<char32_t>(std::lround(share * (levels - 1))), out);
  }
  return out;
}

std::string memory_text(ConfigTree const& memory) {
  std::vector<std::string> parts;
  for (auto const& [space, use] : memory.as_object())
    parts.push_back(concat(space, " ", human_bytes(use.get_int("peak", 0))));
  return join(parts);
}

}  // namespace

std::vector<ConfigTree> newest_records(fs::path const& run) {
  constexpr std::streamoff tail_bytes = 64 << 10;
  std::ifstream in(run / "metrics.jsonl", std::ios::binary | std::ios::ate);
  std::vector<ConfigTree> records;
  if (!in) return records;
  std::streamoff const size = in.tellg();
  in.seekg(std::max<std::streamoff>(0, size - tail_bytes));
  std::string line;
  if (size > tail_bytes) std::getline(in, line);  // the rest of a record
  while (std::getline(in, line)) {
    try {
      records.push_back(ConfigTree::parse(line, "metrics.jsonl"));
    } catch (DataError const&) {  // a record that is being written
    }
  }
  return records;
}

std::string watch_line(ConfigTree const& status, std::vector<ConfigTree> const& records) {
  std::string out = fmt::format("{}, step {}/{}", status.get_string("state", "unknown"),
                                status.get_int("step", 0), status.get_int("total_steps", 0));
  if (auto const* record = newest(records, "loss"))
    out += fmt::format(", loss {}, {:.0f} tokens/s", fixed_text(number(*record, "loss"), 4),
                       number(*record, "tokens_per_second"));
  if (!has_ended(status)) out += ", left " + human_duration(seconds_left(status, records));
  return out;
}

std::string watch_view(ConfigTree const& status, std::vector<ConfigTree> const& records,
                       std::int64_t columns) {
  std::int64_t const step = status.get_int("step", 0), total = status.get_int("total_steps", 0);
  double const share =
      total > 0 ? std::clamp(static_cast<double>(step) / static_cast<double>(total), 0.0, 1.0)
                : 0.0;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("state       {} on {}{}", status.get_string("state", "unknown"),
                              counted(status.get_int("world_size", 1), "rank"),
                              has_ended(status) ? ": " + status.get_string("reason", "") : ""));
  std::string const left =
      has_ended(status) ? "" : "  left " + human_duration(seconds_left(status, records));
  std::string const steps = fmt::format("{}/{}", with_commas(step), with_commas(total));
  constexpr std::int64_t label_columns = 12;
  lines.push_back(fmt::format("step        {} {:3.0f} %  {}{}",
                              progress_bar(share, std::clamp<std::int64_t>(columns - 56, 10, 40)),
                              100 * share, steps, left));
  if (auto const* record = newest(records, "loss")) {
    std::string const loss = fixed_text(number(*record, "loss"), 4);
    auto const width = columns - label_columns - static_cast<std::int64_t>(loss.size()) - 2;
    lines.push_back(fmt::format(
        "loss        {}  {}", loss,
        sparkline(records, static_cast<std::size_t>(std::clamp<std::int64_t>(width, 10, 60)))));
    lines.push_back(fmt::format("speed       {} tokens/s, {:.3g} s per step",
                                with_commas(std::llround(number(*record, "tokens_per_second"))),
                                number(*record, "seconds")));
    lines.push_back(fmt::format("optimizer   learning rate {:.3e}, gradient norm {}",
                                number(*record, "learning_rate"),
                                fixed_text(number(*record, "grad_norm"), 3)));
  }
  if (auto const* record = newest(records, "eval_loss"))
    lines.push_back(fmt::format("evaluation  loss {} at step {}",
                                fixed_text(number(*record, "eval_loss"), 4),
                                with_commas(record->get_int("step", 0))));
  if (auto const* memory = status.find("memory"); memory && memory->is_object())
    lines.push_back("memory      " + memory_text(*memory) + " at most");
  if (auto const saved = status.get_string("last_checkpoint", ""); !saved.empty())
    lines.push_back("checkpoint  " + saved);
  lines.push_back("updated     " + status.get_string("updated", ""));
  return join(lines, "\n") + "\n";
}

namespace {

std::int64_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

void watch(fs::path const& run, std::chrono::seconds patience) {
  using Clock = std::chrono::steady_clock;
  bool const terminal = ::isatty(STDOUT_FILENO) == 1;
  std::int64_t shown_step = -1, shown_lines = 0;
  RunWatch signs(run);
  auto last_sign = Clock::now();
  for (;;) {
    auto const status = ConfigTree::read(run / "status.json");
    if (signs.look()) last_sign = Clock::now();
    auto const records = newest_records(run);
    if (terminal) {
      std::string const view = watch_view(status, records, terminal_columns());
      if (shown_lines > 0) fmt::print("\033[{}A\033[J", shown_lines);
      fmt::print("{}", view);
      shown_lines = std::ranges::count(view, '\n');
    } else if (auto const step = status.get_int("step", 0);
               step != shown_step || has_ended(status)) {
      fmt::print("{}\n", watch_line(status, records));
      shown_step = step;
    }
    std::fflush(stdout);
    if (has_ended(status)) return;
    if (Clock::now() - last_sign >= patience) {
      auto const owner = train::find_owner(run);
      TESSERA_VALIDATE(owner && owner->alive, IoError, "the run in ", run.string(),
                       " has recorded no end, and no process of it is alive; see `tessera doctor "
                       "--why ",
                       run.string(), "`");
      last_sign = Clock::now();
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace tessera::cli
