#include "slurm/job_record.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "launch/run_program.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

/// Words of a log line and the job state that they mean. The job itself ends as FAILED or COMPLETED
/// when its batch script continues after the step.
constexpr std::pair<char const*, char const*> signs[] = {{"oom-kill", "OUT_OF_MEMORY"},
                                                         {"Out Of Memory", "OUT_OF_MEMORY"},
                                                         {"OUT_OF_MEMORY", "OUT_OF_MEMORY"},
                                                         {"oom_kill", "OUT_OF_MEMORY"},
                                                         {"Exceeded job memory", "OUT_OF_MEMORY"},
                                                         {"DUE TO TIME LIMIT", "TIMEOUT"},
                                                         {"DUE TO PREEMPTION", "PREEMPTED"},
                                                         {"DUE TO NODE FAILURE", "NODE_FAIL"},
                                                         {"Node failure on", "NODE_FAIL"}};

/// The last @p bytes of a file; empty when it cannot be read.
std::string tail_of(fs::path const& file, std::streamoff bytes) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in || fs::is_directory(file)) return "";
  auto const size = static_cast<std::streamoff>(in.tellg());
  in.seekg(std::max<std::streamoff>(0, size - bytes));
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

}  // namespace

/// sacct knows jobs that ended long ago, scontrol recent jobs and their log files. Either may be
/// missing.
JobRecord read_job_record(std::string const& job, std::string const& log) {
  JobRecord record;
  std::string from_controller;
  if (!job.empty()) {
    record.state =
        job_state_in(output_of({"sacct", "-X", "-n", "-P", "-j", job, "-o", "State"}, 10s));
    from_controller = output_of({"scontrol", "show", "job", "-o", job}, 10s);
    if (record.state.empty()) record.state = job_state_in(from_controller);
  }
  record.log = log.empty() ? log_file_in(from_controller) : log;
  if (!record.log.empty()) record.evidence = evidence_in(tail_of(record.log, 1 << 20));
  return record;
}

std::string state_of(JobRecord const& record) {
  for (auto const& [words, state] : signs)
    if (record.evidence.find(words) != std::string::npos) return state;
  return record.state;
}

std::string job_state_in(std::string const& text) {
  std::size_t const field = text.find("JobState=");
  std::size_t const begin = field == std::string::npos ? 0 : field + 9;
  return text.substr(begin, text.find_first_of(" |+\n", begin) - begin);
}

std::string log_file_in(std::string const& text) {
  std::size_t const field = text.find(" StdOut=");
  return field == std::string::npos
             ? ""
             : text.substr(field + 8, text.find_first_of(" \n", field + 8) - field - 8);
}

std::string evidence_in(std::string const& log) {
  std::string found;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);)
    for (auto const& [words, state] : signs)
      if (line.find(words) != std::string::npos &&
          (line.find("slurm") != std::string::npos || line.find("srun") != std::string::npos ||
           line.find("kernel") != std::string::npos))
        found = line;
  return found;
}

std::optional<std::int64_t> end_time_in(std::string const& scontrol_text) {
  std::size_t const at = scontrol_text.find(" EndTime=");
  if (at == std::string::npos) return std::nullopt;
  std::tm when{};
  if (!::strptime(scontrol_text.c_str() + at + 9, "%Y-%m-%dT%H:%M:%S", &when)) return std::nullopt;
  when.tm_isdst = -1;
  std::time_t const seconds = std::mktime(&when);
  return seconds < 0 ? std::nullopt : std::optional<std::int64_t>(seconds);
}

std::optional<std::int64_t> end_time_in_qstat(std::string const& qstat_text) {
  auto const value_of = [&](std::string const& name) {
    std::size_t const line = qstat_text.find("    " + name + " = ");
    return line == std::string::npos ? "" : qstat_text.c_str() + line + name.size() + 7;
  };
  std::tm start{};
  int hours = 0, minutes = 0, seconds = 0;
  if (!::strptime(value_of("stime"), "%a %b %d %H:%M:%S %Y", &start) ||
      std::sscanf(value_of("Resource_List.walltime"), "%d:%d:%d", &hours, &minutes, &seconds) != 3)
    return std::nullopt;
  start.tm_isdst = -1;
  std::time_t const begin = std::mktime(&start);
  if (begin < 0) return std::nullopt;
  return begin + hours * std::int64_t{3600} + minutes * std::int64_t{60} + seconds;
}

JobEnd job_end_time(topology::LauncherFacts const& facts, std::int64_t now,
                    std::function<std::string(std::string const& job)> const& ask) {
  if (facts.end_time.value_or(0) > now) return {facts.end_time, ""};
  auto const asked = facts.slurm            ? end_time_in(ask(facts.job_id))
                     : facts.job_id.empty() ? std::nullopt
                                            : end_time_in_qstat(ask(facts.job_id));
  if (asked.value_or(0) > now) return {asked, ""};
  if (!facts.end_time) return {};
  return {std::nullopt,
          concat("SLURM_JOB_END_TIME=", *facts.end_time, " is ",
                 human_duration(static_cast<double>(now - *facts.end_time)), " in the past",
                 facts.slurm ? concat(" and scontrol has no later end of job ", facts.job_id) : "",
                 "; it is ignored, so the run does not stop before a time limit; unset the "
                 "variables of an earlier job, or set --time_limit MINUTES")};
}

std::string ask_scontrol(std::string const& job) {
  return output_of({"scontrol", "show", "job", "-o", job}, 5s);
}

std::string ask_qstat(std::string const& job) { return output_of({"qstat", "-f", job}, 5s); }

}  // namespace tessera::cli
