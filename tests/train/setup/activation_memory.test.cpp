#include "tessera/train/setup/activation_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "small_run.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/limits.hpp"

namespace tessera::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Memory : ::testing::Test {
  std::size_t reserve(PlannedPasses const& passes) {
    return reserve_activations(model, *compute, *comm, passes);
  }
  std::string refusal(PlannedPasses const& passes) {
    try {
      reserve(passes);
    } catch (Error const& e) {
      EXPECT_EQ(e.code(), ExitCode::internal);
      return e.what();
    }
    return "nothing was refused";
  }

  test::CountingModel model;
  std::unique_ptr<comm::Collectives> comm = comm::make_loopback();
  std::unique_ptr<memory::Queue> compute = memory::make_inline_queue("compute");
};

TEST_F(Memory, IsThatOfTheLargestPass) {
  EXPECT_EQ(reserve({.train_rows = 4, .train_sequence = 32}), 4u * 32 * 8);
  EXPECT_EQ(
      reserve(
          {.train_rows = 4, .train_sequence = 32, .evaluation_rows = 8, .evaluation_sequence = 64}),
      8u * 64 * 8);
  EXPECT_EQ(model.reserved, 8u * 64 * 8);
  EXPECT_EQ(reserve({}), 0u);
}

/// Oracle: rows that fit = available bytes / bytes per row, on one rank and on two of one node.
TEST_F(Memory, ThatDoesNotFitIsRefusedWithABatchSizeThatFits) {
  std::size_t const available = memory::available_memory().bytes;
  model.bytes_per_token = available / 1000;  // 100 rows of 10 tokens fill it
  for (int const ranks : {1, 2}) {
    auto const text = refusal({.train_rows = 500, .train_sequence = 10, .ranks_on_node = ranks});
    EXPECT_THAT(text, HasSubstr("a training micro-batch with 500 x 10 tokens need"));
    std::smatch found;
    ASSERT_TRUE(std::regex_search(
        text, found, std::regex("use --per_device_train_batch_size ([0-9]+) with more")))
        << text;
    EXPECT_NEAR(std::stod(found[1]), 100.0 / ranks, 15.0 / ranks) << text;
    EXPECT_THAT(text, HasSubstr(ranks == 1 ? "on each of 1 rank of" : "on each of 2 ranks of"));
  }
  EXPECT_THAT(refusal({.evaluation_rows = 500, .evaluation_sequence = 10}),
              HasSubstr("use --per_device_eval_batch_size "));
  EXPECT_THAT(refusal({.train_rows = 1, .train_sequence = 5000}),
              HasSubstr("a shorter --block_size"));
  EXPECT_EQ(model.reserved, 0u);
}

/// 100 rows of 10 tokens fill the memory; recomputation keeps two thirds of them or a tenth.
TEST_F(Memory, TheLeastRecomputationThatFitsIsNamed) {
  model.bytes_per_token = memory::available_memory().bytes / 1000;
  model.percent_kept = {100, 66, 10};
  auto const light = refusal({.train_rows = 120, .train_sequence = 10});
  EXPECT_THAT(light, HasSubstr("--recompute light (")) << light;
  EXPECT_THAT(light, Not(HasSubstr("--gradient_checkpointing"))) << light;
  EXPECT_THAT(refusal({.train_rows = 300, .train_sequence = 10}),
              AllOf(HasSubstr("--gradient_checkpointing ("), Not(HasSubstr("light"))));
  EXPECT_THAT(refusal({.train_rows = 300, .train_sequence = 10, .recompute = Recompute::light}),
              AllOf(HasSubstr("--gradient_checkpointing ("), Not(HasSubstr("light"))));
  EXPECT_THAT(refusal({.train_rows = 3000, .train_sequence = 10}),
              HasSubstr("or --gradient_checkpointing with --per_device_train_batch_size"));
  EXPECT_THAT(refusal({.train_rows = 3000, .train_sequence = 10, .recompute = Recompute::block}),
              AllOf(HasSubstr("use --per_device_train_batch_size"), Not(HasSubstr("--grad"))));
}

/// 100 rows of 10 tokens fill the memory.
TEST_F(Memory, RowsAreHalvedUntilTheyFit) {
  model.bytes_per_token = memory::available_memory().bytes / 1000;
  auto const rows = [&](std::int64_t wanted) {
    return fitting_train_rows(model, *compute, *comm, {.train_rows = wanted, .train_sequence = 10});
  };
  EXPECT_EQ(rows(50), 50);
  EXPECT_EQ(rows(320), 80);
  EXPECT_EQ(rows(1), 1);
  model.bytes_per_token *= 1000;
  EXPECT_EQ(rows(8), 1) << "the reservation refuses it";
}

}  // namespace
}  // namespace tessera::train
