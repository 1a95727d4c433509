#include "families/fields.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tessera/core/error.hpp"

namespace tessera::model::detail {
namespace {

ConfigTree const config = ConfigTree::parse(
    R"({"n": 3, "big": 2147483648, "zero": 0, "p": 0.1, "one": 1.0, "on": true, "name": "gelu", "no": null})",
    "test");

TEST(Fields, ReadEachType) {
  Fields const fields(config);
  EXPECT_EQ(fields.integer("n"), 3);
  EXPECT_EQ(fields.positive("n"), 3);
  EXPECT_EQ(fields.real("p"), 0.1);
  EXPECT_EQ(fields.real("n"), 3.0);
  EXPECT_EQ(fields.probability("p"), 0.1);
  EXPECT_EQ(fields.probability("zero"), 0.0);
  EXPECT_TRUE(fields.flag("on"));
  EXPECT_EQ(fields.text("name"), "gelu");
  EXPECT_TRUE(fields.is_set("n"));
  EXPECT_FALSE(fields.is_set("no"));
  EXPECT_FALSE(fields.is_set("missing"));
}

TEST(Fields, ErrorsNameTheField) {
  Fields const fields(config);
  auto const refusal = [](std::function<void()> const& read) -> std::string {
    try {
      read();
    } catch (Error const& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(refusal([&] { (void)fields.integer("missing"); }),
              testing::StartsWith("config.json: missing is missing"));
  EXPECT_THAT(refusal([&] { (void)fields.integer("no"); }),
              testing::StartsWith("config.json: no is missing"));
  EXPECT_THAT(
      refusal([&] { (void)fields.integer("name"); }),
      testing::StartsWith("config.json: name is \"gelu\" (a string); it must be an integer"));
  EXPECT_THAT(refusal([&] { (void)fields.positive("zero"); }),
              testing::StartsWith("config.json: zero is 0; it must be between 1 and"));
  EXPECT_THAT(refusal([&] { (void)fields.positive("big"); }),
              testing::StartsWith("config.json: big is 2147483648; it must be between 1 and"));
  EXPECT_THAT(refusal([&] { (void)fields.probability("one"); }),
              testing::StartsWith("config.json: one is 1; a dropout probability must be"));
  EXPECT_THAT(refusal([&] { (void)fields.flag("n"); }),
              testing::StartsWith("config.json: n is 3 (an integer); it must be true or false"));
}

}  // namespace
}  // namespace tessera::model::detail
