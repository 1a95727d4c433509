/// Saving and consolidating against plain reads and writes of the same bytes, in turns:
///   bench.consolidate [MIB_OF_WEIGHTS=512] [ROUNDS=3] [DIRECTORY=.]
/// One JSON line: medians, and ratios of the medians and of the best times (for machines with other
/// work). Every file is flushed to disk inside the time; sources are dropped from the page cache
/// before they are read.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "bench_request.hpp"
#include "interleaved.hpp"
#include "raw_io.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/save/save.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/core/error.hpp"

namespace {

using namespace tessera;
namespace fs = std::filesystem;
using bench::drop_cache;
using bench::raw_read;
using bench::raw_write;

constexpr int ranks = 2;

/// Tensors as a transformer has them: one large, then blocks of matrices and vectors.
std::vector<memory::UnitSpec> units_of(std::int64_t numel) {
  std::int64_t const width = 1024;
  auto const spec = [](std::string name, std::vector<std::int64_t> shape) {
    memory::ParameterSpec out;
    out.name = std::move(name);
    out.shape = std::move(shape);
    return out;
  };
  std::vector<memory::UnitSpec> units{{"embedding", {spec("wte", {numel / width / 4, width})}}};
  for (std::int64_t left = numel * 3 / 4, i = 0; left > 0; left -= 8 * width * width, ++i) {
    std::string const name = concat("h.", i);
    units.push_back(
        {name,
         {spec(name + ".ln", {width}), spec(name + ".up", {width, 4 * width}),
          spec(name + ".bias", {4 * width}), spec(name + ".down", {4 * width, width})}});
  }
  return units;
}

int run(double mib, int rounds, fs::path const& base) {
  auto const units = units_of(static_cast<std::int64_t>(mib * 262144));
  zero::PartitionPlan const plan(units, ranks);
  std::vector<float> state(static_cast<std::size_t>(plan.partition_numel()), 0.5f);
  for (std::size_t i = 0; i < state.size(); ++i) state[i] = static_cast<float>(i % 9973) * 0.001f;
  checkpoint::StateViews views;
  for (auto const* name : {"fp32", "exp_avg", "exp_avg_sq"}) {
    views.push_back({name, {}});
    for (auto const& unit : plan.units())
      views.back().unit_shards.push_back(state.data() + unit.partition_offset.value());
  }
  fs::path const checkpoints = base / "checkpoints";
  auto const request = bench::save_request(checkpoints, plan, units);
  auto const model_bytes = static_cast<std::size_t>(plan.parameter_count()) * 4;
  raw_write(base / "source", model_bytes);
  checkpoint::save_all(request, {views, views});

  auto const consolidate_to = [&](char const* name) {
    fs::remove(base / name);
    checkpoint::consolidate({.checkpoint = checkpoints, .output = base / name});
  };
  std::vector<double> raw, single, torch, raw_state, save;
  std::vector<std::pair<std::vector<double>*, std::function<void()>>> const contest{
      {&raw,
       [&] {
         raw_read(base / "source"), fs::remove(base / "copy"),
             raw_write(base / "copy", model_bytes);
       }},
      {&single, [&] { consolidate_to("model.safetensors"); }},
      {&torch, [&] { consolidate_to("model.bin"); }},
      {&raw_state, [&] { fs::remove(base / "state"), raw_write(base / "state", 3 * model_bytes); }},
      {&save, [&] {
         checkpoint::save_all(request, {views, views});
       }}};
  for (int r = 0; r < rounds; ++r)
    for (std::size_t i = 0; i < contest.size(); ++i) {
      // every second round backwards: a disk remembers what was written to it just before
      auto const& [samples, work] = contest[r % 2 ? contest.size() - 1 - i : i];
      drop_cache(base);
      samples->push_back(bench::seconds_of(work));
    }
  auto const ratio = [](char const* name, std::vector<double> const& own,
                        std::vector<double> const& plain) {
    auto const a = bench::summary(own), b = bench::summary(plain);
    std::printf(
        ", \"%s_s\": %.3f, \"%s_raw_s\": %.3f, \"%s_over_raw\": %.3f, \"%s_best_over_raw_best\": "
        "%.3f",
        name, a.median, name, b.median, name, a.median / b.median, name, a.best / b.best);
  };
  std::printf("{\"benchmark\": \"consolidate\", \"model_mib\": %.0f, \"rounds\": %d",
              static_cast<double>(model_bytes) / 1048576, rounds);
  ratio("safetensors", single, raw);
  ratio("bin", torch, raw);
  ratio("save", save, raw_state);
  std::printf("}\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  fs::path const base =
      fs::path(argc > 3 ? argv[3] : ".") / concat("bench.consolidate.", ::getpid());
  int code = 1;
  try {
    fs::create_directories(base);
    code = run(argc > 1 ? std::atof(argv[1]) : 512, argc > 2 ? std::atoi(argv[2]) : 3, base);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  fs::remove_all(base);
  return code;
}
