#include "detail/resolvers.hpp"

#include <gtest/gtest.h>

namespace tessera::config::detail {
namespace {

TEST(BatchProblem, QuotesOnlyWhatWasWritten) {
  EXPECT_EQ(batch_problem(17, {{"micro", 4}, {"steps", 2}, {"ranks", 2}}),
            "train_batch_size is 17, but it must be micro 4 * steps 2 * ranks 2 = 16; change one "
            "of them, or leave one out to have it derived");
  EXPECT_EQ(batch_problem(12, {{"--flag", 8}, {"steps", 0}, {"ranks", 2}}),
            "train_batch_size is 12, but it must be --flag 8 * steps * ranks 2, a multiple of 16; "
            "change one of them");
}

}  // namespace
}  // namespace tessera::config::detail
