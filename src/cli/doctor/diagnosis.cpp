#include "doctor/diagnosis.hpp"

#include <csignal>

#include "recovery/run_watch.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

std::string place(ConfigTree const& status) {
  std::string const saved = status.get_string("last_checkpoint", "");
  return concat(
      "at step ", status.get_int("step", 0), " of ", status.get_int("total_steps", 0),
      saved.empty() ? "; no checkpoint was written" : concat("; last checkpoint: ", saved));
}

/// What running the same command again does: it depends on whether there is a checkpoint.
std::string run_again(ConfigTree const& status) {
  return status.get_string("last_checkpoint", "").empty()
             ? "run the same command again; without a checkpoint it starts from the first step"
             : "run the same command again to resume from the last checkpoint";
}

/// On one node, there is no other node to use instead.
std::string check_host(ConfigTree const& status, std::string const& host) {
  if (host.empty())
    return "find out why a rank ended (memory, hardware, a signal) in the output of the other "
           "ranks and the logs of the nodes";
  if (status.get_int("nodes", 0) == 1)
    return concat("find out in the log of node ", host,
                  " why a rank ended (memory, hardware, a signal)");
  return concat("check the log of node ", host, "; submit again without it: --exclude=", host);
}

/// A second SIGINT or SIGTERM ended the run before it could save.
bool ended_by_signal(int code) { return code == 128 + SIGINT || code == 128 + SIGTERM; }

std::vector<std::string> advice_for(int code, ConfigTree const& status) {
  if (ended_by_signal(code)) return {run_again(status)};
  std::string const host = status.get_string("suspect_host", "");
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::done:
      return {};
    case ExitCode::usage:
      return {
          "correct the argument named in the reason; `tessera-train --help` lists all arguments"};
    case ExitCode::bad_data:
      return {"check the file named in the reason",
              "for a damaged checkpoint: `tessera checkpoint ls`, then --resume_from_checkpoint "
              "with an older one"};
    case ExitCode::peer_lost:
      return {check_host(status, host), run_again(status),
              "if no rank ended and one is slow, raise --comm_timeout"};
    case ExitCode::internal:
      return {
          "out of memory: use a smaller --per_device_train_batch_size with more "
          "--gradient_accumulation_steps, --gradient_checkpointing, a higher ZeRO stage, or more "
          "ranks",
          "any other reason is a bug in Tessera: report it with the log and `tessera --version`"};
    case ExitCode::io:
      return {
          "free space or fix permissions at the path in the reason (quotas also count files), then "
          "run the same command again",
          "do not requeue before that: the next attempt would fail in the same way"};
    case ExitCode::stopped_early:
      return {run_again(status)};
    case ExitCode::bad_config:
      return {
          "correct the configuration; `tessera config check FILE` prints every value with its "
          "origin"};
  }
  return {"this exit code is not one of Tessera's; read the log"};
}

Diagnosis out_of_memory(std::string const& head, ConfigTree const& status) {
  return {
      head + "the memory limit of a node was exceeded and the kernel killed a process of the job",
      {"request more memory (--mem, or fewer ranks per node)",
       "use a smaller --per_device_train_batch_size, --gradient_checkpointing, or a higher ZeRO "
       "stage",
       run_again(status)}};
}

Diagnosis silent(ConfigTree const& status, std::string const& job_state) {
  std::string const head = concat("the run ended without a final status (last state: ",
                                  status.get_string("state", "unknown"), ' ', place(status), "): ");
  std::string const again = run_again(status);
  if (job_state == "OUT_OF_MEMORY") return out_of_memory(head, status);
  if (job_state == "TIMEOUT")
    return {head + "the time limit was reached before a checkpoint was written",
            {"signal the run earlier: --signal=USR1@600 in the job script, or --time_limit",
             "save more often (--save_steps)", again}};
  if (job_state == "NODE_FAIL" || job_state == "BOOT_FAIL")
    return {head + "a node failed", {again + "; with --requeue Slurm does so"}};
  if (job_state == "PREEMPTED")
    return {head + "the job was preempted before a checkpoint was written",
            {again, "save more often (--save_steps)"}};
  if (job_state == "CANCELLED")
    return {head + "the job was canceled and killed before a checkpoint was written", {again}};
  return {head +
              "it was killed (SIGKILL leaves no trace; usual causes are memory and time limits), "
              "or its node was lost",
          {"search the job's output for 'oom' or 'Killed', and run `sacct -j JOB -o "
           "State,ExitCode,MaxRSS`",
           again}};
}

}  // namespace

Diagnosis diagnose(ConfigTree const& status, JobRecord const& record,
                   std::string const& living_owner) {
  std::string const job_state = state_of(record);
  if (!has_ended(status)) {
    if (!living_owner.empty())
      return {concat("the run is ", status.get_string("state", "unknown"), " (", living_owner,
                     "), ", place(status)),
              {"no action needed"}};
    if (job_state == "RUNNING" || job_state == "COMPLETING")
      return {concat("the run is ", status.get_string("state", "unknown"), ", ", place(status)),
              {"no action needed"}};
    return silent(status, job_state);
  }
  int const code = static_cast<int>(status.get_int("exit_code", 0));
  std::string const reason = status.get_string("reason", "no reason recorded");
  if (code == 0) return {concat("the run is done: ", reason), {}};
  std::string who;
  if (status.contains("suspect_rank"))
    who = concat(" (rank ", status.get_int("suspect_rank", -1), " on ",
                 status.get_string("suspect_host", "?"), ")");
  if (code == static_cast<int>(ExitCode::peer_lost) && job_state == "OUT_OF_MEMORY")
    return out_of_memory(concat("the run exited with code ", code, who, ' ', place(status),
                                " because a rank was lost: "),
                         status);
  return {concat("the run exited with code ", code, who, ' ', place(status), ". Reason: ", reason),
          advice_for(code, status)};
}

}  // namespace tessera::cli
