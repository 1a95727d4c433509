#include "tessera/train/step/evaluator.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "mpi_test.hpp"
#include "small_run.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

namespace tessera::train {
namespace {

TEST(Evaluator, CountsEverySampleOnceOnAnyNumberOfRanks) {
  ScratchFiles const files;
  auto const comm = comm::make_mpi(test::session(), std::chrono::seconds(60));
  comm::Mesh mesh(*comm);
  auto const compute = memory::make_inline_queue("compute");
  for (std::int64_t const samples : {1, 7, 10}) {
    auto sequences = test::small_sequences(files, 16);
    sequences.keep_first(samples);
    ASSERT_EQ(sequences.count(), samples);
    double sum = 0.0;
    for (std::int64_t i = 0; i < samples; ++i)
      for (auto const token : sequences[i]) sum += token;

    test::CountingModel model;
    test::NoWeights weights;
    Evaluator evaluator({model, weights, *compute, mesh}, sequences, 3);
    auto const result = evaluator.evaluate();
    EXPECT_DOUBLE_EQ(result.loss, sum / static_cast<double>(samples * 15));
    EXPECT_EQ(result.samples, samples);
    EXPECT_EQ(result.perplexity, result.loss < 700.0 ? std::exp(result.loss) : INFINITY);
    EXPECT_GT(result.seconds, 0.0);
    EXPECT_FALSE(result.accuracy) << "this model does not count hits";
    std::int64_t const most = (samples + comm->size() - 1) / comm->size();
    EXPECT_EQ(result.passes, (most + 2) / 3);
    EXPECT_EQ(model.passes, result.passes) << "ranks without samples take part in every pass";
    evaluator.set_prediction_step([&](model::Batch const& batch) {
      *batch.hits = 3 * batch.rows;
      return model.evaluate(batch, weights, *compute).value();
    });
    EXPECT_DOUBLE_EQ(evaluator.evaluate().accuracy.value_or(-1.0), 3.0 / 15.0);
  }
}

/// Ranks that have parts of the same sequences read the same samples, which count once.
TEST(Evaluator, CountsSamplesOnceAlongAnAxisThatDividesSequences) {
  ScratchFiles const files;
  auto const comm = comm::make_mpi(test::session(), std::chrono::seconds(60));
  if (comm->size() != 2) GTEST_SKIP() << "needs two ranks";
  auto const compute = memory::make_inline_queue("compute");
  auto const sequences = test::small_sequences(files, 16);
  comm::Mesh samples(*comm), parts(*comm, topology::Mesh({{topology::Axis::sequence, 2}}));
  std::vector<EvaluationResult> results;
  test::NoWeights weights;
  for (auto* const mesh : {&samples, &parts}) {
    test::CountingModel model;
    results.push_back(Evaluator({model, weights, *compute, *mesh}, sequences, 3).evaluate());
    EXPECT_EQ(results.back().samples, sequences.count());
  }
  EXPECT_DOUBLE_EQ(results[0].loss, results[1].loss);
  EXPECT_GT(results[1].passes, results[0].passes);
}

}  // namespace
}  // namespace tessera::train
