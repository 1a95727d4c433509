/// The search for configurations: every pair is in one of them, or in no accepted configuration.
#include "covering_array.hpp"

#include <gtest/gtest.h>

namespace tessera::test {
namespace {

bool contains(Configuration const& c, Level a, Level b) {
  return c[static_cast<std::size_t>(a.factor)] == a.level &&
         c[static_cast<std::size_t>(b.factor)] == b.level;
}

template <class Visit>
void for_each_pair(std::vector<int> const& levels, Visit visit) {
  for (int a = 0; a < static_cast<int>(levels.size()); ++a)
    for (int b = a + 1; b < static_cast<int>(levels.size()); ++b)
      for (int i = 0; i < levels[static_cast<std::size_t>(a)]; ++i)
        for (int j = 0; j < levels[static_cast<std::size_t>(b)]; ++j)
          visit(Level{a, i}, Level{b, j});
}

std::vector<Configuration> all_configurations(std::vector<int> const& levels) {
  std::vector<Configuration> out{{}};
  for (int const count : levels) {
    std::vector<Configuration> longer;
    for (auto const& c : out)
      for (int level = 0; level < count; ++level) {
        longer.push_back(c);
        longer.back().push_back(level);
      }
    out = std::move(longer);
  }
  return out;
}

TEST(CoveringArray, HasEveryPairInFewConfigurations) {
  std::vector<int> const levels{4, 3, 3, 3, 3, 3, 2, 2, 2, 2};
  auto const array = covering_array(levels, [](Configuration const&) { return std::string(); });
  EXPECT_TRUE(array.refused.empty());
  std::size_t pairs = 0;
  for_each_pair(levels, [&](Level a, Level b) {
    ++pairs;
    EXPECT_TRUE(
        std::ranges::any_of(array.configurations, [&](auto const& c) { return contains(c, a, b); }))
        << a.factor << "=" << a.level << " " << b.factor << "=" << b.level;
  });
  EXPECT_EQ(array.covered_pairs, pairs);
  EXPECT_LE(array.configurations.size(), 20u) << "4 x 3 are needed";
}

/// Refuses a pair, three levels together, and a level with all but one level of another factor.
std::string refusal(Configuration const& c) {
  if (c[0] == 1 && c[1] == 2) return "pair";
  if (c[0] == 0 && c[2] == 1 && c[3] == 1) return "triple";
  if (c[4] == 1 && c[1] != 1) return "needs another level";
  return {};
}

TEST(CoveringArray, RefusesExactlyThePairsOfNoAcceptedConfiguration) {
  std::vector<int> const levels{3, 3, 2, 3, 2, 2};
  int accepted_by_judge = 0;
  auto const array = covering_array(levels, [&](Configuration const& c) {
    accepted_by_judge += refusal(c).empty();
    return refusal(c);
  });
  EXPECT_GT(accepted_by_judge, 0);
  for (auto const& c : array.configurations) EXPECT_EQ(refusal(c), "");
  auto const all = all_configurations(levels);
  for_each_pair(levels, [&](Level a, Level b) {
    auto const has = [&](Configuration const& c) { return contains(c, a, b); };
    bool const allowed = std::ranges::any_of(
        all, [&](Configuration const& c) { return has(c) && refusal(c).empty(); });
    EXPECT_EQ(std::ranges::any_of(array.configurations, has), allowed);
    EXPECT_EQ(std::ranges::any_of(array.refused,
                                  [&](auto const& r) { return r.first == a && r.second == b; }),
              !allowed);
  });
  ASSERT_EQ(array.refused.size(), 3u);  // 0=1 with 1=2, and 4=1 with 1=0 and with 1=2
  EXPECT_TRUE(array.refused[0].reasons.contains("pair"));
  EXPECT_TRUE(array.refused[1].reasons.contains("needs another level"));
}

TEST(CoveringArray, CoversPairsAgainUpToANumberOfConfigurations) {
  std::vector<int> const levels{3, 3, 2, 3, 2, 2};
  auto const few = covering_array(levels, refusal), many = covering_array(levels, refusal, 40);
  EXPECT_LT(few.configurations.size(), 40u);
  EXPECT_EQ(many.configurations.size(), 40u);
  EXPECT_EQ(many.covered_pairs, few.covered_pairs);
  EXPECT_TRUE(std::equal(few.configurations.begin(), few.configurations.end(),
                         many.configurations.begin()));
  for (auto const& c : many.configurations) EXPECT_EQ(refusal(c), "");
}

TEST(CoveringArray, IsTheSameInEveryProcess) {
  std::vector<int> const levels{3, 3, 2, 3, 2, 2};
  EXPECT_EQ(covering_array(levels, refusal).configurations,
            covering_array(levels, refusal).configurations);
}

}  // namespace
}  // namespace tessera::test
