#include "rank_programs.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "bench_comm/comm_report.hpp"
#include "selftest/gpu_test.hpp"
#include "tessera/comm/compose/benchmark.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/comm/compose/two_level.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/memory/stream_queue.hpp"
#include "tessera/plan/measure_machine.hpp"
#include "tessera/train/setup/device_choice.hpp"

namespace tessera::cli {
namespace {

using Words = std::vector<std::string>;
constexpr std::chrono::minutes deadline{5};

/// The collectives and the compute queue of a measurement, as a run has them.
class Measured {
 public:
  Measured(topology::MpiSession& session, config::TrainingArguments const& arguments,
           comm::Levels levels)
      : comm_(comm::make_two_level(comm::make_mpi(session, deadline), session.nodes(),
                                   {levels, {}})) {
    memory::RuntimeOptions options;
    options.device = train::choose_device(arguments, session, *comm_);
    options.threads = topology::cores_of_rank(session);
    runtime_.emplace(options);
    bool const on_device = memory::Runtime::device() >= 0;
    if (on_device) comm_ = comm::make_device(std::move(comm_), deadline);
    compute_ =
        on_device ? memory::make_stream_queue("compute") : memory::make_inline_queue("compute");
  }
  comm::Collectives& comm() { return *comm_; }
  memory::Queue& compute() { return *compute_; }

 private:
  std::unique_ptr<comm::Collectives> comm_;
  std::optional<memory::Runtime> runtime_;
  std::unique_ptr<memory::Queue> compute_;
};

void measure_machine(topology::MpiSession& session, Words const& words) {
  TESSERA_VALIDATE(words.size() == 3, UsageError, measure_machine_word,
                   " takes the file to write and a directory on the drive to measure");
  auto const& info = session.info();
  Measured measured(session, {}, comm::Levels::flat);
  auto const profile = plan::measure_machine({measured.compute(),
                                              measured.comm(),
                                              {info.node_count, info.local_size},
                                              words[2],
                                              info.host});
  if (info.rank == 0) write_file_atomically(words[1], plan::to_json(profile).dump(2) + "\n");
}

comm::BenchmarkOptions benchmark_options(ConfigTree const& given) {
  comm::BenchmarkOptions out;
  for (auto const& name : given.at("operations").as_array())
    out.operations.push_back(name.as_string());
  for (auto const& name : given.at("groups").as_array()) out.groups.push_back(name.as_string());
  out.smallest = static_cast<std::size_t>(given.at("smallest").as_int());
  out.largest = static_cast<std::size_t>(given.at("largest").as_int());
  out.dtype = dtype_from_name(given.at("dtype").as_string());
  out.repetitions = static_cast<int>(given.at("repetitions").as_int());
  return out;
}

void report(ConfigTree const& given, CommSetting const& setting,
            std::vector<comm::BenchmarkRow> const& rows) {
  fmt::print("{}", comm_table(setting, rows));
  if (setting.ranks == 1)
    fmt::print("\none rank has nobody to send to; start this with srun or mpirun -np N\n");
  auto const json = given.at("json").as_string(), plot = given.at("plot").as_string();
  if (!json.empty()) write_file_atomically(json, comm_json(setting, rows).dump(2) + "\n");
  if (!plot.empty()) write_file_atomically(plot, draw_comm(setting, rows));
}

void bench_comm(topology::MpiSession& session, Words const& words) {
  TESSERA_VALIDATE(words.size() == 2, UsageError, bench_comm_word, " takes an object of JSON");
  auto const given = ConfigTree::parse(words[1], bench_comm_word);
  auto const& info = session.info();
  config::TrainingArguments arguments;
  auto const device = given.at("device").as_string();
  arguments.use_cpu = device == "cpu";
  arguments.needs_gpu = device == "gpu" || device == "cuda";
  auto const choice = given.at("collectives").as_string();
  Measured measured(session, arguments,
                    choice == "flat"        ? comm::Levels::flat
                    : choice == "two-level" ? comm::Levels::two
                                            : comm::Levels::automatic);
  auto const rows =
      comm::run_benchmark(session, measured.comm(), measured.compute(), benchmark_options(given));
  std::int64_t wrong = 0;
  for (auto const& row : rows) wrong += row.wrong;
  bool const on_device = memory::Runtime::device() >= 0;
  if (info.rank == 0)
    report(given,
           {info.world_size, info.node_count, info.host,
            on_device ? memory::Runtime::description() : "host memory", choice,
            topology::MpiSession::library_version(), given.at("dtype").as_string()},
           rows);
  TESSERA_VALIDATE(wrong == 0, InternalError, wrong,
                   " elements of results are wrong (column \"wrong\"); the library, the driver or "
                   "a link is broken");
}

void test_gpus(topology::MpiSession& session, Words const& words) {
  TESSERA_VALIDATE(words.size() == 2, UsageError, test_gpus_word,
                   " takes the memory of simulated devices, or an empty word");
  config::TrainingArguments arguments;
  arguments.device_memory = words[1];
  arguments.needs_gpu = words[1].empty();
  Measured measured(session, arguments, comm::Levels::flat);
  auto const report =
      cli::test_gpus({measured.compute(), measured.comm(), session.nodes(), session.info().host});
  std::vector<std::string> faults;
  if (report) {
    fmt::print("{}", gpu_table(*report));
    faults = gpu_faults(*report);
    for (auto const& fault : faults) fmt::print("FAULT  {}\n", fault);
    if (faults.empty()) fmt::print("no fault on {}\n", counted(report->gpus.size(), "device"));
  }
  auto const count = comm::all_reduce_value(
      measured.comm(), static_cast<std::int64_t>(faults.size()), comm::ReduceOp::max);
  TESSERA_VALIDATE(count == 0, InternalError, counted(count, "fault"),
                   " of GPUs or links; the lines above name them");
}

/// Prints the error once where all ranks have it, else ends the job.
int end(topology::MpiSession& session, Error const& error) {
  bool const together = session.all_arrive(std::chrono::seconds(2));
  if (!together || session.info().rank == 0)
    std::fprintf(stderr, "tessera: error: %s\n", printable(error.what()).c_str());
  if (!together) topology::MpiSession::abort(static_cast<int>(error.code()));
  return static_cast<int>(error.code());
}

using Program = void (*)(topology::MpiSession&, Words const&);

std::map<std::string, Program> const& programs() {
  static std::map<std::string, Program> const all{{measure_machine_word, measure_machine},
                                                  {bench_comm_word, bench_comm},
                                                  {test_gpus_word, test_gpus}};
  return all;
}

}  // namespace

bool asks_for_rank_program(Words const& words) {
  return !words.empty() && programs().contains(words[0]);
}

int run_rank_program(topology::MpiSession& session, Words const& words) {
  try {
    programs().at(words.at(0))(session, words);
    return 0;
  } catch (Error const& error) {
    return end(session, error);
  } catch (std::exception const& e) {
    return end(session, to_error(e));
  }
}

}  // namespace tessera::cli
