/// Other people's programs read what we write: the HDF5 tools, and Python's h5py, safetensors,
/// torch and transformers.
#include <cstdio>
#include <cstdlib>

#include "fixture.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/checkpoint/tools/convert.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::HasSubstr;

namespace {

struct Output {
  int status = -1;
  std::string text;
};

Output run(std::string const& command) {
  Output out;
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[4096];
  while (std::size_t const n = std::fread(buffer, 1, sizeof buffer, pipe))
    out.text.append(buffer, n);
  int const status = pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}

bool has_program(std::string const& name) { return run("command -v " + name).status == 0; }

/// A one-block GPT-2 that transformers loads.
std::vector<memory::UnitSpec> gpt2_units() {
  auto const p = [](std::string name, std::vector<std::int64_t> shape,
                    std::vector<std::string> aliases = {}) {
    memory::ParameterSpec spec;
    spec.name = "transformer." + name;
    spec.shape = std::move(shape);
    spec.aliases = std::move(aliases);
    return spec;
  };
  return {
      {"embedding", {p("wte.weight", {101, 24}, {"lm_head.weight"}), p("wpe.weight", {16, 24})}},
      {"block.0",
       {p("h.0.ln_1.weight", {24}), p("h.0.ln_1.bias", {24}), p("h.0.attn.c_attn.weight", {24, 72}),
        p("h.0.attn.c_attn.bias", {72}), p("h.0.attn.c_proj.weight", {24, 24}),
        p("h.0.attn.c_proj.bias", {24}), p("h.0.ln_2.weight", {24}), p("h.0.ln_2.bias", {24}),
        p("h.0.mlp.c_fc.weight", {24, 96}), p("h.0.mlp.c_fc.bias", {96}),
        p("h.0.mlp.c_proj.weight", {96, 24}), p("h.0.mlp.c_proj.bias", {24})}},
      {"head", {p("ln_f.weight", {24}), p("ln_f.bias", {24})}}};
}

class Readers : public ::testing::Test {
 protected:
  Readers() : step(save(dir / "checkpoints", 3)) {}
  static fs::path save(fs::path const& checkpoints, int ranks) {
    auto const units = gpt2_units();
    zero::PartitionPlan const plan(units, ranks);
    std::vector<RankState> states;
    std::vector<checkpoint::StateViews> views;
    for (int r = 0; r < ranks; ++r) states.emplace_back(plan, r).fill(1);
    for (auto& state : states) views.push_back(state.views());
    auto request = request_for(checkpoints, 1, plan, units);
    request.model_config = ConfigTree::parse(
        R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 24, "n_layer": 1,
      "n_head": 2, "vocab_size": 101, "n_positions": 16, "bos_token_id": 0, "eos_token_id": 0})",
        "test");
    return checkpoint::save_all(request, views).directory;
  }
  ScratchDirectory dir;
  fs::path step;
};

TEST_F(Readers, H5lsAndH5dumpReadShardsAndView) {
  if (!has_program("h5ls") || !has_program("h5dump"))
    GTEST_SKIP() << "h5ls and h5dump are not installed (hdf5-tools)";
  auto const shards = run(concat("h5ls -r ", (step / "shard_00001.h5").string()));
  EXPECT_EQ(shards.status, 0) << shards.text;
  EXPECT_THAT(shards.text, HasSubstr("/exp_avg_sq/transformer.wte.weight Dataset {960}"));
  auto const header = run(concat("h5dump -A ", (step / "shard_00001.h5").string()));
  EXPECT_EQ(header.status, 0) << header.text;
  EXPECT_THAT(header.text, HasSubstr("ATTRIBUTE \"world_size\""));
  auto const dump =
      run(concat("h5dump -d /fp32/transformer.ln_f.bias -m '%.7g' ", (step / "view.h5").string()));
  EXPECT_EQ(dump.status, 0) << dump.text;
  char first[32];
  std::snprintf(first, sizeof first, "%.7g",
                static_cast<double>(element("transformer.ln_f.bias", "fp32", 0, 1)));
  EXPECT_THAT(dump.text, HasSubstr(concat("(0): ", first, ",")));
  // the view names its sources without a directory: both may be moved together
  fs::rename(dir / "checkpoints", dir / "moved");
  auto const moved = run(concat("h5dump -d /fp32/transformer.ln_f.bias -m '%.7g' ",
                                (dir / "moved" / step.filename() / "view.h5").string()));
  EXPECT_THAT(moved.text, HasSubstr(concat("(0): ", first, ",")));
}

