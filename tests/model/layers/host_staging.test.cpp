#include "layers/host_staging.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "fake_device.hpp"

namespace tessera::model::detail {
namespace {

using Ints = std::vector<std::int32_t>;

enum class Place { caller, worker, device };

/// A queue of each kind with an arena where its kernels find their operands.
class HostStaging : public ::testing::TestWithParam<Place> {
 protected:
  HostStaging() {
    if (GetParam() == Place::device) device_.emplace();
    queue_ = GetParam() == Place::caller   ? memory::make_inline_queue("compute")
             : GetParam() == Place::worker ? memory::make_worker_queue("compute")
                                           : memory::make_stream_queue("compute");
    arena_.emplace("activations", memory::Purpose::activations, memory::memory_space_of(*queue_));
  }
  void finish() { queue_->record().wait("the queue", std::chrono::seconds(60)); }
  PassContext pass() {
    return {.compute = *queue_, .arena = *arena_, .dtype = Dtype::fp32, .batch = 2, .sequence = 3};
  }
  static Ints read(TensorView view) {
    auto const* const data = view.as<std::int32_t>();
    return {data, data + view.numel()};
  }

  std::optional<tessera::test::FakeDevice> device_;
  std::unique_ptr<Queue> queue_;
  std::optional<Arena> arena_;
};
INSTANTIATE_TEST_SUITE_P(Places, HostStaging,
                         ::testing::Values(Place::caller, Place::worker, Place::device));

TEST_P(HostStaging, TargetsAreTheNextTokensAndTheBatchMayChangeAfterTheCall) {
  PinnedInputBuffers buffers;
  std::vector<Inputs> staged;
  for (std::int32_t first = 0; first < 50; first += 10) {  // more than there are buffers
    Ints tokens{first + 5, first + 1, first + 4, first + 1, first + 2, first + 3};
    staged.push_back(buffers.stage(pass(), {.tokens = tokens.data(), .rows = 2, .sequence = 3},
                                   PassKind::training));
    tokens.assign(6, -7);
  }
  finish();
  for (std::int32_t i = 0; i < 5; ++i) {
    std::int32_t const first = 10 * i;
    Inputs const& inputs = staged[static_cast<std::size_t>(i)];
    EXPECT_EQ(read(inputs.tokens),
              (Ints{first + 5, first + 1, first + 4, first + 1, first + 2, first + 3}));
    EXPECT_EQ(read(inputs.targets), (Ints{first + 1, first + 4, -1, first + 2, first + 3, -1}));
    if (GetParam() == Place::device) {
      EXPECT_EQ(read(inputs.order), (Ints{1, 3, 4, 5, 2, 0}));
    } else {
      EXPECT_TRUE(inputs.order.empty());
    }
  }
}

TEST_P(HostStaging, DocumentsHaveStartsPositionsAndMaskedTargets) {
  PinnedInputBuffers buffers;
  Ints const tokens{1, 9, 2, 9, 9, 3};
  Inputs const inputs =
      buffers.stage(pass(), {.tokens = tokens.data(), .rows = 2, .sequence = 3}, PassKind::training,
                    {.eod_token = 9,
                     .reset_attention_mask = true,
                     .reset_position_ids = true,
                     .eod_mask_loss = true});
  finish();
  EXPECT_EQ(read(inputs.targets), (Ints{9, -1, -1, -1, -1, -1}));
  EXPECT_EQ(read(inputs.documents), (Ints{0, 0, 2, 0, 1, 2}));
  EXPECT_EQ(read(inputs.positions), (Ints{0, 1, 0, 0, 0, 0}));
  if (GetParam() == Place::device) {
    EXPECT_EQ(read(inputs.position_order), (Ints{0, 2, 3, 4, 5, 1}));
  }
}

TEST_P(HostStaging, AForwardPassGetsNoOrder) {
  PinnedInputBuffers buffers;
  Ints const tokens{1, 2, 3, 4, 5, 6};
  Inputs const inputs =
      buffers.stage(pass(), {.tokens = tokens.data(), .rows = 2, .sequence = 3}, PassKind::forward);
  finish();
  EXPECT_TRUE(inputs.order.empty());
  EXPECT_EQ(inputs.dropout_place, nullptr);
}

TEST_P(HostStaging, APassThatTrainsKnowsItsPlaceInTheRun) {
  PinnedInputBuffers buffers;
  Ints const tokens{1, 2, 3, 4, 5, 6};
  std::vector<Inputs> staged;
  for (std::uint64_t step = 0; step < 5; ++step) {
    PassContext of_step = pass();
    of_step.step = step;
    staged.push_back(buffers.stage(of_step,
                                   {.tokens = tokens.data(),
                                    .rows = 2,
                                    .sequence = 3,
                                    .first_global_row = static_cast<std::int64_t>(10 * step)},
                                   PassKind::training));
  }
  finish();
  for (std::uint64_t step = 0; step < 5; ++step) {
    EXPECT_EQ(staged[step].dropout_place->stream, step << 24);
    EXPECT_EQ(staged[step].dropout_place->first_row, 10 * step);
  }
}

TEST_P(HostStaging, SumsThatAreHeldTogetherStayApart) {
  LossReadback readback;
  TensorView const losses = arena_->allocate(Dtype::fp32, {4});
  float const values[2][4] = {{1, 2, 3, 4}, {0.5f, 0, 0, 0.25f}};
  for (int round = 0; round < 3; ++round) {
    memory::copy(*queue_, losses.data(), values[0], sizeof values[0]);
    LossSum const first = readback.sum(*queue_, losses);
    memory::copy(*queue_, losses.data(), values[1], sizeof values[1]);
    LossSum const second = readback.sum(*queue_, losses);
    EXPECT_EQ(first.value(), 10.0);
    EXPECT_EQ(second.value(), 0.75);
  }
}

}  // namespace
}  // namespace tessera::model::detail
