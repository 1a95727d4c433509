#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/checkpoint/interchange/safetensors_reader.hpp"

#include <fcntl.h>

#include <cmath>

#include "fixture.hpp"
#include "tessera/checkpoint/interchange/safetensors_writer.hpp"
#include "tessera/checkpoint/interchange/tensor_writer.hpp"
#include "tessera/checkpoint/interchange/torch_writer.hpp"

using namespace tessera;
using namespace tessera::test;
using checkpoint::SafetensorsReader;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

/// A file from a header's text and so many bytes of data.
std::string file_of(std::string const& header, std::size_t data_bytes) {
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(header.size() >> (8 * i)));
  return out + header + std::string(data_bytes, '\1');
}

/// tests/oracles/safetensors_reference.py
TEST(SafetensorsReader, ReadsWhatThePythonPackageWrote) {
  SafetensorsReader const reader(fs::path(TESSERA_TEST_DATA) /
                                 "oracles/safetensors_reference.safetensors");
  EXPECT_EQ(reader.entries().size(), 5u);
  for (auto const* name : {"f64", "f32", "f16", "bf16"}) {
    ASSERT_NE(reader.find(name), nullptr);
    EXPECT_EQ(reader.find(name)->shape, (std::vector<std::int64_t>{4, 6}));
    std::vector<float> values(10);
    reader.read_as_fp32(name, 5, 10, values.data());
    for (int i = 0; i < 10; ++i)
      EXPECT_EQ(values[static_cast<std::size_t>(i)], 0.5f * static_cast<float>(i + 5) - 3.0f)
          << name;
  }
  ASSERT_NE(reader.find("odd name \u00e9\n"), nullptr);
  float value = 0;
  EXPECT_THAT(
      message_of<DataError>([&] { reader.read_as_fp32("odd name \u00e9\n", 0, 1, &value); }),
      HasSubstr("is I64"));
  EXPECT_THAT(message_of<DataError>([&] { reader.read_as_fp32("f32", 20, 5, &value); }),
              HasSubstr("elements 20 to 25 of tensor f32, which has 24"));
  EXPECT_THAT(message_of<DataError>([&] { reader.read_as_fp32("f32", INT64_MAX, 1, &value); }),
              HasSubstr("which has 24"));
  EXPECT_THAT(message_of<DataError>([&] { reader.read_as_fp32("none", 0, 1, &value); }),
              HasSubstr("has no tensor none"));
}

