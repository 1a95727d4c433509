/// Saves and restores of a job against plain transfers of the same bytes, and what an asynchronous
/// save costs the training:
///   mpiexec -n 2 bench.save [MIB_OF_WEIGHTS=128] [ROUNDS=5] [DIRECTORY=.]
/// Rank 0 prints one JSON line: medians of the slowest rank's seconds over rounds in which the
/// alternatives alternate (every second round backwards), and their ratios. Everything written is
/// flushed inside the time; what is read is dropped from the page cache before.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>
#include <vector>

#include "interleaved.hpp"
#include "raw_io.hpp"
#include "tessera/checkpoint/save/background_saver.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/streaming.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace {

using namespace tessera;
using bench::Cache;
namespace fs = std::filesystem;

/// Matrices and vectors as in a transformer's blocks.
std::vector<memory::UnitSpec> units_of(std::int64_t numel) {
  std::int64_t const width = 1024;
  auto const spec = [](std::string name, std::vector<std::int64_t> shape) {
    memory::ParameterSpec out;
    out.name = std::move(name);
    out.shape = std::move(shape);
    return out;
  };
  std::vector<memory::UnitSpec> units;
  for (std::int64_t i = 0; i * 8 * width * width < numel; ++i) {
    std::string const name = concat("h.", i);
    units.push_back(
        {name,
         {spec(name + ".ln", {width}), spec(name + ".up", {width, 4 * width}),
          spec(name + ".bias", {4 * width}), spec(name + ".down", {4 * width, width})}});
  }
  return units;
}

/// A rank's states, 12 bytes for each element it owns.
struct States {
  explicit States(zero::PartitionPlan const& plan) {
    for (auto const* name : {"fp32", "exp_avg", "exp_avg_sq"}) {
      auto& data = memory.emplace_back(static_cast<std::size_t>(plan.partition_numel()));
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 9973) * 0.001f;
      views.push_back({name, {}});
      for (auto const& unit : plan.units())
        views.back().unit_shards.push_back(data.data() + unit.partition_offset.value());
    }
  }
  std::vector<std::vector<float>> memory;
  checkpoint::StateViews views;
};

class Contest {
 public:
  Contest(comm::Collectives& comm, double mib, fs::path base)
      : comm_(comm),
        base_(std::move(base)),
        units_(units_of(static_cast<std::int64_t>(mib * 262144))),
        plan_(units_, comm.size()),
        other_plan_(units_, comm.size() + 1),
        states_(plan_),
        copies_(plan_),
        saver_(comm, threads()) {
    bytes_ = states_.memory[0].size() * 3 * sizeof(float);
    saver_.reserve(plan_, checkpoint::layers_of(states_.views));
    bench::raw_write(mine("source"), bytes_);
    checkpoint::save(request("same", plan_), states_.views, comm_);
    if (comm_.rank() == 0) {
      States const other(other_plan_);
      checkpoint::save_all(request("other", other_plan_),
                           std::vector<checkpoint::StateViews>(
                               static_cast<std::size_t>(other_plan_.ranks()), other.views));
    }
    comm_.barrier();
  }

  void run(int rounds) {
    std::vector<std::pair<std::string, std::function<double()>>> const turns{
        {"copy", [&] { return timed([&] { copy(); }); }},
        {"copy_streamed", [&] { return timed([&] { copy_streamed(); }); }},
        {"async_stall", [&] { return stall(); }},
        {"raw_write", [&] { return write_new(Cache::used); }},
        {"raw_write_direct", [&] { return write_new(Cache::passed_by); }},
        {"save", [&] { return timed([&] { save(); }); }},
        {"raw_read", [&] { return timed([&] { bench::raw_read(mine("source")); }); }},
        {"restore", [&] { return timed([&] { restore("same"); }); }},
        {"restore_other_ranks", [&] { return timed([&] { restore("other"); }); }}};
    for (int r = 0; r <= rounds; ++r)
      for (std::size_t i = 0; i < turns.size(); ++i) {
        auto const& [name, turn] = turns[r % 2 ? turns.size() - 1 - i : i];
        comm_.barrier();
        if (comm_.rank() == 0) wait_for_deletion(), bench::drop_cache(base_);
        comm_.barrier();
        double const seconds = comm::all_reduce_value(comm_, turn(), comm::ReduceOp::max);
        if (r > 0) samples_[name].push_back(seconds);
      }
  }

