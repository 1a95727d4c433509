#include "recovery/supervisor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "launch/run_program.hpp"
#include "recovery/failure.hpp"
#include "recovery/job_step.hpp"
#include "recovery/memory_directory.hpp"
#include "recovery/node_pool.hpp"
#include "recovery/run_history.hpp"
#include "recovery/run_watch.hpp"
#include "recovery/world_rule.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/text.hpp"
#include "tessera/train/setup/node_memory.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

using namespace std::chrono_literals;
using Time = RunHistory::Time;

/// A start, and a save that training waits for, may last this multiple of the bound of a hang.
constexpr double patience_outside_steps = 10.0;
/// A step may last this multiple of the longest time between two signs of life before it.
constexpr double patience_for_steps = 5.0;
/// Time for the launcher to return when no rank is left.
constexpr double launcher_grace_seconds = 2.0;
/// Time for the ranks to end after status.json has the end of the run: after a failure, or else.
constexpr double grace_after_failure = 2.0, grace_after_end = 60.0;

volatile std::sig_atomic_t stop_signal = 0, stop_count = 0, save_count = 0;

void note_signal(int number) {
  if (number == SIGUSR2) {
    save_count = save_count + 1;
    return;
  }
  stop_signal = number;
  stop_count = stop_count + 1;
}

void say(std::string const& text) { fmt::print(stderr, "tessera run: {}\n", text); }

/// Passes the signals of this process on to the ranks.
class SignalRelay {
 public:
  SignalRelay() {
    struct sigaction action {};
    action.sa_handler = note_signal;
    for (int const number : {SIGTERM, SIGINT, SIGUSR1, SIGXCPU, SIGHUP, SIGUSR2})
      ::sigaction(number, &action, nullptr);
    ::signal(SIGPIPE, SIG_IGN);  // a run survives the reader of its messages
  }

  /// False: a second SIGTERM or SIGINT, which ends the run without a save.
  bool pass_on(JobStep const& step) {
    if (save_count != saves_passed_) {
      saves_passed_ = save_count;
      step.signal_ranks(SIGUSR2);
    }
    if (stop_count == stops_passed_) return true;
    bool const first = stops_passed_ == 0;
    stops_passed_ = stop_count;
    if (first) {
      stopped_ = Clock::now();
      say(concat("signal ", ::strsignal(stop_signal), " is passed on; the run saves and stops"));
      step.signal_ranks(SIGUSR1);  // SIGTERM would end some launchers before the save
      return true;
    }
    ends_ = (stop_signal == SIGTERM || stop_signal == SIGINT) && seconds_since(stopped_) > 1.0;
    return !ends_;
  }

  /// The exit code of a run that was to stop; nothing: it was not.
  std::optional<int> exit_code() const {
    if (ends_) return 128 + stop_signal;
    return stop_count > 0 ? std::optional(static_cast<int>(ExitCode::stopped_early)) : std::nullopt;
  }

 private:
  int stops_passed_ = 0, saves_passed_ = 0;
  bool ends_ = false;
  Time stopped_;
};

/// Counts failures at the same step for the same reason.
class Restarts {
 public:
  explicit Restarts(int max) : max_(max) {}

  /// @param step  -1: before the first one of the attempt. @returns whether to start again
  bool allow(std::int64_t step, std::string const& kind) {
    if (step > furthest_) {
      furthest_ = step;
      failures_.clear();
    }
    return ++failures_[{step, kind}] < max_;
  }

 private:
  int max_;
  std::int64_t furthest_ = -1;
  std::map<std::pair<std::int64_t, std::string>, int> failures_;
};

/// The ranks of an attempt and when they were last known to live.
struct Attempt {
  int number = 0;
  std::vector<HostSlots> nodes{};
  std::vector<std::string> words{};  ///< arguments of tessera-train
  Time last_sign{};
  double longest_gap = 0.0;  ///< seconds between two signs of life, of all attempts
};

class Supervisor {
 public:
  explicit Supervisor(RunRequest const& request)
      : request_(request),
        arguments_(config::parse_arguments(request.arguments)),
        pool_(request.nodes, request.spares),
        rule_(request.arguments, pool_.wanted_nodes() * pool_.ranks_per_node(),
              pool_.ranks_per_node()),
        history_(earlier_history(), Clock::now()),
        id_(concat(host_name(), ".", ::getpid(), ".", utc_timestamp())),
        restarts_(request.max_restarts) {
    for (auto const& host : excluded_nodes(earlier_history())) {
      say(concat("node ", host, " is not used: it computed wrong results (", history_file, ")"));
      pool_.exclude(host);
    }
    if (!arguments_.do_train || arguments_.memory_save_steps.count == config::MemorySaveSteps::off)
      return;
    memory_.emplace();
    ::setenv(train::memory_directory_variable, memory_->path().c_str(), 1);
  }

