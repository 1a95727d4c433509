// Files that torch itself wrote (tests/oracles/deepspeed_checkpoints.py), in both of its formats.
#include "interchange/detail/torch_file.hpp"
#include "fixture.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

fs::path const data = fs::path(TESSERA_TEST_DATA) / "checkpoint/data/deepspeed/torch_files";

class TorchFiles : public testing::TestWithParam<char const*> {
 protected:
  std::vector<float> read(std::string const& name, std::vector<std::int64_t> const& shape) const {
    auto const place = file_.tensor(file_.root().at(name));
    EXPECT_EQ(place.shape, shape) << name;
    std::vector<float> out(static_cast<std::size_t>(place.numel));
    read_as_fp32(file_.file(), place, 0, place.numel, out.data());
    return out;
  }
  static std::vector<float> made(std::int64_t n, std::function<double(std::int64_t)> const& f) {
    std::vector<float> out;
    for (std::int64_t i = 0; i < n; ++i) out.push_back(static_cast<float>(f(i)));
    return out;
  }
  TorchFile file_{data / GetParam(), CrcCheck::everything};
};

TEST_P(TorchFiles, ReadsEveryElementType) {
  EXPECT_EQ(read("fp32", {4, 6}), made(24, [](auto i) { return 0.5 * static_cast<double>(i); }));
  EXPECT_EQ(read("parameter", {2, 12}),
            made(24, [](auto i) { return 0.5 * static_cast<double>(i); }));
  for (auto const* name : {"fp16", "bf16", "uint8"})
    EXPECT_EQ(read(name, {24}), made(24, [](auto i) { return static_cast<double>(i); })) << name;
  for (auto const* name : {"int64", "int32", "int16", "int8"})
    EXPECT_EQ(read(name, {24}), made(24, [](auto i) { return static_cast<double>(i - 7); }))
        << name;
  EXPECT_EQ(read("fp64", {24}), made(24, [](auto i) { return static_cast<double>(i) / 3; }));
  EXPECT_EQ(read("bool", {24}), made(24, [](auto i) { return i % 3 == 0 ? 1 : 0; }));
}

TEST_P(TorchFiles, HonorsOffsetsShapesAndStrides) {
  EXPECT_EQ(read("view", {6}), made(6, [](auto i) { return 0.5 * static_cast<double>(i + 5); }));
  EXPECT_EQ(read("transposed", {6, 4}),
            made(24, [](auto i) { return 0.5 * static_cast<double>(i % 4 * 6 + i / 4); }));
  EXPECT_EQ(read("sliced", {2, 2}),
            made(4, [](auto i) { return 0.5 * static_cast<double>(6 + i / 2 * 12 + i % 2 * 3); }));
  EXPECT_EQ(read("expanded", {3, 2}), std::vector<float>(6, 1.5f));
  EXPECT_EQ(read("scalar", {}), std::vector<float>{2.5f});
  EXPECT_EQ(read("empty", {0, 3}), std::vector<float>{});
  EXPECT_EQ(file_.number(file_.root().at("scalar")), 2.5);
}

TEST_P(TorchFiles, ReadsParts) {
  auto const place = file_.tensor(file_.root().at("transposed"));
  auto const whole = read("transposed", {6, 4});
  for (std::int64_t first = 0; first < 24; ++first) {
    std::vector<float> part(static_cast<std::size_t>(std::min<std::int64_t>(5, 24 - first)));
    read_as_fp32(file_.file(), place, first, static_cast<std::int64_t>(part.size()), part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first;
  }
}

TEST_P(TorchFiles, SaysWhatIsNoTensor) {
  EXPECT_FALSE(file_.find_tensor(file_.root()).has_value());
  EXPECT_THROW((void)file_.tensor(file_.root()), DataError);
  EXPECT_THROW((void)file_.number(file_.root().at("fp32")), DataError);
}

INSTANTIATE_TEST_SUITE_P(Formats, TorchFiles, testing::Values("zip.pt", "legacy.pt"));

TEST(TorchFile, RefusesOtherFiles) {
  test::ScratchDirectory const scratch;
  for (auto const& [name, content] : std::vector<std::pair<std::string, std::string>>{
           {"empty", ""},
           {"text", "this is no torch file at all"},
           {"zip", std::string("PK\3\4") + std::string(100, 'a')},
           {"pickle", std::string("\x80\2\x8a\x0a") + std::string(100, 'N')}}) {
    std::ofstream(scratch / name, std::ios::binary) << content;
    EXPECT_THROW(TorchFile{scratch / name}, DataError) << name;
  }
  EXPECT_THROW(TorchFile{scratch / "missing"}, IoError);
  EXPECT_THROW(TorchFile{scratch.path()}, Error);
}

}  // namespace
}  // namespace tessera::checkpoint::detail
