#include "tessera/checkpoint/interchange/model_weights.hpp"

#include <fcntl.h>

#include "fixture.hpp"
#include "tessera/checkpoint/interchange/safetensors_reader.hpp"
#include "tessera/checkpoint/interchange/tensor_writer.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

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

TEST_F(Weights, CompanionsAreThoseOfTheTokenizerAndOfTheModel) {
  fs::create_directories(dir / "additional_chat_templates");
  for (char const* name :
       {"tokenizer.json", "added_tokens.json", "chat_template.jinja", "model.safetensors",
        "additional_chat_templates/rag.jinja", "additional_chat_templates/notes.txt",
        "generation_config.json", "processor_config.json", "config.json"})
    write_file(dir / name, "{}");
  std::vector<std::string> names;
  for (auto const which : {checkpoint::Companions::tokenizer, checkpoint::Companions::model})
    for (auto const& file : checkpoint::companion_files(dir.path(), which))
      names.push_back(checkpoint::companion_name(file).string());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre(
                         "tokenizer.json", "added_tokens.json", "chat_template.jinja",
                         "additional_chat_templates/rag.jinja", "generation_config.json",
                         "processor_config.json"));
  EXPECT_TRUE(checkpoint::companion_files(dir / "none", checkpoint::Companions::model).empty());
}

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

/// transformers loads such a model, too, and lists them.
TEST_F(Weights, WhatTheModelDoesNotHaveIsReturned) {
  auto tensors = toy_tensors();
  tensors.push_back({"transformer.h.7.mlp.c_fc.weight", {2, 2}});
  tensors.push_back({"v_head.bias", {1}});
  tensors.push_back({"transformer.h.0.attn.rotary_emb.inv_freq", {4}});  // a saved constant
  for (auto const format : {As::safetensors, As::torch}) {
    write(tensors, format);
    EXPECT_EQ(checkpoint::ModelWeights(dir.path()).require(toy_units()),
              "transformer.h.7.mlp.c_fc.weight; v_head.bias");
    EXPECT_EQ(checkpoint::ModelWeights(dir.path()).require(toy_units(), {"v_head.bias"}),
              "transformer.h.7.mlp.c_fc.weight");
    fs::remove(dir / "model.safetensors");
  }
}

TEST_F(Weights, AHeadThatDiffersFromItsEmbeddingIsFound) {
  for (auto const format : {As::safetensors, As::torch}) {
    auto tensors = toy_tensors();
    write(tensors, format);
    EXPECT_EQ(checkpoint::ModelWeights(dir.path()).different_alias(toy_units()), "");
    tensors.push_back({"lm_head.weight", tensors[0].shape});
    write(tensors, format);  // the values are the lengths of the names
    EXPECT_EQ(checkpoint::ModelWeights(dir.path()).different_alias(toy_units()), "lm_head.weight");
    auto units = toy_units();
    tensors.back().name = units[0].parameters[0].aliases[0] = "transformer.wtf.weight";
    write(tensors, format);
    EXPECT_EQ(checkpoint::ModelWeights(dir.path()).different_alias(units), "") << "the same values";
    tensors.back().shape.push_back(1);
    write(tensors, format);
    EXPECT_EQ(checkpoint::ModelWeights(dir.path()).different_alias(units),
              "transformer.wtf.weight");
    fs::remove(dir / "model.safetensors");
  }
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
