#include "sequences/packing.hpp"

#include <gtest/gtest.h>

#include "tessera/core/config_tree.hpp"

namespace tessera::data::detail {
namespace {

std::vector<PackedRow> rows_in(ConfigTree const& rows) {
  std::vector<PackedRow> out;
  auto const number = [](ConfigTree const& part, std::size_t i) {
    return static_cast<std::size_t>(part.as_array()[i].as_int());
  };
  for (auto const& row : rows.as_array()) {
    PackedRow parts;
    for (auto const& part : row.as_array())
      parts.push_back({number(part, 0), number(part, 1), number(part, 2)});
    out.push_back(std::move(parts));
  }
  return out;
}

TEST(Packing, MakesTheRowsOfPackDataset) {
  auto const stored = ConfigTree::read(TESSERA_TEST_DATA "/oracles/trl_packing.json");
  for (auto const& c : stored.as_array()) {
    std::vector<std::size_t> lengths;
    for (auto const& length : c.at("lengths").as_array())
      lengths.push_back(static_cast<std::size_t>(length.as_int()));
    auto const row = static_cast<std::size_t>(c.at("row").as_int());
    EXPECT_EQ(pack_best_fit(lengths, row, Overflow::truncate), rows_in(c.at("bfd"))) << row;
    EXPECT_EQ(pack_best_fit(lengths, row, Overflow::split), rows_in(c.at("bfd_split"))) << row;
    EXPECT_EQ(pack_wrapped(lengths, row), rows_in(c.at("wrapped"))) << row;
  }
}

TEST(Packing, OfNothingIsNothing) {
  EXPECT_TRUE(pack_best_fit({}, 4, Overflow::split).empty());
  EXPECT_TRUE(pack_wrapped({}, 4).empty());
  std::vector<std::size_t> const empty{0, 0};
  EXPECT_TRUE(pack_best_fit(empty, 4, Overflow::truncate).empty());
}

}  // namespace
}  // namespace tessera::data::detail
