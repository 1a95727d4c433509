#include "tessera/train/device_choice.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

TEST(MultiprocessorsOfProducts, AreThoseThatCommunicationLeaves) {
  EXPECT_EQ(multiprocessors_of_products(16, 132, 8), 116);
  EXPECT_EQ(multiprocessors_of_products(131, 132, 2), 1);
}

TEST(MultiprocessorsOfProducts, AreAllWithoutABoundAndOnOneRank) {
  EXPECT_EQ(multiprocessors_of_products(0, 132, 8), 0);
  EXPECT_EQ(multiprocessors_of_products(16, 132, 1), 0);
}

TEST(MultiprocessorsOfProducts, NoneLeftIsRefused) {
  try {
    multiprocessors_of_products(132, 132, 2);
    FAIL() << "accepted";
  } catch (ConfigError const& error) {
    EXPECT_NE(std::string(error.what()).find("has 132 multiprocessors"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::train
