#include "commands.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <memory>

#include "installation.hpp"
#include "launch/mpi_launcher.hpp"
#include "launch/run_program.hpp"
#include "rank_programs.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/tools/verify.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/topology/launcher.hpp"
#include "tessera/topology/mpi_headers.hpp"
#include "tessera/train/report/version.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

/// A temporary directory in @p parent, removed at the end.
class Scratch {
 public:
  explicit Scratch(fs::path const& parent) {
    std::string name = (fs::absolute(parent) / "tessera-selftest.XXXXXX").string();
    TESSERA_VALIDATE(::mkdtemp(name.data()), IoError,
                     with_errno("cannot create a directory in " + parent.string(), errno),
                     "; choose another --dir");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(Scratch const&) = delete;
  Scratch& operator=(Scratch const&) = delete;
  fs::path const& path() const { return path_; }

 private:
  fs::path path_;
};

/// The small training run that all checks share: a GPT-2 with two narrow layers on generated text.
class Trainings {
 public:
  struct Settings {
    int steps = 4, save_steps = 4, ranks = 1, threads = 1;
    std::string device = "cpu";
    Words launcher = {};  ///< words before the program; empty: no launcher
  };

  explicit Trainings(fs::path directory)
      : directory_(std::move(directory)), tokenizer_(shipped_file("configs/gpt2-8m")) {
    TESSERA_VALIDATE(!tokenizer_.empty(), IoError,
                     "share/tessera/configs/gpt2-8m is missing; the installation is incomplete, "
                     "install Tessera again");
    std::ofstream text(directory_ / "text.txt");
    for (int line = 0; line < 400; ++line)
      text << "record " << line * 7919 % 1000 << " of the self test follows record " << line
           << ".\n";
  }

  void run(std::string const& output, Settings const& settings) const {
    Words words = settings.launcher;
    words.insert(words.end(), {sibling_program("tessera-train").string(),
                               "--model_type",
                               "gpt2",
                               "--config_overrides",
                               "n_embd=32,n_layer=2,n_head=2,vocab_size=4096,n_positions=32",
                               "--tokenizer_name",
                               tokenizer_.string(),
                               "--train_file",
                               (directory_ / "text.txt").string(),
                               "--block_size",
                               "32",
                               "--do_train",
                               "--output_dir",
                               (directory_ / output).string(),
                               "--per_device_train_batch_size",
                               std::to_string(4 / settings.ranks),
                               "--max_steps",
                               std::to_string(settings.steps),
                               "--save_steps",
                               std::to_string(settings.save_steps),
                               "--learning_rate",
                               "1e-2",
                               "--threads",
                               std::to_string(settings.threads),
                               "--device",
                               settings.device});
    auto const done = run_program(words, 120s, Capture::both);
    TESSERA_VALIDATE(
        done.code == 0, InternalError,
        done.code < 0 ? "did not end within 120 s" : concat("exited with code ", done.code), ":\n",
        done.output);
  }

  std::vector<double> losses(std::string const& output) const {
    std::vector<double> values;
    std::ifstream in(directory_ / output / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      auto const record =
          ConfigTree::parse(line, "metrics.jsonl");  // record of a step, an evaluation or a save
      if (auto const* loss = record.find("loss")) values.push_back(loss->as_double());
    }
    return values;
  }

  fs::path const& directory() const { return directory_; }

