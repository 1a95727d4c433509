/// Gradients of values: overwritten first, then added, shared until one of them changes.
#include "layers/tape.hpp"

#include <gmock/gmock.h>

namespace tessera::model::detail {
namespace {

using testing::ElementsAre;

/// A tape without parameters on rows [2, 1].
struct TapeTest : testing::Test {
  std::unique_ptr<Queue> queue = memory::make_inline_queue("compute");
  Arena arena{"activations", memory::Purpose::activations};
  PassContext pass{
      .compute = *queue, .arena = arena, .dtype = Dtype::fp32, .batch = 2, .sequence = 1};
  WeightLease weights;
  GradientLease gradients{{}, memory::WriteMode::overwrite};
  std::vector<float> stream{1.0f, -2.0f};
  Tape tape;

  TensorView rows() const { return pass.allocate(2, 1); }
  std::vector<float> run(Value const& in, Value const& out) {
    BackwardLeases const leases{weights, gradients};
    TapeBackward backward(pass, leases, tape);
    backward.run(tape, in, out, {stream.data(), Dtype::fp32, {2, 1}});
    EXPECT_EQ(backward.first_unwritten(), 0u) << "there are none";
    return stream;
  }
  /// a + b
  Value add(Value const& a, Value const& b) {
    return tape.record(rows(), [=](Backward& backward) {
      backward.pass_on(a);
      backward.pass_on(b);
    });
  }
  /// factor * in
  Value scale(Value const& in, float factor) {
    return tape.record(rows(), [=, this](Backward& backward) {
      backward.write(in, [&](TensorView din) {
        kernels::cast(*queue, din, backward.gradient());
        kernels::scale(*queue, din, factor);
      });
    });
  }
};

TEST_F(TapeTest, AddsWhatSeveralUsesGive) {
  Value const x = tape.add(rows());
  EXPECT_THAT(run(x, add(add(x, scale(x, 3.0f)), x)), ElementsAre(5.0f, -10.0f));
}

/// The sum's gradient is that of both branches; x gets more before the other branch reads its own.
TEST_F(TapeTest, CopiesSharedGradientsBeforeTheyChange) {
  Value const x = tape.add(rows());
  Value const early = scale(x, 10.0f);
  Value const late = scale(x, 7.0f);
  EXPECT_THAT(run(x, add(add(x, early), late)), ElementsAre(18.0f, -36.0f));
}

TEST_F(TapeTest, LeavesTheStreamOfAnIdentityAndClearsThatOfAConstant) {
  Value const x = tape.add(rows());
  EXPECT_THAT(run(x, x), ElementsAre(1.0f, -2.0f));
  Value const constant = tape.record(rows(), [](Backward&) {});
  EXPECT_THAT(run(x, constant), ElementsAre(0.0f, 0.0f));
}

TEST_F(TapeTest, SkipsOperationsWithoutAnEffect) {
  Value const x = tape.add(rows());
  (void)scale(x, 100.0f);
  EXPECT_THAT(run(x, scale(x, 2.0f)), ElementsAre(2.0f, -4.0f));
}

TEST_F(TapeTest, GivesEachValueItsDtype) {
  Value const x = tape.add(rows());
  Value const half = tape.record(arena.allocate(Dtype::bf16, {2, 1}),
                                 [=](Backward& backward) { backward.pass_on(x); });
  Value const sum = tape.record(rows(), [=](Backward& backward) { backward.pass_on(half); });
  EXPECT_THAT(run(x, sum), ElementsAre(1.0f, -2.0f));
}

}  // namespace
}  // namespace tessera::model::detail
