/// How NCCL's communicators are configured, and what is refused before they start. Oracle: the
/// configurations that the fake notes.
#include "nccl_test.hpp"

namespace tessera::comm::test {
namespace {

constexpr int own_choice = std::numeric_limits<int>::min();  // NCCL_CONFIG_UNDEF_INT

class NcclStreams : public Nccl {
 protected:
  NcclOptions zero_{.cta_policy = NcclCtaPolicy::zero},
      efficiency_{.cta_policy = NcclCtaPolicy::efficiency};
};

TEST_F(NcclStreams, BothCommunicatorsTogetherTakeAtMostTheGivenMultiprocessors) {
  struct Case {
    int multiprocessors, of_each;
  };
  for (Case const c : {Case{0, own_choice}, {1, 1}, {17, 8}, {32, 16}}) {
    comm_.reset();
    take_nccl_ctas();
    make(60s, {.multiprocessors = c.multiprocessors});
    auto const group = comm_->split({.color = 0, .key = rank(), .name = "all"});
    EXPECT_EQ(take_nccl_ctas(), std::vector(4, NcclCtas{c.of_each, own_choice}))
        << c.multiprocessors;
  }
  comm_.reset();
  nccl_faults().version = 22506;  // one communicator
  take_nccl_ctas();
  make(60s, {.multiprocessors = 17});
  EXPECT_EQ(take_nccl_ctas(), (std::vector{NcclCtas{17, own_choice}}));
}

TEST_F(NcclStreams, EveryCommunicatorHasTheCtaPolicy) {
  take_nccl_ctas();
  make(60s, {.multiprocessors = 16, .cta_policy = NcclCtaPolicy::zero});
  auto const group = comm_->split({.color = 0, .key = rank(), .name = "all"});
  EXPECT_EQ(take_nccl_ctas(), std::vector(4, NcclCtas{8, 2}));
  comm_.reset();
  nccl_faults().version = 22703;
  make(60s, efficiency_);
  EXPECT_EQ(take_nccl_ctas(), std::vector(2, NcclCtas{own_choice, 1}));
  EXPECT_EQ(nccl_use()->cta_policy, NcclCtaPolicy::efficiency);
}

TEST_F(NcclStreams, AFailedStartAbortsBothCommunicatorsInOneGroup) {
  nccl_faults().split_fails = is_last();
  take_nccl_aborts();
  auto const text = refusal<Error>([&] { make(brief); });
  if (is_last())
    expect_text(text, {"ncclCommSplit", "internal error"});
  else
    expect_text(text, {"NCCL could not be started on another rank"});
  EXPECT_EQ(take_nccl_aborts(), std::vector<int>{2});
}

TEST_F(NcclStreams, OlderLibrariesRefuseACtaPolicy) {
  nccl_faults().version = 22706;
  expect_text(refusal<Error>([&] { make(60s, zero_); }),
              {"--nccl_cta_policy zero needs NCCL 2.28.0", "2.27.6", "leave the option out"});
  nccl_faults().version = 22606;
  expect_text(refusal<Error>([&] { make(60s, efficiency_); }),
              {"--nccl_cta_policy efficiency needs NCCL 2.27.0", "2.26.6"});
}

TEST_F(NcclStreams, AContradictingEnvironmentOfOneRankIsRefusedOnAll) {
  if (is_last()) setenv("NCCL_CTA_POLICY", "1", 1);
  auto const last = concat("on rank ", ranks() - 1);
  expect_text(refusal<Error>([&] { make(60s, zero_); }), {"NCCL_CTA_POLICY=1", last});
  make(60s, efficiency_);
  if (is_last()) setenv("NCCL_WIN_ENABLE", "0", 1);
  setenv("NCCL_CTA_POLICY", "ZERO", 1);
  comm_.reset();
  expect_text(refusal<Error>([&] { make(60s, zero_); }), {"NCCL_WIN_ENABLE=0", last});
  unsetenv("NCCL_WIN_ENABLE");
  make(60s, zero_);
}

}  // namespace
}  // namespace tessera::comm::test
