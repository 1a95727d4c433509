#include "recovery/failure.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <regex>

#include "recovery/run_watch.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

/// What a launcher says about a rank or a node.
struct Message {
  int rank = -1, signal = 0;
  std::string host;
  bool node_lost = false;
};

std::string signal_text(int number) {
  return concat("killed by signal ", number, " (", ::strsignal(number), ")");
}

int signal_named(std::string const& text) {
  for (int const number : {SIGKILL, SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTERM})
    if (text.starts_with(::strsignal(number))) return number;
  return text.starts_with("Out Of Memory") ? SIGKILL : 0;
}

/// Messages of Open MPI's mpirun, Hydra, srun and PALS. A lost node explains the ranks that died
/// with it. PALS ends the other ranks with SIGTERM.
Message read_messages(std::string const& text) {
  static std::regex const lost(
      R"((?:Node failure on |Task launch for \S+ failed on node |Remote daemon: .* on node |ping RPC timeout from )([\w.-]+)|([\w.-]+): shepherd died from signal)");
  static std::regex const by_mpirun(
      R"(process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+))");
  static std::regex const by_srun(R"(srun: error: (\S+): tasks? (\d+)[\d,-]*: ([A-Z][^\n]*))");
  static std::regex const by_pals(R"((\S+): rank (\d+) died from signal (?!15)(\d+))");
  static std::regex const by_hydra(
      R"(YOUR APPLICATION TERMINATED WITH THE EXIT STRING: (.*) \(signal)");
  static std::regex const host_of_hydra(R"(PID \d+ RUNNING AT (\S+))");
  std::smatch found;
  Message message;
  if (std::regex_search(text, found, by_mpirun)) {
    message = {std::stoi(found[1]), std::stoi(found[3]), found[2], false};
  } else if (std::regex_search(text, found, by_pals)) {
    message = {std::stoi(found[2]), std::stoi(found[3]), found[1], false};
  } else if (std::regex_search(text, found, by_hydra)) {
    message.signal = signal_named(found[1]);
    if (std::regex_search(text, found, host_of_hydra)) message.host = found[1];
  } else {
    for (std::sregex_iterator it(text.begin(), text.end(), by_srun), end; it != end; ++it)
      if (int const number = signal_named((*it)[3]); number > 0 && message.signal == 0)
        message = {std::stoi((*it)[2]), number, (*it)[1], false};
  }
  if (std::regex_search(text, found, lost)) {
    message.host = found[1].matched ? found[1] : found[2];
    message.node_lost = true;
  }
  return message;
}

/// The node of the allocation with that name or, where the launcher's names are others, the only
/// one with that name before the first dot, or the one that has the rank.
std::string node_of(AttemptEnd const& end, std::string const& host, int rank) {
  auto const named = std::ranges::find(end.nodes, host, &HostSlots::host);
  if (named != end.nodes.end()) return host;
  auto const label = [](std::string const& name) { return name.substr(0, name.find('.')); };
  std::vector<std::string> similar;
  for (auto const& node : end.nodes)
    if (label(node.host) == label(host)) similar.push_back(node.host);
  if (similar.size() == 1) return similar.front();
  int first = 0;
  for (auto const& node : end.nodes) {
    first += static_cast<int>(node.slots.size());
    if (rank >= 0 && rank < first) return node.host;
  }
  return "";
}

/// Errors that the same command meets again: arguments, data, configuration, a full disk; and an
/// internal error, as of memory, before the first step.
bool can_recover(int code, std::int64_t steps) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::usage:
    case ExitCode::bad_data:
    case ExitCode::bad_config:
    case ExitCode::io:
      return false;
    case ExitCode::internal:
      return steps > 0;
    default:
      return code != 126 && code != 127;  // the program cannot be started
  }
}