  int run() {
    say(fmt::format(
        "{} of {} nodes, {} ranks per node; no sign of life for {:g} s (a start or a "
        "save that blocks: {:g} s) counts as a hang",
        pool_.wanted_nodes(), request_.nodes.size(), pool_.ranks_per_node(),
        request_.hang_timeout_seconds, patience_outside_steps * request_.hang_timeout_seconds));
    probe_lost_nodes();
    for (;;) {
      if (!choose_world()) {
        probe_lost_nodes();
        if (!choose_world())
          return ended(static_cast<int>(ExitCode::peer_lost),
                       "no node is left that the run can use");
      }
      auto const end = run_attempt();
      auto const failure = failure_of(end);
      if (!failure) return ended(exit_code_of(end), reason_of(end));
      std::int64_t const step = history_.training() ? history_.step() : -1;
      history_.attempt_failed(*failure, attempt_.last_sign, Clock::now());
      write_history();
      if (auto const code = code_to_end(*failure, step)) return ended(*code, failure->reason);
      probe_lost_nodes();  // not the node that this attempt has lost, which takes seconds
      leave_out(*failure);
    }
  }

 private:
  ConfigTree earlier_history() const {
    try {
      return ConfigTree::read(arguments_.output_dir / history_file);
    } catch (Error const&) {  // none, or damaged
      return ConfigTree::object();
    }
  }

  void write_history() {
    written_ = Clock::now();
    std::error_code failed;
    if (!fs::is_directory(arguments_.output_dir, failed)) return;
    try {
      write_file_atomically(arguments_.output_dir / history_file,
                            history_.tree(Clock::now()).dump(2) + "\n");
    } catch (IoError const& e) {
      say(concat("warning: ", e.what()));
    }
  }

  int ended(int code, std::string const& reason) {
    history_.run_ended(code, reason, Clock::now());
    write_history();
    free_memory();
    auto const tree = history_.tree(Clock::now());
    say(fmt::format("ended with exit code {}: {}; failures {}; goodput {}", code, reason,
                    failures_text(tree), goodput_text(tree)));
    return code;
  }

  /// Removes the checkpoints in memory of the nodes that answer; those of this one go with the
  /// object.
  void free_memory() const {
    if (!memory_ || request_.simulated || request_.nodes.size() == 1) return;
    auto launch = request_.launch;
    launch.hosts = request_.nodes;
    for (auto const& lost : pool_.lost_hosts())
      std::erase_if(launch.hosts, [&](HostSlots const& node) { return node.host == lost; });
    if (launch.hosts.empty()) return;
    if (!request_.slurm_job.empty()) launch.launcher_options.emplace_back("--overlap");
    if (auto const problem = memory_->remove_on(std::move(launch)); !problem.empty())
      say("warning: " + problem);
  }

  static std::string reason_of(AttemptEnd const& end) {
    return end.status ? end.status->get_string("reason", "") : "no status was written";
  }

  /// A lost node is used again once it answers. A node that Slurm reports as down takes no step.
  void probe_lost_nodes() {
    auto const down = nodes_down();
    for (auto const& host : down) pool_.lost(host);
    for (auto const& host : pool_.lost_hosts())
      if (!down.contains(host) && answer({{host, {0}}})) {
        say(concat("node ", host, " answers again"));
        pool_.found(host);
      }
  }

  /// Asks Slurm which nodes of the job are down.
  std::set<std::string> nodes_down() const {
    std::set<std::string> down;
    if (request_.slurm_job.empty()) return down;
    std::vector<std::string> names;
    for (auto const& node : request_.nodes) names.push_back(node.host);
    std::istringstream states(output_of(
        {"sinfo", "-h", "-N", "-n", fmt::format("{}", fmt::join(names, ",")), "-o", "%N %T"}, 10s));
    for (std::string host, state; states >> host >> state;)
      if (state.ends_with('*') || state.starts_with("down") || state.starts_with("fail") ||
          state.starts_with("unk") || state.starts_with("power") || state.starts_with("reboot"))
        down.insert(host);
    return down;
  }

  /// Whether all of these nodes do.
  bool answer(std::vector<HostSlots> const& nodes) const {
    if (request_.simulated || request_.nodes.size() == 1) return true;
    auto launch = request_.launch;
    launch.hosts = nodes;
    launch.program = {"true"};
    if (!request_.slurm_job.empty()) launch.launcher_options.emplace_back("--overlap");
    launch.exports.clear();
    return run_program(launch_line(launch), 5s).code == 0;
  }

