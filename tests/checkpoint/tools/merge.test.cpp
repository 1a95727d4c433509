#include "tessera/checkpoint/tools/merge.hpp"

#include "fixture.hpp"
#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/checkpoint/interchange/tensor_writer.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::HasSubstr;

namespace {

/// A matrix of either layout with an adapter of rank 2, and a bias.
std::vector<memory::UnitSpec> adapted_units(checkpoint::AdaptedLayout layout) {
  bool const out_in = layout == checkpoint::AdaptedLayout::out_in;
  memory::UnitSpec unit{"block.0", {}};
  auto const add = [&](std::string name, std::vector<std::int64_t> shape, bool is_adapter) {
    memory::ParameterSpec spec;
    spec.name = std::move(name);
    spec.shape = std::move(shape);
    spec.is_adapter = is_adapter;
    unit.parameters.push_back(std::move(spec));
  };
  add("h.0.fc.weight", out_in ? std::vector<std::int64_t>{3, 5} : std::vector<std::int64_t>{5, 3},
      false);
  add("h.0.fc.bias", {3}, false);
  add("base_model.model.h.0.fc.lora_A.weight", {2, 5}, true);
  add("base_model.model.h.0.fc.lora_B.weight", {3, 2}, true);
  return {unit};
}

float value_of(std::string const& name, std::int64_t i) {
  return static_cast<float>((name.size() * 7 + static_cast<std::size_t>(i) * 13) % 17) / 8.0f -
         1.0f;
}

void write(fs::path const& to, std::vector<memory::UnitSpec> const& units, bool adapters) {
  std::vector<checkpoint::TensorHeader> headers;
  std::vector<float> values;
  for (auto const& p : units[0].parameters) {
    if (p.is_adapter != adapters) continue;
    headers.push_back({p.name, p.shape});
    for (std::int64_t i = 0; i < p.numel(); ++i) values.push_back(value_of(p.name, i));
  }
  auto const writer = checkpoint::make_safetensors_writer(to, headers, Dtype::fp32);
  writer->write(values.data(), static_cast<std::int64_t>(values.size()));
  writer->finish();
}

class Merge : public ::testing::TestWithParam<checkpoint::AdaptedLayout> {
 protected:
  Merge() : dir("merge"), units(adapted_units(GetParam())) {
    fs::create_directories(dir / "base");
    write(dir / "base/model.safetensors", units, false);
    write(dir / "adapter_model.safetensors", units, true);
  }
  checkpoint::MergeOptions options() const {
    return {.model = dir / "base",
            .adapter_file = dir / "adapter_model.safetensors",
            .output = dir / "merged",
            .units = units,
            .scale = 1.5,
            .layout = GetParam(),
            .model_config = ConfigTree::parse(R"({"model_type": "gpt2"})", "config")};
  }

