#include "tessera/checkpoint/tools/consolidate.hpp"

#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>

#include "fixture.hpp"
#include "processes.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/interchange/safetensors_reader.hpp"
#include "tessera/core/config_tree.hpp"

using namespace tessera;
using namespace tessera::test;
using checkpoint::SafetensorsReader;
using ::testing::HasSubstr;

namespace {

void expect_tensors(SafetensorsReader const& reader, std::int64_t step,
                    std::string const& state = "fp32", float tolerance = 0) {
  std::size_t count = 0;
  for (auto const& unit : toy_units())
    for (auto const& p : unit.parameters) {
      ASSERT_NE(reader.find(p.name), nullptr) << p.name;
      EXPECT_EQ(reader.find(p.name)->shape, p.shape);
      std::vector<float> values(static_cast<std::size_t>(p.numel()));
      reader.read_as_fp32(p.name, 0, p.numel(), values.data());
      for (std::int64_t i = 0; i < p.numel(); ++i) {
        float const expected = element(p.name, state, i, step);
        ASSERT_NEAR(values[static_cast<std::size_t>(i)], expected, tolerance * std::abs(expected))
            << p.name << " " << i;
      }
      ++count;
    }
  EXPECT_EQ(reader.entries().size(), count);
}

TEST(Consolidate, IntoAHuggingFaceDirectory) {
  ScratchDirectory dir;
  save_toy(dir / "checkpoints", 5, 3);
  auto const report = checkpoint::consolidate({.checkpoint = dir.path(), .output = dir / "model"});
  EXPECT_EQ(report.step, 5);
  EXPECT_EQ(report.tensors, 8);
  EXPECT_EQ(report.files,
            (std::vector<fs::path>{dir / "model/model.safetensors", dir / "model/config.json"}));
  expect_tensors(SafetensorsReader(dir / "model"), 5);
  EXPECT_EQ(ConfigTree::read(dir / "model/config.json").at("dtype").as_string(), "float32");
}

TEST(Consolidate, InShardsAndSixteenBits) {
  ScratchDirectory dir;
  save_toy(dir.path(), 5, 3);
  checkpoint::consolidate({.checkpoint = dir.path(),
                           .tag = "5",
                           .output = dir / "model",
                           .max_shard_bytes = 4000,
                           .dtype = Dtype::bf16});
  EXPECT_TRUE(fs::exists(dir / "model/model.safetensors.index.json"));
  expect_tensors(SafetensorsReader(dir / "model"), 5, "fp32", 1.0f / 256);
  EXPECT_EQ(ConfigTree::read(dir / "model/config.json").at("dtype").as_string(), "bfloat16");
}

TEST(Consolidate, IntoOneFileAndOfAMoment) {
  ScratchDirectory dir;
  save_toy(dir.path(), 5, 4);
  checkpoint::consolidate(
      {.checkpoint = dir.path(), .output = dir / "deep/er/m.safetensors", .state = "exp_avg_sq"});
  expect_tensors(SafetensorsReader(dir / "deep/er/m.safetensors"), 5, "exp_avg_sq");
  EXPECT_THAT(message_of<DataError>([&] {
                checkpoint::consolidate(
                    {.checkpoint = dir.path(), .output = dir / "x.bin", .state = "momentum"});
              }),
              HasSubstr("has no state 'momentum'"));
}

TEST(Consolidate, TheTorchArchiveIsAnIntactZip) {
  ScratchDirectory dir;
  save_toy(dir.path(), 5, 2);
  checkpoint::consolidate({.checkpoint = dir.path(), .output = dir / "pytorch_model.bin"});
  // Python's zipfile compares the CRC of every entry
  std::string const script =
      "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; "
      "assert all(i.compress_type == zipfile.ZIP_STORED for i in z.infolist()); "
      "z.extractall(sys.argv[2])";
  std::string const command =
      concat("'", TESSERA_TEST_PYTHON, "' -c '", script, "' '",
             (dir / "pytorch_model.bin").string(), "' '", (dir / "unpacked").string(), "'");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  auto const content = [&](std::string const& name) {
    auto const file = dir / "unpacked/pytorch_model" / name;
    return fs::exists(file) ? read_file(file) : std::string("absent");
  };
  EXPECT_EQ(content("version"), "3\n");
  EXPECT_EQ(content("byteorder"), "little");
  EXPECT_THAT(content("data.pkl"), HasSubstr("lm_head.weight"));
  std::string const storage = content("data/1");
  ASSERT_EQ(storage.size(), 16u * 24 * 4);
  for (std::size_t i = 0; i < 16 * 24; ++i) {
    float value = 0;
    std::memcpy(&value, storage.data() + 4 * i, 4);
    EXPECT_EQ(value, element("transformer.wpe.weight", "fp32", static_cast<std::int64_t>(i), 5));
  }
  EXPECT_EQ(content("data/8"), "absent");
  // torch maps storages: each starts at a multiple of 64 bytes
  std::string const bytes = read_file(dir / "pytorch_model.bin");
  EXPECT_EQ(bytes.find(storage) % 64, 0u);
}

TEST(Consolidate, AFullDiskLeavesNothing) {
  ScratchDirectory dir;
  save_toy(dir.path(), 5, 2);
  for (auto const* name : {"m.safetensors", "m.bin", "m.h5", "model"}) {
    pid_t const child = fork();
    if (child == 0) {
      std::signal(SIGXFSZ, SIG_IGN);
      rlimit const limit{3000, 3000};
      setrlimit(RLIMIT_FSIZE, &limit);
      try {
        checkpoint::consolidate({.checkpoint = dir.path(), .output = dir / "out" / name});
      } catch (IoError const& e) {
        _exit(std::string(e.what()).find("File too large") != std::string::npos ? 0 : 2);
      }
      _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << name << ": " << status;
    for (auto const& entry : fs::recursive_directory_iterator(dir / "out"))
      EXPECT_TRUE(entry.is_directory()) << entry.path();
  }
}

/// Whether all tensors' elements of the step are in a file, each in one run.
bool holds_tensors(std::string const& file, std::int64_t step) {
  for (auto const& unit : toy_units())
    for (auto const& p : unit.parameters) {
      std::string bytes;
      for (std::int64_t i = 0; i < p.numel(); ++i) {
        float const value = element(p.name, "fp32", i, step);
        bytes.append(reinterpret_cast<char const*>(&value), sizeof value);
      }
      if (file.find(bytes) == std::string::npos) return false;
    }
  return true;
}

/// What a loader finds: the step of the model at @p output, 0 when there is none. Fails when it is
/// part of one.
std::int64_t step_of_model(fs::path const& output) {
  if (output.extension() == ".bin" || output.extension() == ".h5") {
    if (!fs::exists(output)) return 0;
    std::string const file = read_file(output);
    std::int64_t const step = holds_tensors(file, 5) ? 5 : 6;
    EXPECT_TRUE(step == 5 || holds_tensors(file, 6));
    return step;
  }
  bool const there = fs::is_directory(output)
                         ? fs::exists(output / "model.safetensors") ||
                               fs::exists(output / "model.safetensors.index.json")
                         : fs::exists(output);
  if (!there) return 0;
  SafetensorsReader const reader(output);
  float first = 0;
  reader.read_as_fp32("transformer.wte.weight", 0, 1, &first);
  std::int64_t const step = first == element("transformer.wte.weight", "fp32", 0, 5) ? 5 : 6;
  expect_tensors(reader, step);
  return step;
}

std::size_t files_in(fs::path const& directory) {
  return static_cast<std::size_t>(std::distance(fs::recursive_directory_iterator(directory),
                                                fs::recursive_directory_iterator()));
}

/// Killed at any call, the model under the final name is the old one, the new one or none; the next
/// run removes what is left.
TEST(Consolidate, AKilledRunLeavesNoHalfModel) {
  ScratchDirectory dir;
  for (int step : {5, 6}) save_toy(dir / concat("run", step), step, 2);
  for (auto const* name : {"m.safetensors", "m.bin", "m.h5", "shards"}) {
    fs::path const place = dir / "out", output = place / name;
    auto const write = [&](int step) {
      checkpoint::consolidate(
          {.checkpoint = dir / concat("run", step), .output = output, .max_shard_bytes = 8000});
    };
    fs::remove_all(place);
    write(5);
    std::size_t const files = files_in(place);
    bool seen[7] = {};
    int const stride = fs::is_directory(output)
                           ? 1
                           : 3;  // several files that become visible together: every moment
    for (int call = 1;; call += stride) {
      End const end = run_until_call(call, [&] { write(6); });
      if (end == End::not_allowed) GTEST_SKIP() << "tracing a child process is not allowed here";
      seen[step_of_model(output)] = true;
      write(5);
      EXPECT_EQ(step_of_model(output), 5) << name << ", killed at call " << call;
      EXPECT_EQ(files_in(place), files) << name << ", killed at call " << call;
      if (end == End::finished) break;
    }
    EXPECT_TRUE(seen[5] && seen[6]) << name;
  }
}

/// 300 MB of weights in one tensor of 240 MB and many small ones; the bound holds for any size
/// because all buffers are fixed.
TEST(Consolidate, MemoryStaysBelow256MiB) {
  ScratchDirectory dir;
  memory::UnitSpec unit{"all", {}};
  auto const add = [&](std::string name, std::int64_t rows) {
    memory::ParameterSpec spec;
    spec.name = std::move(name);
    spec.shape = {rows, 1000};
    unit.parameters.push_back(std::move(spec));
  };
  add("embedding", 60000);
  for (int i = 0; i < 300; ++i) add(concat("h.", i), 50);
  std::vector<memory::UnitSpec> const units{unit};
  zero::PartitionPlan const plan(units, 2);
  peak_mib([&] {
    std::vector<RankState> states;
    std::vector<checkpoint::StateViews> views;
    for (int r = 0; r < 2; ++r) states.emplace_back(plan, r, std::vector<std::string>{"fp32"});
    for (auto& state : states) views.push_back(state.views());
    checkpoint::save_all(request_for(dir.path(), 1, plan, units), views);
  });
  ASSERT_TRUE(checkpoint::find_latest(dir.path()));
  for (auto const* name : {"m.safetensors", "m.bin", "m.h5", "model"}) {
    double const mib = peak_mib(
        [&] { checkpoint::consolidate({.checkpoint = dir.path(), .output = dir / name}); });
    EXPECT_LT(mib, 256) << name;
    EXPECT_GE(fs::is_directory(dir / name) ? fs::file_size(dir / name / "model.safetensors")
                                           : fs::file_size(dir / name),
              300'000'000u);
    fs::remove_all(dir / name);
  }
}

}  // namespace
