#include "tessera/checkpoint/interchange/safetensors_reader.hpp"

#include "fixture.hpp"

using namespace tessera;
using namespace tessera::test;
using checkpoint::SafetensorsReader;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

/// A file from a header's text and a number of bytes of data.
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
              HasSubstr("5 elements from 20 of tensor f32, which has 24"));
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
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "at most 95.4 MiB are read"},
      {std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10), "at most 95.4 MiB are read"},
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
  write_file(dir / "model.safetensors.index.json",
             R"({"weight_map": {"t": "a.safetensors", "u": "a.safetensors"}})");
  EXPECT_EQ(SafetensorsReader(dir.path()).entries().size(), 1u) << "who needs u says so";
  fs::create_directory(dir / "b.safetensors");
  EXPECT_THAT(index_error(R"({"t": "b.safetensors"})"), HasSubstr("not a regular file"));
  write_file(dir / "c.safetensors", read_file(dir / "a.safetensors"));
  EXPECT_THAT(index_error(R"({"t": "a.safetensors", "v": "c.safetensors"})"), HasSubstr("is in"));
  write_file(dir / "model.safetensors.index.json", R"({"weight_map": {"t": "a.safetensors"}})");
  EXPECT_EQ(SafetensorsReader(dir.path()).entries().size(), 1u);
}

}  // namespace
