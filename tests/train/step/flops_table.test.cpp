#include "tessera/train/step/flops_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<memory::UnitSpec> units() {
  return {{"embedding", {{"wte", {100, 8}, {}, true, {}}, {"wpe", {16, 8}, {}, true, {}}}},
          {"block.0",
           {{"ln.weight", {8}, {}, true, {}},
            {"attn", {8, 24}, {}, true, {}},
            {"proj", {8, 8}, {}, true, {}},
            {"fc", {8, 32}, {}, true, {}},
            {"out", {32, 8}, {}, true, {}}}},
          {"head", {{"ln_f.weight", {8}, {}, true, {}}}}};
}

ProfiledStep step() {
  ProfiledStep s;
  s.step = 2;
  s.sequences = 3;
  s.sequence_length = 16;
  s.hidden_size = 8;
  s.vocabulary = 100;
  s.phases = {0.001, 0.010, 0.020, 0.005, {}};
  return s;
}

enum class Detail { totals, units };

config::FlopsProfiler options_with(std::int64_t top, Detail detail, double recompute) {
  config::FlopsProfiler options;
  options.top_units = top;
  options.detailed = detail == Detail::units;
  options.recompute_factor = recompute;
  return options;
}

/// The counts by hand: 48 tokens; 768 matrix weights per block; scores and values 2*3*16*16*8.
TEST(FlopsTable, CountsMatrixProducts) {
  auto const profile = profile_units(units(), {{0.001, 0.0}, {0.009, 0.015}, {0.0, 0.005}}, step());
  ASSERT_EQ(profile.size(), 3u);
  EXPECT_EQ(profile[0].parameters, 928);
  EXPECT_EQ(profile[0].macs, 0.0);
  EXPECT_EQ(profile[1].parameters, 776);
  EXPECT_EQ(profile[1].macs, 48.0 * 768 + 2 * 3 * 16 * 16 * 8);
  EXPECT_EQ(profile[2].macs, 48.0 * 800);
}

TEST(FlopsTable, HasTotalsSharesAndTheSlowestUnits) {
  auto const profile = profile_units(units(), {{0.001, 0.0}, {0.009, 0.015}, {0.0, 0.005}}, step());
  auto const text = flops_table(profile, step(), options_with(2, Detail::units, 0.0));
  EXPECT_THAT(text, HasSubstr("profile of step 2 on rank 0 of 1 rank: 3 sequences of 16 tokens"));
  EXPECT_THAT(text, HasSubstr("parameters 1,712"));
  EXPECT_THAT(text, HasSubstr("slowest: block.0 24.000 ms\n  slowest: head 5.000 ms\n"));
  EXPECT_THAT(text, HasSubstr("block.0"));
  EXPECT_THAT(text, HasSubstr("80.0 %")) << "24 of 30 ms";
  auto const totals = flops_table(profile, step(), options_with(1, Detail::totals, 0.0));
  EXPECT_THAT(totals, Not(HasSubstr("backw. ms")));
  auto const more = flops_table(profile, step(), options_with(1, Detail::totals, 1.0));
  EXPECT_NE(more, totals) << "recomputed passes count";
}

}  // namespace
}  // namespace tessera::train
