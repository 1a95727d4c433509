#include "tessera/checkpoint/interchange/tensor_writer.hpp"

#include <cmath>

#include "fixture.hpp"
#include "tessera/checkpoint/interchange/safetensors_reader.hpp"

using namespace tessera;
using namespace tessera::test;
using checkpoint::SafetensorsReader;

namespace {

std::vector<checkpoint::TensorHeader> const headers{
    {"wte", {3, 5}}, {"big", {700, 1000}}, {"bias", {7}}, {"one", {1}}};

std::vector<float> all_values() {
  std::vector<float> values;
  for (std::size_t t = 0; t < headers.size(); ++t)
    for (std::int64_t i = 0; i < headers[t].numel(); ++i)
      values.push_back(std::sin(static_cast<float>(i + 1) * static_cast<float>(t + 1)) * 3.0f);
  return values;
}

/// Writes all values in parts of an odd size, so that parts end inside tensors and go over several.
std::vector<fs::path> write_all_parts(checkpoint::TensorWriter& writer,
                                      std::vector<float> const& values) {
  for (std::size_t at = 0; at < values.size(); at += 99991)
    writer.write(values.data() + at,
                 static_cast<std::int64_t>(std::min<std::size_t>(99991, values.size() - at)));
  return writer.finish();
}

float rounded(float value, Dtype dtype) {
  return dtype == Dtype::fp32   ? value
         : dtype == Dtype::bf16 ? static_cast<float>(bfloat16(value))
                                : static_cast<float>(float16(value));
}

void expect_values(SafetensorsReader const& reader, Dtype dtype) {
  auto const values = all_values();
  std::size_t at = 0;
  for (auto const& header : headers) {
    std::vector<float> read(static_cast<std::size_t>(header.numel()));
    reader.read_as_fp32(header.name, 0, header.numel(), read.data());
    EXPECT_EQ(reader.find(header.name)->shape, header.shape);
    for (float v : read) ASSERT_EQ(v, rounded(values[at++], dtype)) << header.name;
  }
}

TEST(SafetensorsWriter, RoundTripsEveryType) {
  ScratchDirectory dir;
  for (Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
    auto const files = write_all_parts(
        *checkpoint::make_safetensors_writer(dir / "m.safetensors", headers, dtype), all_values());
    EXPECT_EQ(files, std::vector<fs::path>{dir / "m.safetensors"});
    SafetensorsReader const reader(dir / "m.safetensors");
    expect_values(reader, dtype);
    EXPECT_EQ(reader.find("wte")->file_offset % 64, 0);
  }
}

TEST(SafetensorsWriter, ShardsLikeHuggingFace) {
  ScratchDirectory dir;
  write_all_parts(*checkpoint::make_sharded_safetensors_writer(dir.path(), headers, {}, Dtype::fp32,
                                                               5'000'000'000),
                  all_values());
  EXPECT_TRUE(fs::exists(dir / "model.safetensors"));
  EXPECT_FALSE(fs::exists(dir / "model.safetensors.index.json"));
  // sharded over the single one: no trace of it may stay, or a loader would prefer it
  auto const files = write_all_parts(
      *checkpoint::make_sharded_safetensors_writer(dir.path(), headers, {}, Dtype::bf16, 1000),
      all_values());
  EXPECT_EQ(files.size(), 4u);
  EXPECT_FALSE(fs::exists(dir / "model.safetensors"));
  EXPECT_TRUE(fs::exists(dir / "model-00003-of-00003.safetensors"));
  auto const index = ConfigTree::read(dir / "model.safetensors.index.json");
  EXPECT_EQ(index.at("metadata").at("total_size").as_int(), (15 + 700000 + 7 + 1) * 2);
  EXPECT_EQ(index.at("weight_map").at("big").as_string(), "model-00002-of-00003.safetensors");
  EXPECT_EQ(index.at("weight_map").at("one").as_string(), "model-00003-of-00003.safetensors");
  expect_values(SafetensorsReader(dir.path()), Dtype::bf16);
}

TEST(SafetensorsWriter, AnAdapterHasACopyUnderEachAlias) {
  std::vector<checkpoint::TensorAlias> const aliases{{"head", 0}, {"again", 1}, {"last", 3}};
  for (auto const& [most, file] :
       {std::pair{std::int64_t{5'000'000'000}, "adapter_model.safetensors"},
        {1000, "adapter_model.safetensors.index.json"}}) {
    ScratchDirectory dir;
    auto const write = [&](checkpoint::WeightsOf what) {
      write_all_parts(*checkpoint::make_sharded_safetensors_writer(dir.path(), headers, aliases,
                                                                   Dtype::bf16, most, what),
                      all_values());
    };
    write(checkpoint::WeightsOf::model);
    EXPECT_EQ(SafetensorsReader(dir.path()).find("head"), nullptr) << "transformers ties it";
    write(checkpoint::WeightsOf::adapter);
    SafetensorsReader const reader(dir / file);
    expect_values(reader, Dtype::bf16);
    ASSERT_EQ(reader.entries().size(), headers.size() + aliases.size());
    auto const values_of = [&](std::string const& name, std::int64_t numel) {
      std::vector<float> values(static_cast<std::size_t>(numel));
      reader.read_as_fp32(name, 0, numel, values.data());
      return values;
    };
    for (auto const& [name, tensor] : aliases) {
      auto const& original = headers[tensor];
      EXPECT_EQ(reader.find(name)->shape, original.shape);
      EXPECT_EQ(values_of(name, original.numel()), values_of(original.name, original.numel()));
    }
  }
}

TEST(SafetensorsWriter, AnUnfinishedFileLeavesNothing) {
  ScratchDirectory dir;
  {
    auto const writer =
        checkpoint::make_safetensors_writer(dir / "m.safetensors", headers, Dtype::fp32);
    std::vector<float> const few(20);
    writer->write(few.data(), 20);
    EXPECT_FALSE(fs::exists(dir / "m.safetensors"));
    EXPECT_THROW(writer->finish(), InternalError);
  }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(SafetensorsWriter, OtherTypesAreRefused) {
  ScratchDirectory dir;
  EXPECT_THROW(checkpoint::make_safetensors_writer(dir / "m.safetensors", headers, Dtype::int32),
               ConfigError);
}

}  // namespace
