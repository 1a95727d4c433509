#include "sampling/epoch_order.hpp"

#include <gtest/gtest.h>

#include "tessera/core/config_tree.hpp"

namespace tessera::data::detail {
namespace {

/// Real torch.randperm: tests/oracles/data_order.py.
TEST(TorchRandperm, IsTorchs) {
  ConfigTree const vectors = ConfigTree::read(TESSERA_TEST_DATA "/data/vectors/data_order.json");
  for (auto const& expected : vectors.at("permutations").as_array()) {
    SCOPED_TRACE(expected.dump());
    auto const order = torch_randperm(expected.at("samples").as_int(),
                                      static_cast<std::uint64_t>(expected.at("seed").as_int()));
    auto const& first = expected.at("first").as_array();
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(order[i], first[i].as_int());
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < order.size(); ++i) sum += i * order[i];
    EXPECT_EQ(static_cast<std::int64_t>(sum), expected.at("sum").as_int());
  }
  EXPECT_TRUE(torch_randperm(0, 1).empty());
}

}  // namespace
}  // namespace tessera::data::detail
