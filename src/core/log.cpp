#include "tessera/core/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>

#include "tessera/core/error.hpp"

namespace tessera::log {
namespace {

struct State {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> logger;
  std::string prefix;
  std::set<std::string> warned;

  State()
      : logger(std::make_shared<spdlog::logger>(
            "tessera", std::make_shared<spdlog::sinks::stderr_sink_mt>())) {
    logger->set_pattern("%Y-%m-%d %H:%M:%S %v");
    logger->set_level(spdlog::level::info);
    logger->flush_on(spdlog::level::trace);
  }
};

State& state() {
  static State instance;
  return instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

/// Opened for appending, so that a requeued job keeps the lines of its earlier attempts.
spdlog::sink_ptr file_of(Settings const& settings) {
  std::string number = std::to_string(settings.rank);
  number.insert(0, 5 - std::min<std::size_t>(5, number.size()), '0');
  auto const file = settings.directory / ("rank_" + number + ".log");
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file.string());
    sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
    return sink;
  } catch (spdlog::spdlog_ex const& e) {
    throw IoError(concat("cannot write the log of rank ", settings.rank, " (host ", settings.host,
                         "): ", e.what(), "; choose another --log_dir"));
  }
}

void write(spdlog::level::level_enum level, char const* tag, std::string const& message) {
  auto& s = state();
  s.logger->log(level, "{}{}{}", s.prefix, tag, message);
}

}  // namespace

void configure(Settings const& settings) {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  auto const level = to_spdlog(settings.rank == 0 ? settings.level : settings.replica_level);
  auto& sinks = s.logger->sinks();
  sinks.resize(1);
  sinks[0]->set_level(level);
  s.logger->set_level(settings.directory.empty() ? level : spdlog::level::debug);
  if (!settings.directory.empty()) sinks.push_back(file_of(settings));
  s.prefix = settings.rank == 0 ? "" : concat("[rank ", settings.rank, " ", settings.host, "] ");
}

void debug(std::string const& message) { write(spdlog::level::debug, "", message); }
void info(std::string const& message) { write(spdlog::level::info, "", message); }
void warning(std::string const& message) {
  {
    auto& s = state();
    std::lock_guard lock(s.mutex);
    if (!s.warned.insert(message).second) return;
  }
  write(spdlog::level::warn, "warning: ", message);
}
void error(std::string const& message) { write(spdlog::level::err, "error: ", message); }

}  // namespace tessera::log
