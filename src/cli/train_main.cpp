// tessera-train: the training program on the compute nodes, one process per rank.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rank_programs.hpp"
#include "slurm/job_record.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/base/flight_recorder.hpp"
#include "tessera/comm/base/timed_collectives.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/comm/compose/two_level.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/config/node_groups.hpp"
#include "tessera/config/option_table.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/plan/auto_tune.hpp"
#include "tessera/topology/launcher.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/train/loop/trainer.hpp"
#include "tessera/train/report/run_lock.hpp"
#include "tessera/train/report/version.hpp"
#include "tessera/train/setup/device_choice.hpp"
#include "tessera/train/step/stop_request.hpp"
#include "tessera/train/step/verification.hpp"

namespace {

using namespace tessera;
using train::StatusFile;

/// Prints @p problem on the first process. The others wait, because a launcher ends all processes
/// when one has exited.
void print_once(topology::LauncherFacts const& facts, std::string const& problem) {
  if (topology::is_replica(facts))
    std::this_thread::sleep_for(std::chrono::seconds(1));
  else
    std::fprintf(stderr, "tessera-train: error: %s\n", problem.c_str());
}

/// True: every process exits with 64.
bool refuse(topology::LauncherFacts const& facts, std::string const& problem) {
  if (!problem.empty()) print_once(facts, problem);
  return !problem.empty();
}

ConfigTree identity_of(topology::RankInfo const& info) {
  ConfigTree identity;
  identity.set("schema", 1)
      .set("world_size", info.world_size)
      .set("nodes", info.node_count)
      .set("host", info.host);
  for (char const* variable :
       {"SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT", "PBS_JOBID"})
    if (char const* value = std::getenv(variable)) identity.set(variable, value);
  return identity;
}

StatusFile::State state_of(train::Outcome const& outcome) {
  return outcome.code == ExitCode::done            ? StatusFile::State::done
         : outcome.code == ExitCode::stopped_early ? StatusFile::State::stopped_early
                                                   : StatusFile::State::failed;
}

/// Ranks that fail for one reason do so within this time.
constexpr std::chrono::seconds meeting{2};

/// Ends the job after a failure of this rank: status.json records the reason, one rank logs it, and
/// all ranks exit.
int end_with_error(topology::MpiSession& session, config::TrainingArguments const& arguments,
                   StatusFile& status, Error const& error) {
  auto const& info = session.info();
  int const code = static_cast<int>(error.code());
  auto const* lost = dynamic_cast<PeerLostError const*>(&error);
  // a peer with an error of its own ends the job with its message and code
  if (dynamic_cast<comm::PeerStoppedError const*>(&error)) std::this_thread::sleep_for(2 * meeting);
  bool const together = !lost && session.all_arrive(meeting);
  if (lost) comm::FlightRecorder::of_process().write(error.what());
  if (info.rank == 0 || !together) {
    log::error(printable(error.what()));
    bool const others =
        dynamic_cast<train::DirectoryInUse const*>(&error);  // status.json belongs to the other job
    if (!others && !train::run_has_failed(arguments.output_dir)) {
      status.take_over(arguments.output_dir);
      auto const* corrupt = dynamic_cast<train::CorruptionError const*>(&error);
      int const suspect = lost ? lost->rank : corrupt ? corrupt->rank : -1;
      status.finish({StatusFile::State::failed, code, error.what(), suspect,
                     suspect < 0 ? "" : session.hosts()[static_cast<std::size_t>(suspect)]});
    }
  }
  if (!together) topology::MpiSession::abort(code);
  return code;
}

/// Called on rank 0 only: thousands of ranks must not call Slurm's controller.
train::Deadline deadline_of(config::TrainingArguments const& arguments,
                            topology::LauncherFacts const& facts) {
  auto const now = train::Deadline::Clock::now();
  if (arguments.time_limit_minutes > 0.0) {
    std::chrono::duration<double, std::ratio<60>> const limit(arguments.time_limit_minutes);
    return {now, now + std::chrono::duration_cast<train::Deadline::Clock::duration>(limit)};
  }
  if (!arguments.do_train) return {};
  auto const seconds = std::chrono::floor<std::chrono::seconds>(now.time_since_epoch()).count();
  auto const end =
      cli::job_end_time(facts, seconds, facts.slurm ? cli::ask_scontrol : cli::ask_qstat);
  if (!end.problem.empty()) log::warning(end.problem);
  if (!end.time) return {};
  std::chrono::sys_seconds const time{std::chrono::seconds(*end.time)};
  log::info(concat("time limit in ",
                   human_duration(std::chrono::duration<double>(time - now).count()),
                   "; the run will save a checkpoint and stop before it"));
  return {now, time};
}

/// A job with more tasks than ranks is legal, but rarely meant.
void warn_of_environment(topology::LauncherFacts facts, topology::RankInfo const& info,
                         config::TrainingArguments const& arguments) {
  if (facts.launcher == topology::Launcher::none && !facts.node_file.empty()) {
    std::ifstream file(facts.node_file);
    facts.job_tasks = topology::ranks_in_node_file(file);
    facts.job_tasks_variable = "PBS_NODEFILE";
  }
  for (auto const& text : topology::unreadable_variables(topology::process_environment()))
    log::warning(text);
  auto const problem = topology::unused_allocation(facts, info.world_size, info.node_count);
  if (!problem.empty()) log::warning(problem);
  if (arguments.use_cpu || !problem.empty()) return;
  std::string const gpus =
      memory::built_with_gpu() ? topology::gpu_mismatch(facts, info.local_size)
      : !facts.gpus || !facts.slurm
          ? ""
          : concat("the job has GPUs (", facts.gpus_variable,
                   "), but this program was built without GPU support and computes on CPUs; use "
                   "a build for GPUs, or --use_cpu if that is meant");
  if (!gpus.empty()) log::warning(gpus);
}

/// Makes collectives that measure every operation for comms_logger; null without it.
comm::TimedCollectives* add_comms_logger(config::TrainingArguments const& arguments,
                                         std::unique_ptr<comm::Collectives>& comm) {
  auto const logger = config::reporting_of(arguments).comms_logger;
  if (!logger) return nullptr;
  comm::TimedCollectives::Options options{logger->operations, {}};
  if (logger->verbose && comm->rank() == 0) options.each = log::info;
  auto timed = std::make_unique<comm::TimedCollectives>(std::move(comm), std::move(options));
  auto* const out = timed.get();
  comm = std::move(timed);
  return out;
}

comm::Levels levels_of(config::TrainingArguments const& arguments) {
  bool const two = config::wants_two_levels(arguments) || arguments.collectives == "two-level";
  if (arguments.collectives == "flat") return comm::Levels::flat;
  return two ? comm::Levels::two : comm::Levels::automatic;
}

comm::NcclOptions nccl_options(config::TrainingArguments const& arguments) {
  return {static_cast<int>(arguments.communication_multiprocessors),
          comm::nccl_cta_policy(arguments.nccl_cta_policy)};
}

/// Reports the collectives. After an error other ranks may have ended: then rank 0 reports what it
/// has measured.
void report_collectives(comm::TimedCollectives& timed, ExitCode code,
                        std::filesystem::path const& directory) {
  bool const all_ranks = code == ExitCode::done || code == ExitCode::stopped_early;
  auto const stragglers = all_ranks ? timed.stragglers() : comm::TimedCollectives::Stragglers();
  if (timed.rank() != 0) return;
  log::info("collective operations of rank 0:\n" + timed.table());
  if (auto const table = stragglers.table(); !table.empty())
    log::info("waiting for the last rank, mean of all ranks:\n" + table);
  write_file_atomically(directory / "comms_logger.json", timed.json(stragglers).dump(2) + "\n");
}

/// --auto_tune without anything else to do ends with the search.
train::Outcome after_search(plan::Tuned const& tuned, train::JobContext const& job,
                            train::Deadline const& end_of_job) {
  if (tuned.stopped)
    return {ExitCode::stopped_early,
            concat("stopped by ", train::StopRequest::name(train::StopRequest::signal()),
                   " while --auto_tune measured; run the same command again")};
  auto const& a = tuned.arguments;
  if (tuned.searched && !(a.do_train || a.do_eval || a.do_predict || a.do_generate)) return {};
  train::Trainer trainer(job);
  trainer.set_deadline(end_of_job);
  return trainer.run();
}

int run(topology::MpiSession& session, config::TrainingArguments const& arguments,
        topology::LauncherFacts const& facts) {
  auto const& info = session.info();
  StatusFile status(info.rank == 0 ? arguments.output_dir : std::filesystem::path(),
                    identity_of(info));
  try {
    bool const first_of_node = arguments.log_on_each_node && info.local_rank == 0;
    log::configure({arguments.log_level,
                    first_of_node ? arguments.log_level : arguments.log_level_replica, info.rank,
                    info.world_size, info.host, arguments.log_dir});
    if (info.rank == 0) warn_of_environment(facts, info, arguments);
    auto const deadline =
        std::chrono::milliseconds(static_cast<long>(arguments.comm_timeout_seconds * 1000));
    session.start_heartbeat_monitor(
        std::chrono::milliseconds(static_cast<long>(arguments.node_timeout_seconds * 1000)));
    comm::FlightRecorder::of_process().set_destination(arguments.output_dir / "flight_record",
                                                       info.rank);
    auto comm = comm::make_two_level(comm::make_mpi(session, deadline), session.nodes(),
                                     {levels_of(arguments), {}});
    memory::RuntimeOptions runtime_options;
    runtime_options.device = train::choose_device(arguments, session, *comm);
    runtime_options.threads =
        arguments.threads ? static_cast<int>(*arguments.threads) : topology::cores_of_rank(session);
    memory::Runtime const runtime(runtime_options);
    if (memory::Runtime::device() >= 0)
      comm = comm::make_device(std::move(comm), deadline, comm::DeviceTransport::automatic,
                               nccl_options(arguments));
    auto* const timed = add_comms_logger(arguments, comm);
    train::StopRequest::BeforeTheEnd const killed([&](int signal_number) {
      status.finish_by_signal(signal_number, train::StopRequest::name(signal_number));
    });
    train::Deadline const end_of_job =
        info.rank == 0 ? deadline_of(arguments, facts) : train::Deadline();
    plan::Tuned tuned{arguments};
    if (config::tuning_of(arguments) && !arguments.print_config)
      tuned = plan::auto_tune({arguments, *comm, {info.node_count, info.local_size}});
    auto const outcome = after_search(tuned, {tuned.arguments, session, *comm, status}, end_of_job);
    if (timed) report_collectives(*timed, outcome.code, arguments.output_dir);
    if (info.rank == 0 && outcome.code == ExitCode::stopped_early)
      log::info(outcome.reason + (facts.launcher == topology::Launcher::mpirun
                                      ? " (exit code 75; an mpirun that got the signal itself "
                                        "returns its own, 1)"
                                      : ""));
    if (info.rank == 0 && state_of(outcome) == StatusFile::State::failed)
      log::error(outcome.reason);
    status.finish({state_of(outcome), static_cast<int>(outcome.code), outcome.reason, -1, ""});
    return static_cast<int>(outcome.code);
  } catch (Error const& error) {
    return end_with_error(session, arguments, status, error);
  } catch (std::exception const& error) {
    return end_with_error(session, arguments, status, to_error(error));
  }
}

/// Launchers report the highest or the first exit code. Other ranks exit with 0 and rank 0 exits
/// last, so that the launcher reports rank 0's code.
int exit_code_of_rank(int code, topology::RankInfo const& info) {
  if (code == 0 || info.world_size == 1) return code;
  if (info.rank != 0) return 0;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  return code;
}

/// Rank 0 reads the configuration files and broadcasts them.
config::TrainingArguments arguments_of_job(topology::MpiSession const& session,
                                           std::vector<std::string> const& words) {
  ConfigTree documents = ConfigTree::object();
  std::string answer;
  if (session.info().rank == 0) {
    try {
      config::parse_arguments(words, [&](std::string const& file) {
        auto document = config::read_document(file);
        documents.set(file, document);
        return document;
      });
      answer = "+" + documents.dump();
    } catch (Error const& error) {
      answer = concat("-", static_cast<int>(error.code()), " ", error.what());
    } catch (std::exception const& e) {
      Error const error = to_error(e);
      answer = concat("-", static_cast<int>(error.code()), " ", error.what());
    }
  }
  answer = session.broadcast(answer);
  std::size_t const space = answer.find(' ');
  if (answer[0] == '-')
    throw Error(static_cast<ExitCode>(std::stoi(answer.substr(1, space))),
                answer.substr(space + 1));
  documents = ConfigTree::parse(answer.substr(1), "configuration");
  return config::parse_arguments(words,
                                 [&](std::string const& file) { return documents.at(file); });
}

int start(topology::MpiSession& session, std::vector<std::string> const& words,
          topology::LauncherFacts const& facts) {
  auto const& info = session.info();
  try {
    auto const arguments = arguments_of_job(session, words);
    return run(session, arguments, facts);
  } catch (Error const& error) {  // from the arguments; run() turns its own errors into exit codes
    if (info.rank == 0) std::fprintf(stderr, "tessera-train: error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}

int report(topology::LauncherFacts const& facts, Error const& error) {
  print_once(facts, printable(error.what()));
  return static_cast<int>(error.code());
}

/// What `tessera doctor` asks: whether MPI starts here, and with which thread level.
int probe_mpi(int argc, char** argv) {
  topology::MpiSession const session(argc, argv);
  std::printf("mpi %s, rank %d of %d, %s\n", topology::MpiSession::thread_level().c_str(),
              session.info().rank, session.info().world_size, session.info().host.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  train::StopRequest::install();
  ::setenv("DNNL_JIT_PROFILE", "0",
           0);  // otherwise oneDNN searches every library directory for a profiler, on each rank
  auto const facts = topology::launcher_facts(topology::process_environment());
  std::vector<std::string> const words{argv + 1, argv + argc};
  bool const probes_mpi = words == std::vector<std::string>{"--probe_mpi"};
  bool const measures = cli::asks_for_rank_program(words);
  try {
    auto const asked = probes_mpi || measures ? config::FirstLook() : config::look_at_flags(words);
    bool const helps = !asked.help.empty();
    if (helps || asked.version) {
      if (!topology::is_replica(facts))
        std::fputs((asked.help == "true" ? config::arguments_help()
                    : helps              ? config::explain(asked.help)
                            : train::version_text("tessera-train", train::library_versions()))
                       .c_str(),
                   stdout);
      return 0;
    }
  } catch (Error const& error) {
    return report(facts, error);
  }
  if (refuse(facts, topology::why_mpi_cannot_start(facts, topology::MpiSession::library_version())))
    return static_cast<int>(ExitCode::usage);
  if (probes_mpi) return probe_mpi(argc, argv);
  int code = 0;
  topology::RankInfo info;
  try {
    topology::MpiSession session(argc, argv);
    info = session.info();
    if (refuse(facts, topology::disagreement(facts, info.world_size,
                                             topology::MpiSession::library_version())))
      return static_cast<int>(ExitCode::usage);
    code = measures ? cli::run_rank_program(session, words) : start(session, words, facts);
  } catch (Error const& error) {  // from the session, before there is a log
    return report(facts, error);
  }
  return exit_code_of_rank(code, info);
}
