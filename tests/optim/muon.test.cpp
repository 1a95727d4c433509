#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "trajectory.hpp"

namespace tessera::optim::test {
namespace {

TEST(Muon, EqualsDeepSpeed) { expect_trajectories("Muon", "muon.json"); }

TEST(Muon, TakesMatricesThatAreNoEmbeddings) {
  auto const optimizer = make_optimizer(make_spec("Muon"));
  auto const& muon = dynamic_cast<MatrixOptimizer const&>(*optimizer);
  auto const takes = [&](std::string const& name, std::vector<std::int64_t> const& shape) {
    ParameterRun run{shape, 8, 0, 0, 8, name};
    return muon.takes_matrix(run);
  };
  EXPECT_TRUE(takes("transformer.h.0.attn.c_attn.weight", {4, 2}));
  EXPECT_TRUE(takes("transformer.wte.weight", {4, 2})) << "DeepSpeed knows embeddings by name only";
  EXPECT_FALSE(takes("model.embed_tokens.weight", {4, 2}));
  EXPECT_FALSE(takes("LM_Head.weight", {4, 2}));
  EXPECT_FALSE(takes("transformer.ln_f.weight", {8}));
}

TEST(Muon, ASkippedStepChangesNothing) {
  auto const queue = memory::make_inline_queue("compute");
  auto const optimizer = make_optimizer(make_spec("Muon"));
  Floats weights{1.0f, 2.0f, 3.0f, 4.0f};
  std::vector<Floats> states{{0.5f, 0.25f, 0.0f, 1.0f}, Floats(4)};
  auto const before = states;
  kernels::GradientControl const skip{1.0, 1};
  Halves{*optimizer, *queue, {2, 2}, 1}.update(weights, states, {INFINITY, 1.0f, 1.0f, NAN},
                                               {3, 0.1, &skip});
  EXPECT_EQ(states, before);
  EXPECT_EQ(weights, (Floats{1.0f, 2.0f, 3.0f, 4.0f}));
  EXPECT_THROW(optimizer->update(*queue, {}, {}), InternalError);
}

}  // namespace
}  // namespace tessera::optim::test