  /// The most nodes that are left with which the steps stay the same.
  bool choose_world() {
    attempt_.nodes = pool_.choose(Clock::now());
    std::size_t const left = attempt_.nodes.size();
    for (; !attempt_.nodes.empty(); attempt_.nodes.pop_back())
      if (auto words = rule_.words_for(ranks())) {
        attempt_.words = std::move(*words);
        break;
      }
    if (attempt_.nodes.size() < left)
      say(
          fmt::format("{} of {} usable nodes are used: the global batch of {} samples does not "
                      "allow more",
                      attempt_.nodes.size(), left, rule_.global_batch()));
    return !attempt_.nodes.empty();
  }
  int ranks() const { return static_cast<int>(attempt_.nodes.size()) * pool_.ranks_per_node(); }

  JobStep::Options step_options() {
    JobStep::Options options;
    options.program = request_.program;
    options.slurm_job = request_.slurm_job;
    options.step_name = concat("tessera-run-", ::getpid(), "-", attempt_.number);
    auto launch = request_.launch;
    if (memory_) launch.exports.emplace_back(train::memory_directory_variable);
    launch.program = {request_.program};
    launch.program.insert(launch.program.end(), attempt_.words.begin(), attempt_.words.end());
    if (saved_ && (arguments_.overwrite_output_dir || arguments_.given("resume_from_checkpoint")))
      launch.program.insert(launch.program.end(), {"--resume_from_checkpoint", "auto"});
    if (request_.simulated || (launch.hosts.empty() && request_.nodes.size() == 1))
      launch.num_gpus = ranks();
    if (!request_.simulated && !launch.hosts.empty()) launch.hosts = attempt_.nodes;
    if (!request_.slurm_job.empty())
      launch.launcher_options.insert(
          launch.launcher_options.begin(),
          {"--kill-on-bad-exit=1", "--wait=60", "--overlap", "--job-name=" + options.step_name});
    options.words = launch_line(launch);
    return options;
  }

  AttemptEnd run_attempt() {
    ++attempt_.number;
    ::setenv("TESSERA_ATTEMPT", concat(id_, " ", attempt_.number).c_str(), 1);
    if (request_.simulated)
      ::setenv("TESSERA_SIMULATED_NODES",
               fmt::format(
                   "{}", fmt::join(std::vector(attempt_.nodes.size(), pool_.ranks_per_node()), ","))
                   .c_str(),
               1);
    auto const options = step_options();
    if (attempt_.number == 1) say(shell_line(options.words));
    RunWatch watch(arguments_.output_dir);
    attempt_.last_sign = Clock::now();
    history_.attempt_begins(ranks(), attempt_.last_sign);
    JobStep step(options);
    AttemptEnd end;
    end.nodes = attempt_.nodes;
    end.ended_because = follow(step, watch);
    step.end();
    end.launcher_code = step.poll().value_or(0);
    look(watch);
    end.status = watch.status();
    end.launcher_messages = step.messages();
    end.steps = history_.steps_of_attempt();
    return end;
  }

  /// Until the launcher has returned. @returns why it has to be ended; empty: it has returned
  std::string follow(JobStep& step, RunWatch& watch) {
    auto next_look = Clock::now();
    auto alone_since = Clock::time_point::max();
    bool had_ranks = false;
    for (int looks = 0; !step.poll();) {
      if (!signals_.pass_on(step)) return "ended by a second signal";
      std::this_thread::sleep_for(20ms);
      if (Clock::now() < next_look) continue;
      next_look = Clock::now() + 100ms;
      look(watch);
      if (auto why = hang(step, watch); !why.empty()) return why;
      if (++looks % 10 != 0) continue;
      bool const has_ranks = !step.local_ranks().empty();
      had_ranks = had_ranks || has_ranks;
      if (has_ranks || !had_ranks)
        alone_since = Clock::time_point::max();
      else
        alone_since = std::min(alone_since, Clock::now());
      if (alone_since < Clock::now() && seconds_since(alone_since) > launcher_grace_seconds)
        return "ranks died without a message, and the launcher did not return";
    }
    return "";
  }