  void print(int rounds) {
    if (comm_.rank() != 0) return;
    std::printf("{\"benchmark\": \"save\", \"ranks\": %d, \"mib_a_rank\": %.0f, \"rounds\": %d",
                comm_.size(), static_cast<double>(bytes_) / 1048576, rounds);
    for (auto const& [name, samples] : samples_)
      std::printf(", \"%s_s\": %.4f, \"%s_best_s\": %.4f", name.c_str(),
                  bench::summary(samples).median, name.c_str(), bench::summary(samples).best);
    // the C library's memcpy passes the caches or not by its size
    auto const median = [&](char const* name) { return bench::summary(samples_[name]).median; };
    char const* const copy = median("copy") < median("copy_streamed") ? "copy" : "copy_streamed";
    // throughput of the first over that of the second; for the stall times
    for (auto const& [name, own, other] :
         {std::tuple{"stall_over_copy", copy, "async_stall"},
          {"stall_over_save", "save", "async_stall"},
          {"save_over_raw", "raw_write", "save"},
          {"save_over_direct", "raw_write_direct", "save"},
          {"restore_over_raw", "raw_read", "restore"},
          {"restore_other_ranks_over_raw", "raw_read", "restore_other_ranks"}}) {
      double const a = median(own), b = median(other);
      double const best = bench::summary(samples_[own]).best / bench::summary(samples_[other]).best;
      bool const stall = std::string_view(other) == "async_stall";
      std::printf(", \"%s\": %.3f, \"%s_best\": %.3f", name, stall ? b / a : a / b, name,
                  stall ? 1 / best : best);
    }
    std::printf("}\n");
  }

 private:
  static int threads() {
    char const* const text = std::getenv("OMP_NUM_THREADS");
    return text ? std::max(1, std::atoi(text)) : 1;
  }
  fs::path mine(char const* name) const { return base_ / concat(name, ".", comm_.rank()); }
  checkpoint::SaveRequest request(char const* name, zero::PartitionPlan const& plan) const {
    return {.directory = base_ / name,
            .step = 1,
            .run_id = "bench",
            .plan = plan,
            .units = units_,
            .keep = 1,
            .model_config = ConfigTree::object(),
            .resolved_config = {},
            .trainer_state = ConfigTree::object(),
            .versions = {}};
  }
  template <class Work>
  double timed(Work&& work) {
    double const begin = bench::now();
    work();
    return bench::now() - begin;
  }
  /// Into a new file: a save deletes what it replaces when it has ended.
  double write_new(Cache cache) {
    fs::remove(mine("copy"));
    return timed([&] { bench::raw_write(mine("copy"), bytes_, cache); });
  }
  /// Saves like a trainer that waits for the save.
  void save() {
    saver_.begin(request("saved", plan_), states_.views,
                 checkpoint::BackgroundSaver::Source::in_place);
    (void)saver_.finish();
  }
  void wait_for_deletion() const {
    auto const deletes = [](fs::path const& checkpoints) {
      for (auto const& entry : fs::directory_iterator(checkpoints))
        if (entry.path().filename().string().starts_with(".trash.")) return true;
      return false;
    };
    for (char const* name : {"saved", "background"})
      while (fs::exists(base_ / name) && deletes(base_ / name))
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  void copy() {
    for (std::size_t s = 0; s < 3; ++s)
      std::memcpy(copies_.memory[s].data(), states_.memory[s].data(),
                  states_.memory[s].size() * sizeof(float));
  }
  /// Past the caches, whatever the C library thinks of the size.
  void copy_streamed() {
    for (std::size_t s = 0; s < 3; ++s)
      stream_bytes(copies_.memory[s].data(), states_.memory[s].data(),
                   states_.memory[s].size() * sizeof(float));
    finish_streaming();
  }
  /// What an asynchronous save takes from steps of 20 ms that leave the processor free.
  double stall() {
    saver_.begin(request("background", plan_), states_.views,
                 checkpoint::BackgroundSaver::Source::snapshot);
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (comm::all_reduce_value(comm_, std::int64_t{saver_.disk_works()}, comm::ReduceOp::max) !=
          0)
        continue;
      if (auto const saved = saver_.advance()) return saved->stall_seconds;
    }
  }
  void restore(char const* name) {
    auto const manifest = checkpoint::read_manifest(base_ / name / "step_00000001", comm_);
    checkpoint::restore(manifest, plan_, copies_.views, comm_);
  }

  comm::Collectives& comm_;
  fs::path base_;
  std::vector<memory::UnitSpec> units_;
  zero::PartitionPlan plan_, other_plan_;
  States states_, copies_;
  checkpoint::BackgroundSaver saver_;
  std::size_t bytes_ = 0;  ///< bytes of this rank's states
  std::map<std::string, std::vector<double>> samples_;
};

}  // namespace

int main(int argc, char** argv) {
  topology::MpiSession session(argc, argv);
  auto const comm = comm::make_mpi(session, std::chrono::seconds(600));
  fs::path const base = comm::broadcast_bytes(
      *comm, (fs::path(argc > 3 ? argv[3] : ".") / concat("bench.save.", ::getpid())).string(), 0);
  int code = 0;
  try {
    fs::create_directories(base);
    int const rounds = argc > 2 ? std::atoi(argv[2]) : 5;
    Contest contest(*comm, argc > 1 ? std::atof(argv[1]) : 128, base);
    contest.run(rounds);
    contest.print(rounds);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    code = 1;
  }
  std::error_code ignored;
  if (comm->rank() == 0) fs::remove_all(base, ignored);
  return code;
}