TEST(SafetensorsReader, HostileFilesAreRefused) {
  ScratchDirectory dir;
  struct Case {
    std::string bytes, message;
  };
  auto const entry = [](std::string const& fields) {
    return file_of("{\"t\": {" + fields + "}}", 8);
  };
  std::string const f32 = R"("dtype": "F32", "shape": [2], "data_offsets": [0, 8])";
  std::string deep = "{\"__metadata__\": ";
  for (int i = 0; i < 100; ++i) deep += "{\"a\":";
  Case const cases[] = {
      {"", "not a safetensors file"},
      {"1234567", "not a safetensors file"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "at most 100000000 are read"},
      {std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10), "at most 100000000 are read"},
      {std::string("\x64\0\0\0\0\0\0\0{}", 10), "truncated"},
      {file_of("[]", 0), "does not start with '{'"},
      {file_of(" {}", 0), "does not start with '{'"},
      {file_of("{", 0), "too early"},
      {file_of("{} x", 0), "text follows the end"},
      {file_of(deep, 0), "expected"},
      {file_of("{}", 4), "longer than it says"},
      {file_of("{\"t\": {" + f32 + "}}", 7), "truncated"},
      {file_of("{\"t\": {" + f32 + "}}", 9), "longer than it says"},
      {file_of("{\"t\": {" + f32 + "}, \"t\": {" + f32 + "}}", 8), "tensor t is listed twice"},
      {file_of("{\"t\": {" + f32 + "}, \"u\": {" + f32 + "}}", 8), "overlap or leave a hole"},
      {file_of(
           "{\"t\": {" + f32 + R"(}, "u": {"dtype": "U8", "shape": [0], "data_offsets": [4, 4]}})",
           8),
       "overlap or leave a hole"},
      {entry(R"("dtype": "F32", "shape": [1], "data_offsets": [4, 8])"), "overlap or leave a hole"},
      {entry(R"("dtype": "F32", "shape": [2], "data_offsets": [8, 0])"), "wrong data_offsets"},
      {entry(R"("dtype": "F32", "shape": [2], "data_offsets": [-8, 0])"), "wrong data_offsets"},
      {entry(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8])"), "wrong data_offsets"},
      {entry(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 99999999999999999999])"),
       "does not fit in 64 bits"},
      {entry(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 8.0])"), "expected an integer"},
      {entry(R"("dtype": "F32", "shape": [3], "data_offsets": [0, 8])"), "8 bytes for 3 elements"},
      {entry(R"("dtype": "F32", "shape": [-2], "data_offsets": [0, 8])"), "a dimension is -2"},
      {entry(R"("dtype": "F32", "shape": [4294967296, 4294967296, 2], "data_offsets": [0, 8])"),
       "too large"},
      {entry(R"("dtype": "F32", "shape": [4611686018427387905], "data_offsets": [0, 4])"),
       "4 bytes for"},
      {entry(R"("dtype": "Q4_0", "shape": [2], "data_offsets": [0, 8])"), "unknown dtype 'Q4_0'"},
      {entry(R"("dtype": "F32", "shape": [2])"), "lacks dtype, shape or data_offsets"},
      {entry(R"("dtype": "F32", "dtype": "I32", "shape": [2], "data_offsets": [0, 8])"),
       "'dtype' is listed twice"},
      {entry(f32 + R"(, "extra": 1)"), "unknown field 'extra'"},
      {file_of("{\"t\xff\": {" + f32 + "}}", 8), "not valid UTF-8"},
      {file_of("{\"t\n\": {" + f32 + "}}", 8), "control character"},
      {file_of("{\"\\ud800\": {" + f32 + "}}", 8), "surrogate"},
      {file_of(R"({"__metadata__": {"a": 1}})", 0), "expected '\"'"},
  };
  for (auto const& c : cases) {
    write_file(dir / "x.safetensors", c.bytes);
    EXPECT_THAT(message_of<DataError>([&] { SafetensorsReader reader(dir / "x.safetensors"); }),
                AllOf(HasSubstr("x.safetensors"), HasSubstr(c.message)))
        << c.bytes;
  }
}

