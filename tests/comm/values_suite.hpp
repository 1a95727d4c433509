#pragma once
/// Host values and byte strings over every implementation.
#include <gtest/gtest.h>

#include "comm_test.hpp"

namespace tessera::comm::test {
namespace {

class Values : public ::testing::TestWithParam<Implementation> {
 protected:
  std::unique_ptr<Collectives> comm_ = make(GetParam());
  int rank_ = comm_->rank(), ranks_ = comm_->size();
};

TEST_P(Values, AgreeIsAnAndOverRanks) {
  EXPECT_TRUE(agree(*comm_, true));
  for (int no = 0; no < ranks_; ++no) EXPECT_FALSE(agree(*comm_, rank_ != no));
}

TEST_P(Values, NumbersAreExact) {
  std::int64_t const big = (std::int64_t{1} << 53) + 1 + rank_;
  EXPECT_EQ(all_reduce_value(*comm_, big, ReduceOp::sum),
            ranks_ * ((std::int64_t{1} << 53) + 1) + ranks_ * (ranks_ - 1) / 2);
  EXPECT_EQ(all_reduce_value(*comm_, 0.25 * rank_, ReduceOp::max), 0.25 * (ranks_ - 1));
  std::vector<double> values{1.0 + rank_, -1.0 * rank_, 1e300};
  all_reduce_values(*comm_, values, ReduceOp::min);
  EXPECT_EQ(values, (std::vector<double>{1.0, -1.0 * (ranks_ - 1), 1e300}));
}

TEST_P(Values, BytesOfAnyLength) {
  for (std::size_t const length : {0u, 1u, 100u, 3'000'001u}) {
    int const root = ranks_ - 1;
    std::string const text(length, 'x');
    EXPECT_EQ(broadcast_bytes(*comm_, rank_ == root ? text : "something else", root), text);
  }
}

TEST_P(Values, GatheredBytesMayDifferInLength) {
  for (int root = 0; root < ranks_; ++root) {
    auto const all = gather_bytes(
        *comm_, std::string(static_cast<std::size_t>(rank_) * 1000, static_cast<char>('a' + rank_)),
        root);
    ASSERT_EQ(all.size(), rank_ == root ? static_cast<std::size_t>(ranks_) : 0u);
    for (std::size_t q = 0; q < all.size(); ++q)
      EXPECT_EQ(all[q], std::string(q * 1000, static_cast<char>('a' + q)));
  }
}

TEST_P(Values, WrongArgumentsAreRefusedBeforeAnythingIsSent) {
  Array a(*comm_, Placement::ordinary, Dtype::fp32, 10 * ranks_),
      half(*comm_, Placement::ordinary, Dtype::fp16, 10);
  EXPECT_THROW((void)comm_->broadcast(a.view(), ranks_, {}), InternalError);
  EXPECT_THROW((void)comm_->all_gather(a.view(), {11, 11, 0}, {}), InternalError);
  EXPECT_THROW((void)comm_->reduce_scatter(a.view(), {10, 10, 0}, a.view(0, 3),
                                           memory::WriteMode::overwrite, {}),
               InternalError);
  EXPECT_THROW((void)comm_->all_gather(half.view(), a.view(), {10, 10, 0}, {}), InternalError);
  comm_->barrier();
}

inline std::string name_of_case(::testing::TestParamInfo<Implementation> const& info) {
  return name_of(info.param);
}

}  // namespace
}  // namespace tessera::comm::test
