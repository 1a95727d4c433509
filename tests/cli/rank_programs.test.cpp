#include "rank_programs.hpp"

#include <gtest/gtest.h>

#include "mpi_test.hpp"

namespace tessera::cli {
namespace {

TEST(RankPrograms, AreAskedForByTheFirstWord) {
  EXPECT_TRUE(asks_for_rank_program({bench_comm_word, "{}"}));
  EXPECT_TRUE(asks_for_rank_program({measure_machine_word}));
  EXPECT_FALSE(asks_for_rank_program({"--do_train", bench_comm_word}));
  EXPECT_FALSE(asks_for_rank_program({}));
}

TEST(RankPrograms, EndAllRanksWithTheCodeOfTheError) {
  auto& session = test::session();
  EXPECT_EQ(run_rank_program(session, {measure_machine_word}), 64) << "words are missing";
  EXPECT_EQ(run_rank_program(session, {bench_comm_word, "{"}), 65) << "no JSON";
}

}  // namespace
}  // namespace tessera::cli
