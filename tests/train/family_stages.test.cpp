/// Steps of stored models and adapters at every ZeRO stage, on one, two and four ranks.
#include <gtest/gtest.h>

#include "../model/family_suite.hpp"
#include "mpi_test.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera {
namespace {

struct Case {
  char const* family;
  char const* name;
};

class FamilyStages : public testing::TestWithParam<std::tuple<Case, int>> {
 protected:
  static test::StoredCase const& stored(Case const& of) {
    std::string const family = of.family;
    static auto const adapted = test::read_cases("lora"), packed = test::read_cases("packed");
    static auto const quantized = test::read_cases("qlora");
    for (auto const& c : family == "lora"     ? adapted
                         : family == "qlora"  ? quantized
                         : family == "packed" ? packed
                                              : test::family_cases(family))
      if (c.name == of.name) return c;
    throw std::out_of_range(of.name);
  }
  static zero::EngineConfig config(int stage) {
    zero::EngineConfig out;
    out.partition = zero::partition_of(stage);
    out.dtype = Dtype::fp32;
    out.max_grad_norm = 0.0;
    out.optimizer = optim::make_spec("AdamW", {{"weight_decay", test::AdamWSteps::decay}});
    return out;
  }
  std::unique_ptr<comm::Collectives> comm =
      comm::make_mpi(test::session(), std::chrono::seconds(60));
};

/// A model that an engine of a stage trains.
struct Trained {
  Trained(test::StoredCase const& c, zero::EngineConfig const& config, comm::Collectives& over)
      : comm(over), sequence(c.sequence), model(model::make_model(c.config, options(c, config))) {
    auto units = model->units();
    for (auto& unit : units)  // the stored optimizer has one group
      for (auto& spec : unit.parameters) spec.decays = true;
    engine = zero::make_engine(config, units, comm, *queue);
    auto const weights = test::named_weights(c.config.at("model_type").as_string());
    engine->initialize([&](memory::UnitIndex unit, int parameter, std::int64_t first,
                           std::int64_t numel, float* out) {
      auto const& spec =
          units[memory::position(unit)].parameters[static_cast<std::size_t>(parameter)];
      std::vector<float> values(static_cast<std::size_t>(spec.numel()));
      weights(spec, values.data());
      std::copy_n(values.data() + first, numel, out);
    });
  }

  static model::ModelOptions options(test::StoredCase const& c, zero::EngineConfig const& config) {
    auto out = test::options_of(c, Dtype::fp32);
    if (config.quantized_base) out.product_dtype = config.quantized_base->compute_dtype;
    return out;
  }

  /// Rank r takes the r-th share of each micro-step. @return the mean loss
  double step(std::vector<std::int32_t> const& tokens, int micro_steps) {
    std::int64_t const all = static_cast<std::int64_t>(tokens.size()) / sequence,
                       rows = all / micro_steps / comm.size();
    auto const n = static_cast<double>(model->predictions({tokens.data(), all, sequence}));
    double loss = 0.0;
    ++steps;
    engine->begin_step();
    for (int k = 0; k < micro_steps; ++k) {
      std::int64_t const first = (k * comm.size() + comm.rank()) * rows;
      engine->begin_micro_step(k, micro_steps);
      loss += model
                  ->train({tokens.data() + first * sequence, rows, sequence, first},
                          {.step = steps, .gradient_scale = static_cast<float>(1.0 / n)}, *engine,
                          *queue)
                  .value();
    }
    engine->finish_step(test::AdamWSteps::rate);
    return comm::all_reduce_value(comm, loss, comm::ReduceOp::sum) / n;
  }