 private:
  fs::path directory_, tokenizer_;
};

void expect_close(std::vector<double> const& a, std::vector<double> const& b, double relative,
                  std::string const& what) {
  TESSERA_VALIDATE(a.size() == b.size() && !a.empty(), InternalError, what, ": ", a.size(), " and ",
                   b.size(), " losses were recorded");
  for (std::size_t i = 0; i < a.size(); ++i)
    TESSERA_VALIDATE(std::abs(a[i] - b[i]) <= relative * std::abs(b[i]), InternalError, what,
                     ": the loss of step ", i + 1, " is ", a[i], " and ", b[i]);
}

void check_files(fs::path const& directory) {
  std::string const text(1 << 20, 'x');
  write_file_atomically(directory / "probe", text);
  TESSERA_VALIDATE(read_text(directory / "probe") == text, IoError, directory.string(),
                   ": the data read back differs from the data written");
  fs::rename(directory / "probe", directory / "renamed");
  TESSERA_VALIDATE(
      fs::file_size(directory / "renamed") == text.size() && !fs::exists(directory / "probe"),
      IoError, "rename did not move the file in ", directory.string(), "; choose another --dir");
  fs::remove(directory / "renamed");
}

void check_round_trip(Trainings const& t) {
  t.run("reference", {.steps = 4, .save_steps = 2});
  t.run("resumed", {.steps = 2, .save_steps = 2});
  auto const saved = checkpoint::resolve_checkpoint((t.directory() / "resumed").string());
  auto const report = checkpoint::verify(saved);
  TESSERA_VALIDATE(report.ok(), DataError, saved.string(), ": ",
                   report.problems.empty() ? "" : report.problems.front());
  // the learning rate depends on max_steps, so both runs resume at the same step of the same length
  fs::remove_all(t.directory() / "reference/checkpoints/step_00000004");
  auto const before = t.losses("reference");
  t.run("reference", {.steps = 4, .save_steps = 2});
  expect_close(t.losses("reference"), before, 0.0, "resumed against uninterrupted");
}

/// Thrown by a check that this machine or build leaves out.
struct Skipped {
  std::string reason;
};

std::string no_launcher() {
  return concat("no launcher of ", topology::mpi_version_of_headers(), " in PATH");
}

Words launcher_words(MpiLauncher const& launcher, int ranks) {
  Words out{launcher.program, "-n", std::to_string(ranks)};
  if (topology::mpi_family(launcher.version) == topology::MpiFamily::mpich) return out;
  out.insert(out.end(), {"--oversubscribe", "--bind-to", "none"});
  if (::geteuid() == 0) out.emplace_back("--allow-run-as-root");
  return out;
}

/// @p program on @p ranks ranks; one needs no launcher.
Words started_on(int ranks, Words program) {
  if (ranks <= 1) return program;
  auto const launcher = own_launcher();
  TESSERA_VALIDATE(launcher, ConfigError, no_launcher(), "; load the module of the MPI");
  auto const words = launcher_words(*launcher, ranks);
  program.insert(program.begin(), words.begin(), words.end());
  return program;
}

std::string check_two_ranks(Trainings const& t) {
  auto const launcher = own_launcher();
  if (!launcher) throw Skipped{no_launcher()};
  t.run("two", {.ranks = 2, .launcher = launcher_words(*launcher, 2)});
  expect_close(t.losses("two"), t.losses("reference"), 1e-5, "two ranks against one");
  return launcher->program;
}

std::string check_threads(Trainings const& t) {
  auto const cores = static_cast<int>(allowed_cores().size());
  if (cores == 1) throw Skipped{"this process may use only one core"};
  int const threads = std::min(cores, 8);
  t.run("threads", {.threads = threads});
  expect_close(t.losses("threads"), t.losses("reference"), 1e-5,
               concat(threads, " threads against one"));
  return concat(threads, " threads on ", cores, " cores");
}

std::string check_gpu(Trainings const& t) {
  if (!memory::built_with_gpu()) throw Skipped{"this build has no GPU support"};
  auto const found = memory::find_devices();
  if (found.count == 0) throw Skipped{found.reason};
  t.run("device", {.device = "gpu"});
  expect_close(t.losses("device"), t.losses("reference"), 1e-3, "GPU against host");
  return concat(found.count, " visible");
}

/// Each node is tested separately, also by `srun -N 8 --ntasks-per-node=1 tessera selftest`: the
/// programs started here must not join the job step.
void leave_the_job() {
  for (auto const& entry : topology::process_environment())
    for (char const* prefix :
         {"SLURM_", "PMIX_", "PMI_", "OMPI_", "PRTE_", "PALS_", "HYDI_", "MPI_LOCAL"})
      if (entry.first.starts_with(prefix)) ::unsetenv(entry.first.c_str());
  for (char const* name : {"OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES"}) ::unsetenv(name);
}

enum class Result { passed, failed, skipped };

/// Runs a check and prints the result.
Result report(std::string const& name, std::function<std::string()> const& check) {
  auto const start = std::chrono::steady_clock::now();
  try {
    std::string const note = check();
    double const seconds = seconds_since(start);
    fmt::print("{:<58} ok   {:.1f} s{}\n", name, seconds, note.empty() ? "" : "  (" + note + ")");
    return Result::passed;
  } catch (Skipped const& skipped) {
    fmt::print("{:<58} SKIPPED  ({})\n", name, skipped.reason);
    return Result::skipped;
  } catch (std::exception const& e) {
    fmt::print("{:<58} FAILED\n    {}\n", name, e.what());
    return Result::failed;
  }
}

/// The given directory, else that of TMPDIR, which a batch system may have removed.
fs::path scratch_parent(std::string const& given) {
  if (!given.empty()) return given;
  std::error_code missing;
  auto const parent = fs::temp_directory_path(missing);
  char const* const named = std::getenv("TMPDIR");
  TESSERA_VALIDATE(!missing, IoError, "TMPDIR=", named ? named : "", " is not a directory (",
                   missing.message(), "); unset it, or name an existing directory");
  return parent;
}

void selftest(std::string const& given) {
  leave_the_job();
  fs::path const parent = scratch_parent(given);
  fmt::print("{}\n", train::version_text("tessera", train::build_versions()));
  Scratch const scratch(parent);
  fmt::print("testing in {}\n", scratch.path().string());
  Trainings const trainings(scratch.path());
  int failures = 0, checks = 0;
  std::vector<std::string> skipped;
  auto const run = [&](std::string const& name, std::function<std::string()> const& check) {
    auto const result = report(name, check);
    ++checks;
    failures += result == Result::failed ? 1 : 0;
    if (result == Result::skipped) skipped.push_back(name.substr(0, name.find(':')));
  };
  run("file system: write, sync, read back, rename",
      [&] { return check_files(scratch.path()), ""; });
  run("one rank: train, save (HDF5), verify, resume bit for bit",
      [&] { return check_round_trip(trainings), ""; });
  run("OpenMP threads: same losses as one thread", [&] { return check_threads(trainings); });
  run("two ranks: same losses as one rank", [&] { return check_two_ranks(trainings); });
  run("GPU: same losses as the host", [&] { return check_gpu(trainings); });
  TESSERA_VALIDATE(failures == 0, InternalError, failures, " of ", counted(checks, "check"),
                   " failed on this machine; the lines above give the reasons");
  fmt::print("this installation works on this machine{}\n",
             skipped.empty() ? "" : "; not tested: " + join(skipped));
}

/// One rank per GPU, or two that share the cores.
int ranks_to_measure() {
  int const devices = memory::find_devices().count;
  return devices > 0 ? devices : std::min(2, static_cast<int>(allowed_cores().size()));
}

void measure(std::string const& file, std::string const& given, int ranks) {
  leave_the_job();
  Scratch const scratch(scratch_parent(given));
  if (ranks == 0) ranks = ranks_to_measure();
  auto const words =
      started_on(ranks, {sibling_program("tessera-train").string(), measure_machine_word,
                         fs::absolute(file).string(), scratch.path().string()});
  auto const done = run_program(words, 300s, Capture::both);
  TESSERA_VALIDATE(
      done.code == 0, InternalError, "the measurement ",
      done.code < 0 ? "did not end within 300 s" : concat("exited with code ", done.code), ":\n",
      done.output);
  fmt::print("{}: measured by {}; use it with tessera plan --machine {}\n", file,
             counted(ranks, "rank"), file);
}

/// The ranks of the job that srun or mpirun started this program on, else one per GPU of this node.
void test_gpus(std::string const& device_memory, int ranks) {
  Words words{sibling_program("tessera-train").string(), test_gpus_word, device_memory};
  bool const in_job =
      topology::launcher_facts(topology::process_environment()).size.value_or(1) > 1;
  TESSERA_VALIDATE(!in_job || ranks == 0, UsageError,
                   "--ranks does not go with srun or mpirun, which have started this program on "
                   "several ranks; leave it out");
  if (!in_job) {
    leave_the_job();
    auto const found = memory::find_devices();
    TESSERA_VALIDATE(found.count > 0 || !device_memory.empty(), ConfigError,
                     "there is no GPU to test: ", found.reason,
                     "; rehearse with simulated devices: --device_memory 64MiB --ranks 2");
    if (ranks == 0) ranks = std::max(1, found.count);
    words = started_on(ranks, words);
  }
  exec_program(words);
}

}  // namespace

