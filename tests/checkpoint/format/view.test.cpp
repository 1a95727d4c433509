/// view.h5, read through HDF5 only: values, shapes, names, and what it does when sources move or
/// are missing.
#include <hdf5.h>

#include <cmath>

#include "fixture.hpp"
#include "tessera/checkpoint/format/directory.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// A complete dataset of an HDF5 file, through the library's defaults.
struct ReadDataset {
  std::vector<hsize_t> shape;
  std::vector<float> values;
  std::vector<std::pair<std::string, std::string>> sources;  ///< file, dataset

  ReadDataset(fs::path const& path, std::string const& name) {
    hid_t const file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t const dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
    EXPECT_GE(dataset, 0) << path << " " << name;
    hid_t const space = H5Dget_space(dataset);
    shape.resize(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
    H5Sget_simple_extent_dims(space, shape.data(), nullptr);
    values.resize(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
    EXPECT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    read_sources(dataset);
    H5Sclose(space);
    H5Dclose(dataset);
    H5Fclose(file);
  }
  void read_sources(hid_t dataset) {
    hid_t const properties = H5Dget_create_plist(dataset);
    std::size_t count = 0;
    H5Pget_virtual_count(properties, &count);
    for (std::size_t i = 0; i < count; ++i) {
      char file[512] = {}, name[512] = {};
      H5Pget_virtual_filename(properties, i, file, sizeof file);
      H5Pget_virtual_dsetname(properties, i, name, sizeof name);
      sources.emplace_back(file, name);
    }
    H5Pclose(properties);
  }
};

void expect_model(fs::path const& step, std::int64_t value_step) {
  auto const m = checkpoint::read_manifest(step);
  for (auto const& tensor : m.tensors)
    for (auto const& state : m.states) {
      ReadDataset const read(step / "view.h5", "/" + state + "/" + tensor.name);
      EXPECT_EQ(std::vector<std::int64_t>(read.shape.begin(), read.shape.end()), tensor.shape);
      auto const runs = tensor.runs();
      ASSERT_EQ(read.sources.size(), runs.size());
      for (std::size_t i = 0; i < runs.size(); ++i)
        EXPECT_EQ(read.sources[i], std::pair(m.shards[static_cast<std::size_t>(runs[i].shard)].file,
                                             "/" + state + "/" + tensor.name));
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < tensor.numel(); ++i)
        wrong +=
            read.values[static_cast<std::size_t>(i)] != element(tensor.name, state, i, value_step);
      EXPECT_EQ(wrong, 0) << state << " of " << tensor.name << " from " << m.shards.size()
                          << " shards";
    }
}

TEST(View, HoldsTheModelOfAnyNumberOfRanks) {
  for (int const ranks : {1, 2, 7, 100}) {
    ScratchDirectory dir;
    auto const step = save_toy(dir.path(), 40, ranks).directory;
    expect_model(step, 40);
    EXPECT_EQ(ReadDataset(step / "view.h5", "/fp32/lm_head.weight").values,
              ReadDataset(step / "view.h5", "/fp32/transformer.wte.weight").values);
  }
}

TEST(View, SharedFilesHaveOneSourceEach) {
  ScratchDirectory dir;
  auto const step =
      save_toy(dir.path(), 5, 40, 0, 24, checkpoint::starts_by_count(40, 3)).directory;
  expect_model(step, 5);
  auto const manifest = checkpoint::read_manifest(step);
  auto const& extents = manifest.tensors[0].extents;
  EXPECT_EQ(ReadDataset(step / "view.h5", "/fp32/transformer.wte.weight").sources.size(),
            (extents.size() + 2) / 3);
}

TEST(View, IsWrittenAgainWithTheSameContent) {
  ScratchDirectory dir;
  auto const step = save_toy(dir.path(), 2, 100).directory;
  fs::remove(step / "view.h5");
  EXPECT_EQ(checkpoint::make_view(step), step / "view.h5");
  expect_model(step, 2);
  write_file(step / "view.h5", "damaged");
  checkpoint::make_view(step);
  expect_model(step, 2);
}

TEST(View, MovesWithItsDirectory) {
  ScratchDirectory dir;
  auto const step = save_toy(dir / "here", 3, 64).directory;
  fs::create_directories(dir / "there/deep");
  fs::rename(step, dir / "there/deep/moved");
  expect_model(dir / "there/deep/moved", 3);
}

TEST(View, AMissingShardReadsAsNan) {
  ScratchDirectory dir;
  auto const step = save_toy(dir.path(), 3, 100).directory;
  auto const m = checkpoint::read_manifest(step);
  auto const& tensor = m.tensors[0];
  auto const runs = tensor.runs();
  ASSERT_GT(runs.size(), 20u);
  auto const& lost = runs[11];
  fs::remove(m.shard_path(lost.shard));
  ReadDataset const read(step / "view.h5", "/fp32/" + tensor.name);
  for (std::int64_t i = 0; i < tensor.numel(); ++i)
    EXPECT_EQ(std::isnan(read.values[static_cast<std::size_t>(i)]),
              i >= lost.offset && i < lost.offset + lost.numel)
        << i;
}

TEST(View, TensorsOfManyDimensionsAreCutWhereTheRanksAre) {
  ScratchDirectory dir;
  memory::ParameterSpec conv, cube;
  conv.name = "conv";
  conv.shape = {7, 5, 11, 3};
  cube.name = "cube";
  cube.shape = {3, 5, 1, 2, 2, 3, 2, 7};
  std::vector<memory::UnitSpec> const units{{"unit", {conv, cube}}};
  for (int const ranks : {2, 60}) {
    zero::PartitionPlan const plan(units, ranks, 1);
    std::vector<RankState> states;
    std::vector<checkpoint::StateViews> views;
    for (int r = 0; r < ranks; ++r) states.emplace_back(plan, r).fill(ranks);
    for (auto& state : states) views.push_back(state.views());
    expect_model(checkpoint::save_all(request_for(dir.path(), ranks, plan, units), views).directory,
                 ranks);
  }
}

}  // namespace
