/// The suite of the interface through NCCL's implementation; the fake below notes every breach of
/// NCCL's contract on the way.
#include "collectives_suite.hpp"
#include "fake_nccl.hpp"
#include "groups_suite.hpp"

namespace tessera::comm::test {
namespace {

class NoBreach : public ::testing::EmptyTestEventListener {
  void OnTestEnd(::testing::TestInfo const& info) override {
    for (auto const& text : tessera::test::take_nccl_breaches())
      ADD_FAILURE() << info.name() << ": " << text;
  }
};
[[maybe_unused]] bool const listening =
    (::testing::UnitTest::GetInstance()->listeners().Append(new NoBreach), true);

INSTANTIATE_TEST_SUITE_P(Nccl, CollectivesSuite,
                         ::testing::Combine(::testing::Values(Implementation::nccl),
                                            ::testing::Values(Dtype::fp32, Dtype::bf16,
                                                              Dtype::int64),
                                            ::testing::Values(Placement::allocated)),
                         name_of_case);

INSTANTIATE_TEST_SUITE_P(Nccl, Groups,
                         ::testing::Combine(::testing::Values(Implementation::nccl),
                                            ::testing::Values(Dtype::fp32, Dtype::bf16)),
                         [](auto const& info) {
                           return std::string(tessera::name_of(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace tessera::comm::test
