/// Saved by one stage, number of ranks and layout of files, restored by another: every tensor of
/// every state, bit by bit.
///
/// Runs several times with different numbers of ranks: TESSERA_MATRIX=save in each leaves
/// checkpoints in TESSERA_MATRIX_DIRECTORY, TESSERA_MATRIX=restore in each reads all that are
/// there. TESSERA_MATRIX_SHARE=k does one of k combinations.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "../zero/engine_fixture.hpp"
#include "fixture.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/tools/convert.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr char const* layouts[] = {"file-a-rank", "shared", "compressed", "cut-anew"};

std::string setting(char const* name, char const* otherwise) {
  char const* const value = std::getenv(name);
  return value ? value : otherwise;
}
fs::path base() {
  return setting("TESSERA_MATRIX_DIRECTORY",
                 (fs::temp_directory_path() / "tessera-matrix").c_str());
}
fs::path location_of(int ranks, int stage) { return base() / concat("n", ranks, "-stage", stage); }

/// Visits this rank's part of every state: visit(state, element in the model's order, reference to
/// the value).
template <class Visit>
void visit_parts(zero::Engine& engine, int rank, Visit const& visit) {
  auto const& plan = engine.plan();
  auto const states = engine.state();
  std::vector<std::vector<std::int64_t>> first;
  std::int64_t count = 0;
  for (auto const& unit : plan.units()) {
    first.emplace_back();
    for (auto const& p : unit.parameters)
      first.back().push_back(std::exchange(count, count + p.numel));
  }
  for (auto const& extent : plan.extents(Rank(rank)))
    for (std::size_t s = 0; s < states.size(); ++s) {
      float* const data = states[s].unit_shards[position(extent.unit)] +
                          plan.unit(extent.unit).shard_offset(extent.partition_offset).value();
      std::int64_t const at =
          first[position(extent.unit)][static_cast<std::size_t>(extent.parameter)] +
          extent.parameter_offset.value();
      for (std::int64_t i = 0; i < extent.numel; ++i) visit(s, at + i, data[i]);
    }
}

/// All states of the model as one vector on every rank, without any file.
std::vector<double> gather(Training& training) {
  std::int64_t const numel = training.engine->plan().parameter_count();
  std::vector<double> all(static_cast<std::size_t>(numel * 3), 0.0);
  visit_parts(*training.engine, training.rank(), [&](std::size_t s, std::int64_t at, float& value) {
    all[s * static_cast<std::size_t>(numel) + static_cast<std::size_t>(at)] = value;
  });
  comm::all_reduce_values(*training.recording, all, comm::ReduceOp::sum);
  return all;
}

void save_all_layouts(Training& training, int stage) {
  fs::path const place = location_of(training.ranks(), stage);
  if (training.rank() == 0) fs::remove_all(place);
  training.recording->barrier();
  auto request =
      request_for(place / layouts[0], 2, training.engine->plan(), training.model.units());
  request.zero_stage = stage;
  auto const saved = checkpoint::save(request, training.engine->state(), *training.recording);
  request.directory = place / layouts[1];
  request.file_starts = checkpoint::starts_by_count(training.ranks(), 2);
  checkpoint::save(request, training.engine->state(), *training.recording);
  auto const expected = gather(training);
  if (training.rank() != 0) return;
  checkpoint::convert({.source = saved.directory,
                       .destination = place / layouts[2] / "step_00000002",
                       .ranks_per_file = 3,
                       .compression = checkpoint::Compression::shuffle_gzip});
  checkpoint::convert({.source = saved.directory,
                       .destination = place / layouts[3] / "step_00000002",
                       .ranks = 5,
                       .ranks_per_file = 2});
  std::ofstream(place / "expected", std::ios::binary)
      .write(reinterpret_cast<char const*>(expected.data()),
             static_cast<std::streamsize>(expected.size() * sizeof expected[0]));
}

