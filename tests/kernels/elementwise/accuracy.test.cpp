#include "tessera/kernels/elementwise/elementwise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace {

using namespace tessera;

TEST(Top1Hits, AreWhereTheTargetIsTheFirstOfTheLargest) {
  auto const queue = memory::make_inline_queue("compute");
  std::mt19937 random(3);
  std::uniform_int_distribution<int> few(0, 6);  // ties are frequent
  for (std::int64_t const columns : {1, 5, 37, 200}) {
    std::int64_t const rows = 50, stride = columns + 3;
    std::vector<float> logits(static_cast<std::size_t>(rows * stride), 100.0f), hits(rows, -1.0f);
    std::vector<std::int32_t> targets;
    std::vector<float> want;
    for (std::int64_t r = 0; r < rows; ++r) {
      std::int64_t best = 0;
      auto const at = [&](std::int64_t c) -> float& {
        return logits[static_cast<std::size_t>(r * stride + c)];
      };
      for (std::int64_t c = 0; c < columns; ++c) {
        at(c) = static_cast<float>(few(random));
        if (at(c) > at(best)) best = c;
      }
      auto const target = r % 5 == 0   ? -1
                          : r % 2 == 0 ? best
                                       : static_cast<std::int64_t>(random() % columns);
      targets.push_back(static_cast<std::int32_t>(target));
      want.push_back(target == best ? 1.0f : 0.0f);
    }
    kernels::top1_hits(*queue, {hits.data(), Dtype::fp32, {rows}},
                       {logits.data(), Dtype::fp32, {rows, stride}},
                       {targets.data(), Dtype::int32, {rows}}, columns);
    EXPECT_EQ(hits, want) << columns;
    std::vector<bfloat16> const rounded(logits.begin(), logits.end());
    std::fill(hits.begin(), hits.end(), -1.0f);
    kernels::top1_hits(*queue, {hits.data(), Dtype::fp32, {rows}},
                       {rounded.data(), Dtype::bf16, {rows, stride}},
                       {targets.data(), Dtype::int32, {rows}}, columns);
    EXPECT_EQ(hits, want) << columns << ", bf16";
  }
}

TEST(Top1Hits, WhatIsNotANumberIsNoHit) {
  auto const queue = memory::make_inline_queue("compute");
  std::vector<float> logits{NAN, 1.0f, 2.0f, NAN}, hits(2);
  std::vector<std::int32_t> targets{0, 0};
  kernels::top1_hits(*queue, {hits.data(), Dtype::fp32, {2}}, {logits.data(), Dtype::fp32, {2, 2}},
                     {targets.data(), Dtype::int32, {2}}, 2);
  EXPECT_EQ(hits, (std::vector<float>{0.0f, 0.0f}));
}

}  // namespace
