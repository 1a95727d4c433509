#include "validators.hpp"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

std::string refusal(CLI::Validator const& validator, std::string text) { return validator(text); }

TEST(Validators, NumbersHaveReadableLimits) {
  EXPECT_EQ(refusal(number_from(0), "0"), "");
  EXPECT_EQ(refusal(number_from(0), "1e300"), "");
  EXPECT_EQ(refusal(number_from(0), "nan"), "is 'nan'; it must be a number of at least 0");
  EXPECT_EQ(refusal(number_from(1, 1'000'000), "2000000"),
            "is '2000000'; it must be a number from 1 to 1,000,000");
  EXPECT_EQ(refusal(number_from(0.5), "x"), "is 'x'; it must be a number of at least 0.5");
}

TEST(Validators, WordsAreListed) {
  auto const validator = one_of({"flags", "deepspeed"});
  EXPECT_EQ(refusal(validator, "flags"), "");
  EXPECT_EQ(refusal(validator, "flag"),
            "is 'flag'; it must be one of flags, deepspeed; did you mean flags?");
}

}  // namespace
}  // namespace tessera::cli
