/// Ten steps of stored models at every ZeRO stage, on one rank and on two.
#include <gtest/gtest.h>

#include "../model/family_suite.hpp"
#include "mpi_test.hpp"
#include "tessera/comm/host_collectives.hpp"
#include "tessera/zero/engine.hpp"

namespace tessera {
namespace {

struct Case {
  char const* family;
  char const* name;
};

class FamilyStages : public testing::TestWithParam<std::tuple<Case, int>> {
 protected:
  static test::StoredCase const& stored(Case const& of) {
    for (auto const& c : test::family_cases(of.family))
      if (c.name == of.name) return c;
    throw std::out_of_range(of.name);
  }
  static zero::EngineConfig config(int stage) {
    zero::EngineConfig out;
    out.stage = stage;
    out.dtype = Dtype::fp32;
    out.max_grad_norm = 0.0;
    out.optimizer = optim::make_spec("AdamW", {{"weight_decay", 0.1}});
    return out;
  }
  std::unique_ptr<comm::Collectives> comm =
      comm::make_mpi(test::session(), std::chrono::seconds(60));
  std::unique_ptr<memory::Queue> queue = memory::make_inline_queue("compute");
};

TEST_P(FamilyStages, TenStepsMatchTransformers) {
  auto const& [of, stage] = GetParam();
  auto const& c = stored(of);
  auto const model = model::make_model(c.config, Dtype::fp32);
  auto units = model->units();
  for (auto& unit : units)  // the stored optimizer has one group
    for (auto& spec : unit.parameters) spec.decays = true;
  auto const engine = zero::make_engine(config(stage), units, *comm, *queue);
  auto const weights = test::named_weights(of.family);
  engine->initialize([&](memory::UnitIndex unit, int parameter, std::int64_t first,
                         std::int64_t numel, float* out) {
    auto const& spec =
        units[memory::position(unit)].parameters[static_cast<std::size_t>(parameter)];
    std::vector<float> values(static_cast<std::size_t>(spec.numel()));
    weights(spec, values.data());
    std::copy_n(values.data() + first, numel, out);
  });
  auto const n = static_cast<double>(c.predictions());
  std::int64_t const rows = c.rows / comm->size(), first_row = comm->rank() * rows;
  std::uint64_t step = 0;
  for (auto const& want : c.entry.at("trajectory").as_array()) {
    auto const tokens = c.tokens(step++);
    engine->begin_step();
    engine->begin_micro_step(0, 1);
    double loss =
        model
            ->train({tokens.data() + first_row * c.sequence, rows, c.sequence, first_row},
                    {.step = step, .gradient_scale = static_cast<float>(1.0 / n)}, *engine, *queue)
            .value();
    engine->finish_step(5e-3);
    loss = comm::all_reduce_value(*comm, loss, comm::ReduceOp::sum);
    EXPECT_NEAR(loss / n, want.as_double(), 2e-6 * want.as_double()) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, FamilyStages,
    testing::Combine(testing::Values(Case{"llama", "grouped"}, Case{"llama", "llama3_rope"},
                                     Case{"gpt_bigcode", "multi_query"},
                                     Case{"gpt_bigcode", "multi_head"},
                                     Case{"gpt_neox", "parallel"}, Case{"gemma2", "capped_window"}),
                     testing::Range(0, 4)),
    [](auto const& info) {
      Case const of = std::get<0>(info.param);
      return concat(of.family, "_", of.name, "_stage_", std::get<1>(info.param));
    });

}  // namespace
}  // namespace tessera