  void look(RunWatch& watch) {
    auto const now = Clock::now();
    if (watch.look()) {
      if (history_.training() && watch.state() == "running")
        attempt_.longest_gap = std::max(attempt_.longest_gap, seconds_since(attempt_.last_sign));
      attempt_.last_sign = now;
    }
    auto const& status = watch.status();
    if (!status) return;
    if (!history_.training() && watch.state() != "starting" && status->contains("step")) {
      history_.training_begins(status->get_int("step", 0),
                               status->get_double("restore_seconds", 0.0), now);
      write_history();
    }
    if (!status->get_string("last_checkpoint", "").empty()) saved_ = true;
    if (history_.training() && watch.step() && *watch.step() != history_.step())
      history_.step_completed(*watch.step(), now);
    if (seconds_since(written_) > 10.0) write_history();
  }

  /// Why the attempt counts as hanging; empty: it does not.
  std::string hang(JobStep const& step, RunWatch const& watch) const {
    double const silent = seconds_since(attempt_.last_sign);
    if (watch.status() && has_ended(*watch.status())) {
      bool const failed = watch.state() == "failed";
      return silent > (failed ? grace_after_failure : grace_after_end)
                 ? "ranks did not end after the end of the run"
                 : "";
    }
    double bound = request_.hang_timeout_seconds;
    if (silent <= bound) return "";
    auto const ranks = step.local_ranks();
    auto const stopped = std::ranges::count_if(ranks, [](pid_t rank) {
      auto const stat = process_stat(rank);
      return stat && stat->state == 'T';
    });
    bool const computes = history_.training() && watch.state() == "running";
    if (stopped == 0)  // a stopped process is not slow
      bound = computes ? std::max(bound, patience_for_steps * attempt_.longest_gap)
                       : patience_outside_steps * bound;
    if (silent <= bound) return "";
    return concat("hang: no sign of life for the bound of ", std::lround(bound), " s",
                  stopped > 0 ? concat("; ", stopped, " of its processes were stopped") : "");
  }

  /// The exit code with which the run ends after this failure; nothing: it is started again.
  /// @param step  -1: the attempt failed before its first one
  std::optional<int> code_to_end(Failure const& failure, std::int64_t step) {
    say(concat("failure ", step < 0 ? "before the first step" : concat("after step ", step), ": ",
               failure.reason, failure.host.empty() ? "" : " (node " + failure.host + ")"));
    if (auto const code = signals_.exit_code()) return code;
    if (!failure.recoverable) return failure.exit_code;
    if (restarts_.allow(step, failure.kind)) return std::nullopt;
    say(fmt::format("{} failures at the same step for the same reason: it is not started again",
                    request_.max_restarts));
    return failure.exit_code == 0 ? static_cast<int>(ExitCode::peer_lost) : failure.exit_code;
  }

  /// A slow node is better than none.
  void leave_out_slow_nodes(Failure const& failure) {
    double const bound = request_.exclude_stragglers;
    for (auto const& [host, factor] : failure.slow_nodes) {
      if (bound <= 0.0 || factor < bound || pool_.choose(Clock::now()).size() < 2) continue;
      say(fmt::format("node {} is left out: {:.1f} times slower than the others", host, factor));
      pool_.exclude(host);
    }
  }

  /// The node that ranks name, and those that have gone with it. Where the network has parted,
  /// ranks of both sides name a node of the other one: the side of this process continues.
  void leave_out_lost_nodes(std::string const& named) {
    std::vector<HostSlots> others;
    for (auto const& node : attempt_.nodes)
      if (node.host == named && named != host_name())
        pool_.lost(named);
      else if (node.host != host_name())
        others.push_back({node.host, {0}});
    if (others.empty() || answer(others)) return;
    for (auto const& node : others)
      if (!answer({node})) {
        say(concat("node ", node.host, " does not answer"));
        pool_.lost(node.host);
      }
  }

  void leave_out(Failure const& failure) {
    leave_out_slow_nodes(failure);
    if (failure.host.empty()) return;
    if (failure.excludes_node) {
      say(concat("node ", failure.host, " is not used again: it computed wrong results"));
      return pool_.exclude(failure.host);
    }
    if (failure.node_lost && request_.nodes.size() > 1 && !request_.simulated)
      leave_out_lost_nodes(failure.host);
    else
      pool_.rank_failed(failure.host, Clock::now());
  }

  RunRequest const& request_;
  config::TrainingArguments arguments_;
  NodePool pool_;
  WorldRule rule_;
  RunHistory history_;
  std::string id_;
  Attempt attempt_;
  bool saved_ = false;                     ///< this run has a checkpoint of its own
  Time written_;                           ///< when recovery.json was
  std::optional<MemoryDirectory> memory_;  ///< with --memory_save_steps
  SignalRelay signals_;
  Restarts restarts_;
};

}  // namespace

int supervise(RunRequest const& request) { return Supervisor(request).run(); }

}  // namespace tessera::cli