Failure by_status(AttemptEnd const& end, Message const& message) {
  auto const& status = *end.status;
  Failure failure;
  failure.exit_code = exit_code_of(end);
  failure.reason = status.get_string("reason", "no reason recorded");
  failure.rank = static_cast<int>(status.get_int("suspect_rank", -1));
  failure.host = node_of(end, status.get_string("suspect_host", ""), failure.rank);
  failure.recoverable = can_recover(failure.exit_code, end.steps);
  failure.kind = failure.reason;
  auto const* corruption = status.find("corruption");
  if (corruption && failure.reason.starts_with("silent corruption")) {
    auto const action = corruption->get_string("action", "");
    failure.kind = "silent corruption";
    failure.recoverable = action != "stop";
    failure.excludes_node = action == "exclude" && !failure.host.empty();
    return failure;
  }
  if (failure.exit_code != static_cast<int>(ExitCode::peer_lost)) return failure;
  failure.kind = "a rank was lost";
  failure.node_lost = failure.reason.find("heartbeat") != std::string::npos;
  if (failure.node_lost) failure.kind = "a node was lost";
  if (message.signal > 0 && message.rank == failure.rank && !failure.node_lost) {
    failure.kind = signal_text(message.signal);
    failure.reason += "; the launcher says: " + failure.kind;
  }
  return failure;
}

/// Nodes whose ranks status.json names as slow.
std::vector<Failure::SlowNode> slow_nodes(AttemptEnd const& end) {
  std::vector<Failure::SlowNode> out;
  auto const* named = end.status ? end.status->find("stragglers") : nullptr;
  if (!named || !named->is_array()) return out;
  for (auto const& straggler : named->as_array()) {
    auto const host = node_of(end, straggler.get_string("node", ""),
                              static_cast<int>(straggler.get_int("rank", -1)));
    if (!host.empty()) out.push_back({host, straggler.get_double("factor", 1.0)});
  }
  return out;
}

Failure by_launcher(AttemptEnd const& end, Message const& message) {
  Failure failure;
  bool const is_number_of_signal = end.launcher_code > 0 && end.launcher_code == message.signal;
  failure.exit_code = end.launcher_code + (is_number_of_signal ? 128 : 0);  // from Hydra
  failure.rank = message.rank;
  failure.host = node_of(end, message.host, message.rank);
  failure.recoverable = can_recover(failure.exit_code, end.steps);
  int const signal = message.signal > 0         ? message.signal
                     : end.launcher_code >= 128 ? end.launcher_code - 128
                                                : 0;
  failure.kind = signal > 0 && signal < NSIG
                     ? signal_text(signal)
                     : concat("exit code ", end.launcher_code, " of the launcher");
  failure.reason = failure.rank >= 0 ? concat("rank ", failure.rank, " was ", failure.kind)
                   : signal > 0      ? concat("ranks were ", failure.kind)
                                     : failure.kind + " without a final status";
  return failure;
}

}  // namespace

int exit_code_of(AttemptEnd const& end) {
  if (end.status && has_ended(*end.status))
    return static_cast<int>(end.status->get_int("exit_code", static_cast<int>(ExitCode::internal)));
  return end.launcher_code;
}

std::optional<Failure> failure_of(AttemptEnd const& end) {
  bool const ended = end.status && has_ended(*end.status);
  int const code = exit_code_of(end);
  bool const good =
      code == static_cast<int>(ExitCode::done) || code == static_cast<int>(ExitCode::stopped_early);
  if (good && (ended || end.ended_because.empty())) return std::nullopt;
  auto const message = read_messages(end.launcher_messages);
  auto failure = ended ? by_status(end, message) : by_launcher(end, message);
  if (!ended && !end.ended_because.empty()) {
    failure.kind = failure.reason = end.ended_because;
    failure.exit_code = static_cast<int>(ExitCode::peer_lost);
    failure.recoverable = true;
  }
  if (message.node_lost) {
    failure.node_lost = true;
    failure.host = node_of(end, message.host, failure.rank);
    failure.kind = "a node was lost";
    failure.reason += concat("; the launcher says that node ", message.host, " is lost");
  }
  failure.slow_nodes = slow_nodes(end);
  return failure;
}

}  // namespace tessera::cli
