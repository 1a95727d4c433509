#include "checkpoint/tables.hpp"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(Tables, ListsBecomeJson) {
  EXPECT_EQ(json_array(std::vector<std::string>{"a", "b"}).dump(), R"(["a","b"])");
  EXPECT_EQ(json_array(std::vector<std::int64_t>{768, 2304}).dump(), "[768,2304]");
  EXPECT_EQ(json_array(std::vector<std::string>{}).dump(), "[]");
}

TEST(Tables, ShapesAreReadable) {
  EXPECT_EQ(shape_text({768, 2304}), "[768, 2304]");
  EXPECT_EQ(shape_text({}), "[]");
}

TEST(Tables, ColumnsFitTheirLongestText) {
  std::vector<std::string> const names{"wte", "ln_f.weight"};
  auto const self = [](std::string const& name) { return name; };
  EXPECT_EQ(column_width(names, 4, self), 11u);
  EXPECT_EQ(column_width(names, 20, self), 20u);
  EXPECT_EQ(column_width(std::vector<std::string>{}, 4, self), 4u);
}

}  // namespace
}  // namespace tessera::cli
