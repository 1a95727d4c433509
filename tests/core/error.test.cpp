#include "tessera/core/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(Error, CarriesItsExitCode) {
  EXPECT_EQ(static_cast<int>(UsageError("m").code()), 64);
  EXPECT_EQ(static_cast<int>(DataError("m").code()), 65);
  EXPECT_EQ(static_cast<int>(PeerLostError(3, "m").code()), 69);
  EXPECT_EQ(static_cast<int>(InternalError("m").code()), 70);
  EXPECT_EQ(static_cast<int>(OutOfMemoryError("m").code()), 70);
  EXPECT_EQ(static_cast<int>(IoError("m").code()), 74);
  EXPECT_EQ(static_cast<int>(ConfigError("m").code()), 78);
  EXPECT_EQ(PeerLostError(3, "m").rank, 3);
}

TEST(Error, MessagesAreBuiltFromValues) {
  EXPECT_EQ(concat("step ", 3, " of ", 1.5, '!'), "step 3 of 1.5!");
  EXPECT_EQ(with_errno("cannot read f", ENOENT), "cannot read f: No such file or directory");
}

TEST(Error, ValidateThrowsTheNamedTypeOnlyWhenTheConditionFails) {
  int evaluated = 0;
  TESSERA_VALIDATE(++evaluated == 1, DataError, "not thrown");
  EXPECT_EQ(evaluated, 1);
  try {
    TESSERA_VALIDATE(evaluated == 2, ConfigError, "evaluated is ", evaluated, "; expected 2");
    FAIL() << "nothing was thrown";
  } catch (ConfigError const& e) {
    EXPECT_STREQ(e.what(), "evaluated is 1; expected 2");
  }
}

TEST(Error, AFailedContractNamesConditionAndPlace) {
  try {
    detail::contract_failed("precondition", "a < b", "file.cpp", 7, "a is 3");
  } catch (InternalError const& e) {
    EXPECT_THAT(e.what(), HasSubstr("precondition failed: a < b (a is 3) at file.cpp:7"));
  }
}

}  // namespace
}  // namespace tessera
