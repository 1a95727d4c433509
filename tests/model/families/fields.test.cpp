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
  EXPECT_THAT(refusal([&] { (void)fields.integer("missing"); }), testing::HasSubstr("missing"));
  EXPECT_THAT(refusal([&] { (void)fields.integer("no"); }), testing::HasSubstr("no"));
  EXPECT_THAT(refusal([&] { (void)fields.integer("name"); }), testing::HasSubstr("name"));
  EXPECT_THAT(refusal([&] { (void)fields.positive("zero"); }), testing::HasSubstr("zero"));
  EXPECT_THAT(refusal([&] { (void)fields.positive("big"); }), testing::HasSubstr("big"));
  EXPECT_THAT(refusal([&] { (void)fields.probability("one"); }), testing::HasSubstr("one"));
  EXPECT_THAT(refusal([&] { (void)fields.flag("n"); }), testing::HasSubstr("n"));
}

}  // namespace
}  // namespace tessera::model::detail
