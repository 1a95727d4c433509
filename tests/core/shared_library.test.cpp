#include "tessera/core/shared_library.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(SharedLibrary, LoadsTheFirstThatExists) {
  SharedLibrary const library({"libtessera-absent.so.9", "libm.so.6"});
  ASSERT_TRUE(library.loaded());
  EXPECT_EQ(library.load_error(), "");
  double (*cosine)(double) = nullptr;
  ASSERT_TRUE(library.find("cos", cosine));
  EXPECT_EQ(cosine(0.0), 1.0);
  EXPECT_EQ(library.find("tessera_no_such_symbol"), nullptr);
}

TEST(SharedLibrary, ReportsTheFirstFailureWhenNoneLoads) {
  SharedLibrary const library({"libtessera-first.so.9", "libtessera-second.so.9"});
  EXPECT_FALSE(library.loaded());
  EXPECT_THAT(library.load_error(), ::testing::HasSubstr("libtessera-first.so.9"));
  void (*function)() = nullptr;
  EXPECT_FALSE(library.find("cos", function));
}

TEST(SharedLibrary, DefaultHoldsNoLibrary) {
  SharedLibrary const library;
  EXPECT_FALSE(library.loaded());
  EXPECT_EQ(library.find("cos"), nullptr);
}

}  // namespace
}  // namespace tessera
