#include "doctor/diagnosis.hpp"

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

std::string place(ConfigTree const& status) {
  std::string const saved = status.get_string("last_checkpoint", "");
  return concat("at step ", status.get_int("step", 0), " of ", status.get_int("total_steps", 0),
                saved.empty() ? "; it had written no checkpoint"
                              : concat("; its last checkpoint is ", saved));
}

std::vector<std::string> advice_for(int code, ConfigTree const& status) {
  std::string const host = status.get_string("suspect_host", "");
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::done:
      return {};
    case ExitCode::usage:
      return {
          "correct the command line: the reason names the argument; `tessera-train --help` lists "
          "them"};
    case ExitCode::bad_data:
      return {"look at the file that the reason names",
              "for a damaged checkpoint: `tessera checkpoint ls`, then --resume_from_checkpoint "
              "with an older one"};
    case ExitCode::peer_lost:
      return {host.empty() ? "look at the other ranks' output and the nodes' logs for what ended "
                             "one of them (memory, hardware, a signal)"
                           : concat("look at the log of node ", host,
                                    "; submit again without it: --exclude=", host),
              "run the same command again: it goes on from the last checkpoint",
              "if no rank died but one is slow, raise --comm_timeout"};
    case ExitCode::internal:
      return {
          "out of memory: a smaller --per_device_train_batch_size with more "
          "--gradient_accumulation_steps, --gradient_checkpointing, a higher ZeRO stage, or "
          "more ranks",
          "anything else is a defect of Tessera: report it with the log and `tessera --version`"};
    case ExitCode::io:
      return {
          "make room or mend permissions where the reason says (quotas count files too), then run "
          "the same command again",
          "do not requeue before: the next attempt would end in the same way"};
    case ExitCode::stopped_early:
      return {"run the same command again: it goes on from the last checkpoint"};
    case ExitCode::bad_config:
      return {
          "correct the configuration; `tessera config check FILE` shows every value with its "
          "origin"};
  }
  return {"the code is not one of Tessera's: look at the log"};
}

Diagnosis out_of_memory(std::string const& head) {
  return {
      head + "a node's memory limit was exceeded and the kernel killed a process of the job",
      {"ask for more memory (--mem, or fewer ranks a node)",
       "a smaller --per_device_train_batch_size, --gradient_checkpointing, or a higher ZeRO stage",
       "run the same command again: it goes on from the last checkpoint"}};
}

Diagnosis silent(ConfigTree const& status, std::string const& job_state) {
  std::string const head = concat("the run ended without a word while ",
                                  status.get_string("state", "unknown"), ' ', place(status), ": ");
  std::string const again = "run the same command again: it goes on from the last checkpoint";
  if (job_state == "OUT_OF_MEMORY") return out_of_memory(head);
  if (job_state == "TIMEOUT")
    return {head + "the time limit passed before it could save",
            {"give it more notice: --signal=USR1@600 in the job script, or --time_limit",
             "save more often (--save_steps)", again}};
  if (job_state == "NODE_FAIL" || job_state == "BOOT_FAIL")
    return {head + "a node failed", {again + "; --requeue lets Slurm do it"}};
  if (job_state == "PREEMPTED")
    return {head + "the job was preempted and had too little time to save",
            {again, "save more often (--save_steps)"}};
  if (job_state == "CANCELLED")
    return {head + "the job was cancelled and killed before it could save", {again}};
  return {head +
              "it was killed (SIGKILL leaves no trace; the usual reasons are memory and a time "
              "limit), or its node is gone",
          {"look for 'oom' or 'Killed' in the job's output and ask `sacct -j JOB -o "
           "State,ExitCode,MaxRSS`",
           again}};
}

}  // namespace

bool has_ended(ConfigTree const& status) {
  std::string const state = status.get_string("state", "");
  return state == "done" || state == "failed" || state == "stopped_early";
}

Diagnosis diagnose(ConfigTree const& status, JobRecord const& record) {
  std::string const job_state = state_of(record);
  if (!has_ended(status)) {
    if (job_state == "RUNNING" || job_state == "COMPLETING")
      return {concat("the run is ", status.get_string("state", "unknown"), ", ", place(status)),
              {"nothing to change"}};
    return silent(status, job_state);
  }
  int const code = static_cast<int>(status.get_int("exit_code", 0));
  std::string const reason = status.get_string("reason", "no reason is given");
  if (code == 0) return {concat("the run is done: ", reason), {}};
  std::string who;
  if (status.contains("suspect_rank"))
    who = concat(" (rank ", status.get_int("suspect_rank", -1), " on ",
                 status.get_string("suspect_host", "?"), ")");
  if (code == static_cast<int>(ExitCode::peer_lost) && job_state == "OUT_OF_MEMORY")
    return out_of_memory(
        concat("the run ended with ", code, who, ' ', place(status), " because a rank was lost: "));
  return {concat("the run ended with ", code, who, ' ', place(status), ". Reason: ", reason),
          advice_for(code, status)};
}

}  // namespace tessera::cli
