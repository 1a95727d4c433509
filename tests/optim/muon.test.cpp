#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "trajectory.hpp"
#include "update_by.hpp"

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

TEST(Muon, BothTraversalsGiveTheSameBits) {
  auto const optimizer = make_optimizer(make_spec("Muon", {{"weight_decay", 0.1}}));
  auto const& muon = dynamic_cast<MatrixOptimizer const&>(*optimizer);
  auto const directions = [](kernels::test::ElementwiseUpdate const& update, std::size_t state) {
    Directions out;
    for (auto const& s : update.segments) out.push_back(static_cast<float*>(s.states[state]));
    return out;
  };
  kernels::test::expect_update_on_both_sides(
      [&](memory::Queue& q, kernels::test::ElementwiseUpdate const& update) {
        muon.advance(q, parameters_of(update, {0}, 2), {9, 0.05, update.control},
                     directions(update, 1));
      },
      2, {0});
  kernels::test::expect_update_on_both_sides(
      [&](memory::Queue& q, kernels::test::ElementwiseUpdate const& update) {
        muon.update_with(q, parameters_of(update, {}, 2), {9, 0.05, update.control},
                         directions(update, 0));
      },
      1, {1});
}

/// The singular values come near 1, so that X X^T comes near the identity.
TEST(Muon, DirectionsAreNearlyOrthogonal) {
  auto const optimizer = make_optimizer(make_spec("Muon"));
  auto const& muon = dynamic_cast<MatrixOptimizer const&>(*optimizer);
  auto const q = memory::make_inline_queue("compute");
  for (auto const& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{4, 48}, {48, 4}}) {
    Floats x;
    Philox const random{3, 5};
    for (std::int64_t i = 0; i < rows * columns; ++i)
      x.push_back(random.uniform(static_cast<std::uint64_t>(i)) - 0.5f);
    Floats workspace(static_cast<std::size_t>(muon.workspace({rows, columns})));
    muon.complete(*q, x.data(), {rows, columns}, workspace.data());
    bool const is_tall = rows > columns;
    double const scale = is_tall ? std::sqrt(static_cast<double>(rows) / columns) : 1.0;
    for (std::int64_t a = 0; a < 4; ++a)
      for (std::int64_t b = 0; b < 4; ++b) {
        double dot = 0.0;
        for (std::int64_t k = 0; k < 48; ++k)
          dot +=
              static_cast<double>(x[static_cast<std::size_t>(is_tall ? k * 4 + a : a * 48 + k)]) *
              x[static_cast<std::size_t>(is_tall ? k * 4 + b : b * 48 + k)];
        EXPECT_NEAR(dot / scale / scale, a == b ? 1.0 : 0.0, 0.5) << rows << " rows " << a << b;
      }
  }
}

}  // namespace
}  // namespace tessera::optim::test