/// Bytes of the chunks that hold what a rank owns, reckoned from plan and manifest.
std::int64_t bytes_to_read(checkpoint::Manifest const& m, zero::PartitionPlan const& plan,
                           int rank) {
  std::int64_t bytes = 0;
  for (auto const& own : plan.extents(Rank(rank))) {
    auto const& slot = plan.unit(own.unit).parameters[static_cast<std::size_t>(own.parameter)];
    for (auto const& extent : m.find(slot.name)->extents) {
      std::int64_t const begin = own.parameter_offset.value();
      std::int64_t const first = std::max(begin, extent.offset) - extent.offset;
      std::int64_t const last =
          std::min(begin + own.numel, extent.offset + extent.numel) - extent.offset;
      if (first >= last) continue;
      std::int64_t const chunk = m.checksum_chunk / 4;
      for (std::int64_t b = first / chunk; b * chunk < last; ++b)
        for (auto const& state : extent.states)
          bytes += state.chunks.empty() ? std::min(chunk, extent.numel - b * chunk) * 4
                                        : state.chunks[static_cast<std::size_t>(b)].bytes;
    }
  }
  return bytes;
}

/// One checkpoint into an engine whose state is another one before.
void expect_restored(Training& training, fs::path const& step,
                     std::vector<double> const& expected) {
  auto const numel = static_cast<std::size_t>(training.engine->plan().parameter_count());
  visit_parts(*training.engine, training.rank(),
              [](std::size_t, std::int64_t, float& value) { value = -7.0f; });
  auto const manifest = checkpoint::read_manifest(step, *training.recording);
  auto const report = checkpoint::restore(manifest, training.engine->plan(),
                                          training.engine->state(), *training.recording);
  std::int64_t wrong = 0, owned = 0;
  visit_parts(*training.engine, training.rank(), [&](std::size_t s, std::int64_t at, float& value) {
    wrong += value != static_cast<float>(expected[s * numel + static_cast<std::size_t>(at)]);
    ++owned;
  });
  EXPECT_EQ(wrong, 0) << step;
  // a rank takes what it owns, and reads the chunks that hold it, each once
  EXPECT_EQ(report.bytes_needed, owned * 4) << step;
  EXPECT_EQ(report.bytes_read, bytes_to_read(manifest, training.engine->plan(), training.rank()))
      << step;
  training.engine->load_state(2, {});
}

TEST(Matrix, Save) {
  if (setting("TESSERA_MATRIX", "save") != "save") return;
  for (int stage = 0; stage <= 3; ++stage) {
    Training training(config_of(stage), QuadraticModel(1));  // one block: its names are unique
    for (int k = 0; k < 2; ++k) training.step(1e-2);
    save_all_layouts(training, stage);
    training.recording->barrier();
  }
}

TEST(Matrix, Restore) {
  if (setting("TESSERA_MATRIX", "restore") != "restore") return;
  int const share = std::atoi(setting("TESSERA_MATRIX_SHARE", "1").c_str());
  int combinations = 0, done = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    Training training(config_of(stage), QuadraticModel(1));  // one block: its names are unique
    for (int ranks = 1; ranks <= 8; ++ranks)
      for (int from = 0; from <= 3; ++from) {
        fs::path const place = location_of(ranks, from);
        if (!fs::exists(place / "expected")) continue;
        std::vector<double> expected(fs::file_size(place / "expected") / sizeof(double));
        std::ifstream(place / "expected", std::ios::binary)
            .read(reinterpret_cast<char*>(expected.data()),
                  static_cast<std::streamsize>(expected.size() * sizeof expected[0]));
        for (auto const* layout : layouts)
          if (combinations++ % share == (stage + ranks) % share)
            expect_restored(training, place / layout / "step_00000002", expected), ++done;
      }
  }
  EXPECT_GT(done, 0) << "nothing was saved in " << base();
  if (session().info().rank == 0)
    std::printf("%d of %d combinations of stage, ranks and files restored on %d ranks\n", done,
                combinations, session().info().world_size);
}

}  // namespace