TEST_F(Readers, H5dumpReadsSharedAndCompressedShards) {
  if (!has_program("h5dump")) GTEST_SKIP() << "h5dump is not installed (hdf5-tools)";
  checkpoint::convert({.source = step,
                       .destination = dir / "one",
                       .ranks_per_file = 3,
                       .compression = checkpoint::Compression::shuffle_gzip});
  checkpoint::convert({.source = step, .destination = dir / "pairs", .ranks_per_file = 2});
  // the elements without the file's name; a shared dataset is one, as the tensor is
  auto const elements = [](fs::path const& file) {
    auto const dump = run(concat(
        "h5dump -d /exp_avg/transformer.wte.weight -A 0 -y -w 20 -m '%.7g' ", file.string()));
    EXPECT_EQ(dump.status, 0) << dump.text;
    return dump.text.substr(dump.text.find("DATA {"));
  };
  std::string const packed = elements(dir / "one/shard_00000.h5");
  EXPECT_EQ(packed.substr(0, 5000), elements(dir / "pairs/shard_00000.h5").substr(0, 5000));
  ASSERT_GT(packed.size(), 5000u);
  char first[32];
  std::snprintf(first, sizeof first, "%.7g",
                static_cast<double>(element("transformer.wte.weight", "exp_avg", 0, 1)));
  EXPECT_THAT(packed, HasSubstr(first));
  auto const header = run(concat("h5dump -p -H -d /exp_avg/transformer.wte.weight ",
                                 (dir / "one/shard_00000.h5").string()));
  EXPECT_THAT(header.text, ::testing::AllOf(HasSubstr("SHUFFLE"), HasSubstr("DEFLATE { LEVEL 4 }"),
                                            HasSubstr("part_ranks")));
}

TEST_F(Readers, PythonLoadsEveryFormatAndFindsTheSameValues) {
  char const* const from_environment = std::getenv("TESSERA_ORACLE_PYTHON");
  std::string const python = from_environment ? from_environment : "python3";
  checkpoint::consolidate({.checkpoint = dir.path(), .output = dir / "single.safetensors"});
  checkpoint::consolidate({.checkpoint = dir.path(), .output = dir / "single.bin"});
  checkpoint::consolidate({.checkpoint = dir.path(), .output = dir / "single.h5"});
  checkpoint::consolidate(
      {.checkpoint = dir.path(), .output = dir / "half.h5", .dtype = Dtype::bf16});
  checkpoint::consolidate(
      {.checkpoint = dir.path(), .output = dir / "half.bin", .dtype = Dtype::bf16});
  checkpoint::consolidate(
      {.checkpoint = dir.path(), .output = dir / "half.safetensors", .dtype = Dtype::bf16});
  checkpoint::consolidate(
      {.checkpoint = dir.path(), .output = dir / "hf", .max_shard_bytes = 12000});
  checkpoint::consolidate({.checkpoint = dir.path(), .output = dir / "hf-bin/pytorch_model.bin"});
  fs::copy_file(dir / "hf/config.json", dir / "hf-bin/config.json");
  checkpoint::convert({.source = step, .destination = dir / "pairs", .ranks_per_file = 2});
  checkpoint::convert({.source = step,
                       .destination = dir / "packed",
                       .ranks_per_file = 2,
                       .compression = checkpoint::Compression::shuffle_gzip});
  auto const wide = save(dir / "wide", 64);  // its view has long lists of sources
  auto const result =
      run(concat(python, " ", TESSERA_TEST_DATA, "/checkpoint/read_model.py ", dir.path().string(),
                 " ", step.string(), " ", (dir / "pairs").string(), " ", (dir / "packed").string(),
                 " ", wide.string()));
  if (result.status == 77)
    GTEST_SKIP() << result.text << " Set TESSERA_ORACLE_PYTHON to a Python that has it.";
  EXPECT_EQ(result.status, 0) << result.text;
}

}  // namespace
