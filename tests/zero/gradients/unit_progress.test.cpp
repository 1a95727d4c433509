#include "gradients/unit_progress.hpp"

#include <gtest/gtest.h>

#include "detail_fixture.hpp"
#include "tessera/core/error.hpp"

namespace tessera::zero::detail {
namespace {

struct Progress {
  test::Parts parts;
  UnitProgress progress{parts.plan, parts.units};
};

TEST(UnitProgress, IsOpenedOnceAndCompletedAfterwards) {
  Progress p;
  UnitIndex const head{1};
  EXPECT_THROW(p.progress.complete(head), InternalError) << "not opened";
  EXPECT_TRUE(p.progress.open(head));
  EXPECT_FALSE(p.progress.open(head)) << "the second contribution";
  p.progress.complete(head);
  EXPECT_THROW(p.progress.open(head), InternalError) << "after it was complete";
  EXPECT_THROW(p.progress.complete(head), InternalError) << "twice";
  p.progress.begin_micro_step();
  EXPECT_TRUE(p.progress.open(head));
}

TEST(UnitProgress, KnowsTheFirstIncompleteUnit) {
  Progress p;
  for (UnitIndex u = first_unit; u < p.parts.plan.end_unit(); ++u) {
    EXPECT_THROW(p.progress.expect_all_complete(), InternalError);
    p.progress.open(u);
    p.progress.complete(u);
  }
  p.progress.expect_all_complete();
}

TEST(UnitProgress, ZeroesWhatNoKernelWrites) {
  test::Parts parts;
  auto units = parts.units;
  units[0].parameters[0].aliases = {"lm_head.weight"};
  UnitProgress const progress(parts.plan, units);
  auto const& layout = parts.plan.unit(first_unit);
  std::vector<float> values(static_cast<std::size_t>(layout.padded_numel), 1.0f);
  memory::TensorView const whole{values.data(), Dtype::fp32, {layout.padded_numel}};
  progress.clear_padding(*parts.compute, first_unit, whole);
  auto const owner = [&](std::int64_t at) {
    for (std::size_t i = 0; i < layout.parameters.size(); ++i)
      if (UnitOffset(at) >= layout.parameters[i].offset &&
          UnitOffset(at) < layout.parameters[i].end())
        return static_cast<int>(i);
    return -1;
  };
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], owner(static_cast<std::int64_t>(i)) < 0 ? 0.0f : 1.0f) << i;
  progress.clear_untied(*parts.compute, first_unit, whole);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], owner(static_cast<std::int64_t>(i)) == 0 ? 1.0f : 0.0f) << i;
}

}  // namespace
}  // namespace tessera::zero::detail