TEST(SafetensorsReader, AnIndexNamesPlainFilesOnly) {
  ScratchDirectory dir;
  write_file(dir / "a.safetensors",
             file_of(R"({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 8));
  auto const index_error = [&](std::string const& map) {
    write_file(dir / "model.safetensors.index.json",
               "{\"metadata\": {\"x\": [1, {}]}, \"weight_map\": " + map + "}");
    return message_of<DataError>([&] { SafetensorsReader reader(dir.path()); });
  };
  for (auto const* name :
       {"../a.safetensors", "/etc/passwd", ".hidden", "", "sub/a.safetensors", "a\\u0000b"})
    EXPECT_THAT(index_error(concat("{\"t\": \"", name, "\"}")), HasSubstr("only a plain file name"))
        << name;
  EXPECT_THAT(index_error(R"({"t": "a.safetensors", "t": "a.safetensors"})"),
              HasSubstr("is listed twice"));
  EXPECT_THAT(index_error(R"({"u": "a.safetensors"})"),
              HasSubstr("tensor u is not in a.safetensors"));
  fs::create_directory(dir / "b.safetensors");
  EXPECT_THAT(index_error(R"({"t": "b.safetensors"})"), HasSubstr("not a regular file"));
  write_file(dir / "c.safetensors", read_file(dir / "a.safetensors"));
  EXPECT_THAT(index_error(R"({"t": "a.safetensors", "v": "c.safetensors"})"), HasSubstr("is in"));
  write_file(dir / "model.safetensors.index.json", R"({"weight_map": {"t": "a.safetensors"}})");
  EXPECT_EQ(SafetensorsReader(dir.path()).entries().size(), 1u);
}

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
  write_all_parts(
      *checkpoint::make_sharded_safetensors_writer(dir.path(), headers, Dtype::fp32, 5'000'000'000),
      all_values());
  EXPECT_TRUE(fs::exists(dir / "model.safetensors"));
  EXPECT_FALSE(fs::exists(dir / "model.safetensors.index.json"));
  // sharded over the single one: no trace of it may stay, or a loader would prefer it
  auto const files = write_all_parts(
      *checkpoint::make_sharded_safetensors_writer(dir.path(), headers, Dtype::bf16, 1000),
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

class Weights : public ::testing::Test {
 protected:
  enum class As { safetensors, torch };
  void write(std::vector<checkpoint::TensorHeader> const& tensors, As format = As::safetensors) {
    auto const writer =
        format == As::torch
            ? checkpoint::make_torch_writer(dir / "pytorch_model.bin", tensors, {}, Dtype::fp32)
            : checkpoint::make_safetensors_writer(dir / "model.safetensors", tensors, Dtype::fp32);
    for (auto const& t : tensors) {
      std::vector<float> const values(static_cast<std::size_t>(t.numel()),
                                      static_cast<float>(t.name.size()));
      writer->write(values.data(), t.numel());
    }
    writer->finish();
  }
  void check_layout(As format) {
    write(toy_tensors(), format);
    checkpoint::ModelWeights const weights(dir.path());
    std::vector<int> descriptors;
    for (auto const& file : weights.files()) descriptors.push_back(::open(file.c_str(), O_RDONLY));
    checkpoint::ModelWeights const others(weights.layout(), descriptors);
    for (auto const& file : weights.files()) fs::remove(file);
    others.require(toy_units());
    for (auto const& unit : toy_units())
      for (auto const& p : unit.parameters) {
        std::vector<float> a(static_cast<std::size_t>(p.numel())), b(a.size(), -1.0f);
        weights.fill(p, 0, p.numel(), a.data());
        others.fill(p, 0, p.numel(), b.data());
        EXPECT_EQ(a, b) << p.name;
      }
  }
  static std::vector<checkpoint::TensorHeader> toy_tensors() {
    std::vector<checkpoint::TensorHeader> out;
    for (auto const& unit : toy_units())
      for (auto const& p : unit.parameters) out.push_back({p.name, p.shape});
    return out;
  }
  ScratchDirectory dir;
};

TEST_F(Weights, AreFoundUnderTheirNames) {
  write(toy_tensors());
  checkpoint::ModelWeights const weights(dir.path());
  weights.require(toy_units());
  float value = 0;
  weights.fill(toy_units()[2].parameters[2], 0, 1, &value);
  EXPECT_EQ(value, 5.0f);
}

/// Another process of the node reads no header and opens nothing.
TEST_F(Weights, AreTheSameFromTheirLayoutAndOpenFiles) {
  for (auto const format : {As::safetensors, As::torch}) check_layout(format);
}

TEST_F(Weights, AreFoundWithoutThePrefixAndUnderAnAlias) {
  auto tensors = toy_tensors();
  for (auto& t : tensors)
    if (t.name.rfind("transformer.", 0) == 0) t.name = t.name.substr(12);
  tensors[0].name = "lm_head.weight";
  tensors.push_back({"h.0.attn.bias", {1, 1, 8, 8}});  // a buffer of old files
  write(tensors);
  checkpoint::ModelWeights const weights(dir.path());
  weights.require(toy_units());
  float value = 0;
  weights.fill(toy_units()[0].parameters[0], 100, 1, &value);
  EXPECT_EQ(value, 14.0f);
}

TEST_F(Weights, WhatIsMissingIsListed) {
  auto tensors = toy_tensors();
  tensors[1].shape = {24, 16};
  tensors.pop_back();
  write(tensors);
  EXPECT_THAT(
      message_of<DataError>([&] { checkpoint::ModelWeights(dir.path()).require(toy_units()); }),
      AllOf(HasSubstr("transformer.wpe.weight has shape [24, 16], the model wants [16, 24]"),
            HasSubstr("scale is missing")));
}

TEST_F(Weights, WhatIsNoModelDirectoryIsRefused) {
  EXPECT_THAT(message_of<IoError>([&] { checkpoint::ModelWeights weights(dir.path()); }),
              HasSubstr("has neither model.safetensors"));
  write_file(dir / "pytorch_model.bin", "x");
  EXPECT_THAT(message_of<DataError>([&] { checkpoint::ModelWeights weights(dir.path()); }),
              HasSubstr("pytorch_model.bin has 1 bytes"));
  EXPECT_THAT(message_of<IoError>([&] { checkpoint::ModelWeights weights(dir / "no"); }),
              HasSubstr("is not a directory"));
}

}  // namespace
