/// What differs between two checkpoints, and the memory that the tools need to say so.
#include "tessera/checkpoint/tools/compare.hpp"

#include <cmath>

#include "fixture.hpp"
#include "large_checkpoint.hpp"
#include "processes.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/checkpoint/tools/convert.hpp"
#include "tessera/checkpoint/tools/verify.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

checkpoint::CompareReport compare(fs::path const& a, fs::path const& b) {
  return checkpoint::compare({.a = a, .b = b});
}

TEST(Compare, TheSameStateIsTheSameOnAnyRanks) {
  ScratchDirectory one, three;
  save_toy(one.path(), 5, 1);
  save_toy(three.path(), 5, 3);
  auto const report = compare(one.path(), three.path());
  EXPECT_EQ(report.tensors.size(), 8u * 3u);
  EXPECT_TRUE(report.same_tensors());
  EXPECT_EQ(report.max(), 0);
  for (auto const& tensor : report.tensors) EXPECT_EQ(tensor.different, 0);
}

TEST(Compare, DeviationsAreThoseOfTheElements) {
  ScratchDirectory a, b;
  save_toy(a.path(), 5, 2);
  save_toy(b.path(), 6, 3);
  auto const report = compare(a.path(), b.path());
  ASSERT_EQ(report.tensors.size(), 24u);
  for (auto const& tensor : report.tensors) {
    double max = 0, sum = 0, squares = 0, norm = 0;
    for (std::int64_t i = 0; i < tensor.numel; ++i) {
      double const x = element(tensor.name, tensor.state, i, 5),
                   d = std::abs(x - element(tensor.name, tensor.state, i, 6));
      max = std::max(max, d), sum += d, squares += d * d, norm += x * x;
    }
    EXPECT_EQ(tensor.max, max);
    EXPECT_NEAR(tensor.mean, sum / static_cast<double>(tensor.numel), 1e-12 * sum);
    EXPECT_NEAR(tensor.relative, std::sqrt(squares / norm), 1e-12);
    EXPECT_EQ(tensor.different, tensor.numel);
  }
}

TEST(Compare, AModelWrittenFromACheckpointIsTheSame) {
  ScratchDirectory dir;
  save_toy(dir / "run", 5, 2);
  checkpoint::consolidate({.checkpoint = dir / "run", .output = dir / "model"});
  checkpoint::consolidate(
      {.checkpoint = dir / "run", .output = dir / "small.safetensors", .dtype = Dtype::bf16});
  auto const same = compare(dir / "run", dir / "model");
  EXPECT_EQ(same.max(), 0);
  EXPECT_EQ(same.tensors.size(), 8u);
  EXPECT_THAT(same.a.only_states, ElementsAre("exp_avg", "exp_avg_sq"));
  auto const rounded = compare(dir / "run", dir / "small.safetensors");
  EXPECT_GT(rounded.max(), 0);
  for (auto const& tensor : rounded.tensors)
    EXPECT_LE(tensor.relative, std::ldexp(1.0, -8)) << tensor.name;
}

TEST(Compare, OtherTensorsAndShapesAreListed) {
  ScratchDirectory a, b;
  save_toy(a.path(), 5, 1);
  save_toy(b.path(), 5, 1, 0, 16);
  auto report = compare(a.path(), b.path());
  EXPECT_FALSE(report.same_tensors());
  EXPECT_EQ(report.other_shapes.size(), 7u);
  EXPECT_EQ(report.other_shapes[0].name, "transformer.wte.weight");
  EXPECT_THAT(report.other_shapes[0].b, ElementsAre(101, 16));
  EXPECT_EQ(report.tensors.size(), 3u) << "scale has one shape";
  EXPECT_THAT(message_of<UsageError>([&] {
                checkpoint::compare({.a = a.path(), .b = b.path(), .states = {"momentum"}});
              }),
              HasSubstr("has no state 'momentum'"));
  flip_bit(a / "step_00000005/shard_00000.h5", checkpoint::read_manifest(a / "step_00000005")
                                                   .find("scale")
                                                   ->extents[0]
                                                   .states[0]
                                                   .file_offset);
  EXPECT_THAT(message_of<DataError>([&] { compare(a.path(), a.path()); }), HasSubstr("is damaged"));
}

TEST(Memory, OfToolsIsBoundedWhateverTheModel) {
  ScratchDirectory dir;
  auto const units = toy_units(40000);  // 4.7 million elements in the embeddings
  std::vector<memory::UnitSpec> large = {units[0]};
  for (int i = 1; i < 6; ++i) {
    large.push_back(units[0]);
    for (auto& parameter : large.back().parameters)
      parameter.name += concat(".", i), parameter.aliases.clear();
  }
  auto const one = save_large(dir / "one", 1, large), three = save_large(dir / "three", 3, large);
  ASSERT_GT(fs::file_size(one / "shard_00000.h5"), std::uintmax_t{256} << 20);
  EXPECT_LT(peak_mib([&] { EXPECT_TRUE(checkpoint::verify(one).ok()); }), 256);
  EXPECT_LT(peak_mib([&] { EXPECT_EQ(compare(one, three).max(), 0); }), 256);
  EXPECT_LT(
      peak_mib([&] {
        checkpoint::convert({.source = three, .destination = dir / "plain", .ranks_per_file = 3});
      }),
      256);
  EXPECT_LT(peak_mib([&] {
              checkpoint::convert({.source = three,
                                   .destination = dir / "packed",
                                   .ranks_per_file = 3,
                                   .compression = checkpoint::Compression::shuffle_gzip,
                                   .level = 1});
            }),
            256);
}

}  // namespace