  comm::Collectives& comm;
  std::int64_t sequence;
  std::unique_ptr<model::CausalLm> model;
  std::unique_ptr<memory::Queue> queue = memory::make_inline_queue("compute");
  std::unique_ptr<zero::Engine> engine;
  std::uint64_t steps = 0;
};

TEST_P(FamilyStages, TenStepsMatchTransformers) {
  auto const& [of, stage] = GetParam();
  auto const& c = stored(of);
  if (c.rows % comm->size() != 0) GTEST_SKIP() << "a row for each rank is wanted";
  Trained training(c, config(stage), *comm);
  for (auto const& want : c.entry.at("trajectory").as_array()) {
    double const loss = training.step(c.tokens(training.steps), 1);
    EXPECT_NEAR(loss, want.as_double(), 2e-6 * want.as_double()) << "step " << training.steps;
  }
}

/// Against one process, whose steps are those of transformers (tests/model): two micro-steps, and a
/// last step with fewer rows.
TEST_P(FamilyStages, AccumulationAndAShortLastStepMatchOneProcess) {
  auto const& [of, stage] = GetParam();
  auto const& c = stored(of);
  auto accumulating = config(stage);
  accumulating.accumulation_steps = 2;
  Trained training(c, accumulating, *comm);
  test::AdamWSteps reference(c);
  std::uint64_t batch = 0;
  for (int const rows : {8, 8, 8, 4}) {
    std::vector<std::int32_t> tokens;
    while (tokens.size() < static_cast<std::size_t>(rows * c.sequence)) {
      auto const more = c.tokens(batch++);
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    double const want = reference.step(tokens), loss = training.step(tokens, rows == 8 ? 2 : 1);
    EXPECT_NEAR(loss, want, 2e-6 * want) << rows << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, FamilyStages,
    testing::Combine(testing::Values(Case{"llama", "grouped"}, Case{"llama", "llama3_rope"},
                                     Case{"gpt_bigcode", "multi_query"},
                                     Case{"gpt_bigcode", "multi_head"},
                                     Case{"gpt_neox", "parallel"}, Case{"gemma2", "capped_window"},
                                     Case{"qwen3", "head_norms"}, Case{"phi", "partial_rotary"},
                                     Case{"phi3", "fused"}, Case{"lora", "llama_all"},
                                     Case{"lora", "gpt2_default"}, Case{"lora", "gpt2_dora"},
                                     Case{"lora", "llama_dora"}, Case{"lora", "llama_saved"},
                                     Case{"lora", "gpt2_saved_tied"}, Case{"packed", "gpt2_all"},
                                     Case{"packed", "llama_all"}),
                     testing::Range(0, 4)),
    [](auto const& info) {
      Case const of = std::get<0>(info.param);
      return concat(of.family, "_", of.name, "_stage_", std::get<1>(info.param));
    });

/// Adapters on a base of codes, against PEFT with bitsandbytes (tests/oracles/qlora.py).
class QuantizedStages : public FamilyStages {
 protected:
  static zero::EngineConfig quantized(int stage, test::StoredCase const& c, Dtype compute) {
    auto out = config(stage);
    auto const& format = c.entry.at("format").as_string();
    out.quantized_base = {.is_int8 = format == "int8",
                          .double_quantized = format == "nf4_double",
                          .transposed = c.entry.at("adapter").get_bool("fan_in_fan_out", false),
                          .compute_dtype = compute};
    return out;
  }
  /// The largest relative difference between the losses of ten steps and stored ones.
  double largest_difference(char const* stored_as, Dtype compute) {
    auto const& [of, stage] = GetParam();
    auto const& c = stored(of);
    Trained training(c, quantized(stage, c, compute), *comm);
    double largest = 0.0;
    for (auto const& want : c.entry.at(stored_as).as_array()) {
      double const loss = training.step(c.tokens(training.steps), 1);
      largest = std::max(largest, std::abs(loss / want.as_double() - 1.0));
    }
    return largest;
  }
};

TEST_P(QuantizedStages, TenStepsMatchBitsandbytes) {
  EXPECT_LT(largest_difference("trajectory", Dtype::fp32), 5e-6);
}

TEST_P(QuantizedStages, SixteenBitStepsMatchBitsandbytes) {
  EXPECT_LT(largest_difference("bf16_trajectory", Dtype::bf16), 0x1.0p-7);
}

/// The losses of other codes, or of none, are further away than what rounding explains.
TEST_P(QuantizedStages, OtherCodesHaveOtherLosses) {
  auto const& [of, stage] = GetParam();
  auto const& c = stored(of);
  auto config = quantized(stage, c, Dtype::fp32);
  config.quantized_base.reset();
  Trained training(c, config, *comm);
  double const want = c.entry.at("trajectory").as_array()[0].as_double();
  EXPECT_GT(std::abs(training.step(c.tokens(0), 1) / want - 1.0), 2e-5);
}

INSTANTIATE_TEST_SUITE_P(
    All, QuantizedStages,
    testing::Combine(testing::Values(Case{"qlora", "llama_nf4"}, Case{"qlora", "llama_nf4_double"},
                                     Case{"qlora", "llama_int8"}, Case{"qlora", "gpt2_nf4_double"},
                                     Case{"qlora", "gpt2_int8"},
                                     Case{"qlora", "llama_nf4_double_dora"},
                                     Case{"qlora", "gpt2_nf4_dora"}),
                     testing::Range(0, 4)),
    [](auto const& info) {
      return concat(std::get<0>(info.param).name, "_stage_", std::get<1>(info.param));
    });

}  // namespace
}  // namespace tessera
