#include "tessera/core/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <set>

namespace tessera::log {
namespace {

struct State {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> logger;
  std::string prefix;
  std::set<std::string> warned;

  State() : logger(std::make_shared<spdlog::logger>("tessera", std::make_shared<spdlog::sinks::stderr_sink_mt>())) {
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
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warning: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

void write(spdlog::level::level_enum level, char const* tag, std::string const& message) {
  auto& s = state();
  s.logger->log(level, "{}{}{}", s.prefix, tag, message);
}

}  // namespace

void configure(Settings const& settings) {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  s.logger->set_level(to_spdlog(settings.rank == 0 ? settings.level : settings.replica_level));
  if (settings.rank != 0) s.prefix = "[rank " + std::to_string(settings.rank) + " " + settings.host + "] ";
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