  ScratchDirectory dir;
  std::vector<memory::UnitSpec> units;
};

TEST_P(Merge, AddsTheProductOfTheAdapter) {
  auto const report = checkpoint::merge_adapter(options());
  EXPECT_EQ(report.tensors, 2);
  EXPECT_EQ(report.adapted, 1);
  checkpoint::ModelWeights const merged(dir / "merged");
  std::vector<float> matrix(15), bias(3);
  merged.fill(units[0].parameters[0], 0, 15, matrix.data());
  merged.fill(units[0].parameters[1], 0, 3, bias.data());
  auto const& p = units[0].parameters;
  for (std::int64_t out = 0; out < 3; ++out) {
    EXPECT_EQ(bias[static_cast<std::size_t>(out)], value_of(p[1].name, out));
    for (std::int64_t in = 0; in < 5; ++in) {
      double delta = 0.0;
      for (std::int64_t r = 0; r < 2; ++r)
        delta += 1.5 * value_of(p[3].name, out * 2 + r) * value_of(p[2].name, r * 5 + in);
      auto const at = GetParam() == checkpoint::AdaptedLayout::out_in ? out * 5 + in : in * 3 + out;
      EXPECT_NEAR(matrix[static_cast<std::size_t>(at)], value_of(p[0].name, at) + delta, 1e-6);
    }
  }
  EXPECT_THAT(read_file(dir / "merged/config.json"), HasSubstr("\"float32\""));
}

/// DoRA: rows of the sum have the norms of the magnitudes.
TEST_P(Merge, MagnitudesAreTheNormsOfTheRows) {
  memory::ParameterSpec magnitudes;
  magnitudes.name = "base_model.model.h.0.fc.lora_magnitude_vector";
  magnitudes.shape = {3};
  magnitudes.is_adapter = true;
  checkpoint::merge_adapter(options());
  std::vector<float> plain(15), merged(15);
  checkpoint::ModelWeights(dir / "merged").fill(units[0].parameters[0], 0, 15, plain.data());
  units[0].parameters.push_back(magnitudes);
  write(dir / "adapter_model.safetensors", units, true);
  auto again = options();
  again.output = dir / "with_magnitudes";
  EXPECT_EQ(checkpoint::merge_adapter(again).adapted, 1);
  checkpoint::ModelWeights(again.output).fill(units[0].parameters[0], 0, 15, merged.data());
  for (std::size_t out = 0; out < 3; ++out) {
    auto const at = [&](std::size_t in) {
      return GetParam() == checkpoint::AdaptedLayout::out_in ? out * 5 + in : in * 3 + out;
    };
    double squares = 0.0;
    for (std::size_t in = 0; in < 5; ++in)
      squares += static_cast<double>(plain[at(in)]) * plain[at(in)];
    double const factor =
        value_of(magnitudes.name, static_cast<std::int64_t>(out)) / std::sqrt(squares);
    for (std::size_t in = 0; in < 5; ++in)
      EXPECT_NEAR(merged[at(in)], plain[at(in)] * factor, 1e-6);
  }
}

/// A module of modules_to_save takes the place of the model's, and must be in the file.
TEST_P(Merge, ModulesThatTrainedInFullAreOfTheAdapter) {
  auto& bias = units[0].parameters[1];
  std::string const in_model = std::exchange(bias.name, "base_model.model.h.0.fc.bias");
  EXPECT_THAT(message_of<DataError>([&] { checkpoint::merge_adapter(options()); }),
              HasSubstr("lacks base_model.model.h.0.fc.bias, which modules_to_save"));
  auto saved = units;
  saved[0].parameters[1].is_adapter = true;
  write(dir / "adapter_model.safetensors", saved, true);
  checkpoint::merge_adapter(options());
  memory::ParameterSpec merged = bias;
  merged.name = in_model;
  std::vector<float> values(3);
  checkpoint::ModelWeights(dir / "merged").fill(merged, 0, 3, values.data());
  for (std::int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(values[static_cast<std::size_t>(i)], value_of(bias.name, i));
}

/// PEFT wrote adapters as torch files before 0.7.
TEST_P(Merge, AdaptersMayBeTorchFiles) {
  checkpoint::merge_adapter(options());
  std::string const expected = read_file(dir / "merged/model.safetensors");
  EXPECT_EQ(checkpoint::adapter_weights_file(dir.path()), dir / "adapter_model.safetensors");
  fs::remove(dir / "adapter_model.safetensors");
  EXPECT_THAT(message_of<IoError>([&] { checkpoint::adapter_weights_file(dir.path()); }),
              HasSubstr("has neither adapter_model.safetensors nor adapter_model.bin"));
  std::vector<checkpoint::TensorHeader> headers;
  std::vector<float> values;
  for (auto const& p : units[0].parameters) {
    if (!p.is_adapter) continue;
    headers.push_back({p.name, p.shape});
    for (std::int64_t i = 0; i < p.numel(); ++i) values.push_back(value_of(p.name, i));
  }
  auto const writer =
      checkpoint::make_torch_writer(dir / "adapter_model.bin", headers, {}, Dtype::fp32);
  writer->write(values.data(), static_cast<std::int64_t>(values.size()));
  writer->finish();
  auto from_torch = options();
  from_torch.adapter_file = checkpoint::adapter_weights_file(dir.path());
  EXPECT_EQ(from_torch.adapter_file, dir / "adapter_model.bin");
  from_torch.output = dir / "merged_too";
  checkpoint::merge_adapter(from_torch);
  EXPECT_EQ(read_file(dir / "merged_too/model.safetensors"), expected);
}

TEST_P(Merge, RefusesWhatDoesNotFit) {
  auto wrong = options();
  wrong.units[0].parameters[2].shape = {4, 5};
  wrong.units[0].parameters[3].shape = {3, 4};
  EXPECT_THAT(message_of<DataError>([&] { checkpoint::merge_adapter(wrong); }),
              HasSubstr("lora_A.weight has shape [2, 5], the model wants [4, 5]"));
  checkpoint::merge_adapter(options());
  EXPECT_THAT(message_of<UsageError>([&] { checkpoint::merge_adapter(options()); }),
              HasSubstr("--overwrite"));
}

/// The adapted matrix next to an embedding of six rows, of which the base has four.
class GrownMerge : public ::testing::Test {
 protected:
  GrownMerge() : dir("grown_merge"), units(adapted_units(checkpoint::AdaptedLayout::out_in)) {
    embedding.name = "wte.weight";
    embedding.shape = {4, 3};
    embedding.aliases = {"lm_head.weight"};
    units[0].parameters.push_back(embedding);
    fs::create_directories(dir / "base");
    fs::create_directories(dir / "adapter");
    write(dir / "base/model.safetensors", units, false);
    write(dir / "adapter/adapter_model.safetensors", units, true);
    std::ofstream(dir / "base/tokenizer.json") << "the base's";
    std::ofstream(dir / "adapter/tokenizer.json") << "the adapter's";
    units[0].parameters.back().shape = {6, 3};
  }
  std::vector<float> merged_embedding(std::int64_t rows, std::int64_t stored) {
    units[0].parameters.back().shape = {rows, 3};
    checkpoint::merge_adapter({.model = dir / "base",
                               .adapter_file = dir / "adapter/adapter_model.safetensors",
                               .output = dir / "merged",
                               .units = units,
                               .stored_vocabulary = stored,
                               .model_config = ConfigTree::parse(R"({})", "config"),
                               .when_present = checkpoint::WhenPresent::replace});
    std::vector<float> out(static_cast<std::size_t>(rows * 3));
    checkpoint::ModelWeights(dir / "merged")
        .fill(units[0].parameters.back(), 0, rows * 3, out.data());
    return out;
  }
  std::vector<float> base_rows() const {
    std::vector<float> out;
    for (std::int64_t i = 0; i < 12; ++i) out.push_back(value_of("wte.weight", i));
    return out;
  }

  ScratchDirectory dir;
  std::vector<memory::UnitSpec> units;
  memory::ParameterSpec embedding;
};

/// transformers 5, resize_token_embeddings(): rows in addition start at the mean of the others.
TEST_F(GrownMerge, RowsThatTheBaseLacksAreTheMeanOfTheOthers) {
  auto expected = base_rows();
  for (int row = 0; row < 2; ++row)
    for (std::size_t k = 0; k < 3; ++k)
      expected.push_back((expected[k] + expected[3 + k] + expected[6 + k] + expected[9 + k]) / 4);
  EXPECT_EQ(merged_embedding(6, 4), expected);
  EXPECT_EQ(read_file(dir / "merged/tokenizer.json"), "the adapter's");
  EXPECT_THAT(message_of<DataError>([&] { merged_embedding(6, 0); }),
              HasSubstr("wte.weight has shape [4, 3], the model wants [6, 3]"));
}

/// PEFT's save_embedding_layers="auto" saves the embedding and the head where they were resized.
TEST_F(GrownMerge, EmbeddingsInTheAdaptersFileTakeThePlaceOfTheBases) {
  auto const file = dir / "adapter/adapter_model.safetensors";
  EXPECT_EQ(checkpoint::saved_vocabulary(file, units, 6), 0);
  for (std::int64_t const rows : {6, 2}) {
    auto saved = units;
    auto p = saved[0].parameters.back();
    p.shape = {rows, 3};
    p.is_adapter = true;
    for (char const* name : {"base_model.model.wte.weight", "base_model.model.lm_head.weight"}) {
      p.name = name;
      saved[0].parameters.push_back(p);
    }
    std::erase_if(saved[0].parameters, [](auto const& q) { return q.name == "wte.weight"; });
    write(file, saved, true);
    EXPECT_EQ(checkpoint::saved_vocabulary(file, units, units[0].parameters.back().shape[0]), rows);
    std::vector<float> expected;
    for (std::int64_t i = 0; i < rows * 3; ++i)
      expected.push_back(value_of("base_model.model.wte.weight", i));
    EXPECT_EQ(merged_embedding(rows, rows > 4 ? 4 : 0), expected) << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Merge,
                         ::testing::Values(checkpoint::AdaptedLayout::out_in,
                                           checkpoint::AdaptedLayout::in_out));

}  // namespace