void add_selftest(Command& app) {
  auto const directory = std::make_shared<std::string>();
  auto const profile = std::make_shared<std::string>();
  auto const ranks = std::make_shared<int>(0);
  auto& test = app.add_command(
      "selftest", "Check this installation on this machine and file system; takes seconds");
  test.add("--dir DIR", *directory,
           "directory to test, such as one on the file system of the runs (default: the "
           "temporary directory)");
  test.add("--profile FILE", *profile,
           "measure this machine instead, and write its profile for tessera plan: products "
           "by shape, memory, links, drive");
  test.add("--profile_ranks", *ranks,
           "ranks that measure (default: one per GPU; without a GPU two)")
      .between(1, 1024);
  auto const gpus = std::make_shared<bool>(false);
  auto const device_memory = std::make_shared<std::string>();
  auto const gpu_ranks = std::make_shared<int>(0);
  test.add("--gpus", *gpus,
           "test the GPUs of this node and the links between them instead; under srun or "
           "mpirun those of all ranks")
      .excludes("profile");
  test.add("--ranks", *gpu_ranks, "ranks of --gpus (default: one per GPU of this node)")
      .between(1, 1024)
      .needs("gpus");
  test.add("--device_memory SIZE", *device_memory,
           "rehearse --gpus with simulated devices of this size in host memory")
      .needs("gpus");
  test.run([=] {
    if (*gpus) return test_gpus(*device_memory, *gpu_ranks);
    if (profile->empty()) return selftest(*directory);
    measure(*profile, *directory, *ranks);
  });
}

}  // namespace tessera::cli
