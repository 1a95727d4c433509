/// What a transformer block launches on a device and how many bytes its kernels move, without a
/// device: the launches are recorded and left out. A fusion changes the tables below.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "decoder/block.hpp"
#include "layers/planning.hpp"
#include "tessera/memory/launch_record.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::model::detail::test {
namespace {

using memory::LaunchRecord;

struct Model {
  UnitSpec unit;
  std::optional<Block> block;
  std::int64_t width, batch, sequence;
};

/// A block of GPT-2 124M, 4 rows of 1024 tokens.
Model gpt2(double dropout = 0.0) {
  Model out{.unit = {}, .block = {}, .width = 768, .batch = 4, .sequence = 1024};
  auto const norm = [&](char const* name) { return Norm(out.unit, name, {.width = out.width}); };
  BlockNorms norms;
  norms.before_attention = norm("ln_1");
  norms.before_mlp = norm("ln_2");
  CausalSelfAttention const attention(
      out.unit, "attn",
      {.qkv =
           {.width = out.width, .heads = 12, .kv_heads = 12, .head_dim = 64, .names = {"c_attn"}},
       .scale = 0.125});
  Mlp const mlp(out.unit, "mlp", {.width = out.width, .inner = 4 * out.width});
  out.block.emplace(Block::Options{.layer = 1, .width = out.width, .residual_dropout = dropout},
                    norms, attention, mlp);
  return out;
}

/// A block as those of Llama 3, of a quarter of the width of 8B: 1 row of 4096 tokens.
Model llama() {
  Model out{.unit = {}, .block = {}, .width = 1024, .batch = 1, .sequence = 4096};
  auto const norm = [&](char const* name) {
    return Norm(out.unit, name, {.width = out.width, .kind = NormKind::rms});
  };
  BlockNorms norms;
  norms.before_attention = norm("input_layernorm");
  norms.before_mlp = norm("post_attention_layernorm");
  CausalSelfAttention const attention(out.unit, "self_attn",
                                      {.qkv = {.width = out.width,
                                               .heads = 8,
                                               .kv_heads = 2,
                                               .head_dim = 128,
                                               .layout = QkvLayout::separate,
                                               .weights = WeightLayout::out_in,
                                               .bias = Bias::none,
                                               .names = {"q_proj", "k_proj", "v_proj"}},
                                       .scale = 0.088,
                                       .rotary_dim = 128,
                                       .output_bias = Bias::none,
                                       .output_name = "o_proj"});
  Mlp const mlp(out.unit, "mlp",
                {.width = out.width,
                 .inner = 3584,
                 .kind = MlpKind::gated,
                 .activation = kernels::Activation::silu,
                 .layout = WeightLayout::out_in,
                 .bias = Bias::none,
                 .gate_name = "gate_proj",
                 .expand_name = "up_proj",
                 .project_name = "down_proj"});
  out.block.emplace(Block::Options{.layer = 1, .width = out.width}, norms, attention, mlp);
  return out;
}

/// Launches of a pass, and what its kernels read and write of rows of the residual stream and next
/// to it (norms, sums, casts and dropout): bytes per row and column of the stream.
struct Totals {
  std::size_t launches = 0, bytes = 0;
};

bool moves_the_stream(std::string const& kernel, std::size_t bytes, std::size_t elements) {
  if (kernel == "cast") return bytes == 6 * elements;  // else it casts weights
  bool const of_parameters = kernel.ends_with("_parameters") || kernel.ends_with("_gamma");
  return !of_parameters && (kernel.find("norm") != std::string::npos || kernel == "dropout" ||
                            kernel == "residual_add");
}

/// Prints the launches with their bytes.
void expect_totals(std::string const& what, LaunchRecord const& record, std::size_t elements,
                   Totals const& want) {
  std::size_t bytes = 0;
  fmt::print("{}: {} launches\n", what, record.launches().size());
  for (auto const& launch : record.launches()) {
    std::string const name = launch.kernel, kernel = name.substr(name.rfind(':') + 1);
    EXPECT_NE(name, "") << what << ": a launch does not describe its operands";
    if (moves_the_stream(kernel, launch.bytes, elements)) bytes += launch.bytes;
    fmt::print("  {:<28} {:7.1f} MB\n", kernel, static_cast<double>(launch.bytes) / 1e6);
  }
  EXPECT_EQ(record.launches().size(), want.launches) << what;
  EXPECT_EQ(bytes, want.bytes * elements) << what;
}

struct Expected {
  Totals forward, backward;
};

/// Forward and backward pass of a block after another one, in a micro-step that adds no gradients.
void expect_launches(std::string const& what, Model const& model, Dtype weights,
                     Expected const& want) {
  memory::ArenaPlanning const planning;
  memory::PlanningQueue queue(memory::MemorySpace::device);
  Arena arena("planned", memory::Purpose::activations, memory::MemorySpace::device);
  std::vector<UnitSpec> const units{model.unit};
  // A device has copies at stages 0 to 2, unless the dtypes are equal.
  PlanningParams params(units, weights,
                        weights == Dtype::fp32 ? std::optional(Dtype::bf16) : std::nullopt);
  std::int64_t const head = 64 * model.sequence;
  TensorView const angles = arena.allocate(Dtype::fp32, {head});
  PendingSum pending;
  kernels::DropoutPlace const place{};
  PassContext pass{.compute = queue,
                   .arena = arena,
                   .dtype = Dtype::bf16,
                   .batch = model.batch,
                   .sequence = model.sequence,
                   .dropout_on = true,
                   .dropout_place = &place,
                   .rotary = {angles, angles},
                   .stream_dtype = weights,
                   .pending = &pending};
  auto const lease = params.acquire(memory::first_unit, queue);
  auto const gradients = params.gradient(memory::first_unit, queue);
  TensorView const first = pass.allocate_stream(pass.positions(), model.width),
                   in = pass.allocate_stream(pass.positions(), model.width),
                   out = pass.allocate_stream(pass.positions(), model.width);
  auto const elements = static_cast<std::size_t>(pass.positions() * model.width);
  auto const record_of = [&](auto const& work) {
    LaunchRecord record(LaunchRecord::Mode::leave_out);
    LaunchRecord::Scope const scope(queue, record);
    work();
    return record;
  };
  Block const& block = *model.block;
  Block::Saved saved = block.forward(pass, lease, in, first);  // leaves its sum to the next block
  expect_totals(what + ", forward", record_of([&] { saved = block.forward(pass, lease, out, in); }),
                elements, want.forward);
  expect_totals(what + ", backward", record_of([&] {
                  block.backward(pass, {lease, gradients}, out, in, saved);
                }),
                elements, want.backward);
}

TEST(BlockLaunches, OfGpt2WithBf16Weights) {
  expect_launches("GPT-2 in bf16", gpt2(), Dtype::bf16, {{8, 16}, {24, 16}});
}
TEST(BlockLaunches, OfGpt2UnderAutocast) {
  expect_launches("GPT-2 under autocast", gpt2(), Dtype::fp32, {{10, 28}, {25, 40}});
}
TEST(BlockLaunches, OfGpt2UnderAutocastWithDropout) {
  expect_launches("GPT-2 under autocast with dropout", gpt2(0.1), Dtype::fp32,
                  {{10, 28}, {26, 44}});
}
TEST(BlockLaunches, OfLlamaWithBf16Weights) {
  expect_launches("Llama in bf16", llama(), Dtype::bf16, {{10, 16}, {18, 16}});
}
TEST(BlockLaunches, OfLlamaUnderAutocast) {
  expect_launches("Llama under autocast", llama(), Dtype::fp32, {{10, 28}, {19, 40}});
}

}  // namespace
}  // namespace tessera::model::detail::test
