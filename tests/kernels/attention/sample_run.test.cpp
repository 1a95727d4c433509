#include "attention/sample_run.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "fake_device.hpp"

namespace tessera::kernels::detail {
namespace {

AttentionConfig const config{Dtype::bf16, {2, 40, 4, 2, 16, 0.25f}, {0.25f, 5, 96, 0}};

AttentionCalls portable_kernels(memory::Buffer& workspace) {
  return {[](Queue& q, auto const& c, auto const& to, auto const& in) {
            attention(q, c, to, in);
            return true;
          },
          [&](Queue& q, auto const& c, auto const& to, auto const& in, auto const& saved) {
            std::int64_t const numel = attention_backward_workspace(q, c.shape);
            workspace =
                memory::Buffer("workspace", memory::Purpose::workspace,
                               static_cast<std::size_t>(numel) * sizeof(float), memory_space_of(q));
            attention_backward(q, c, to, in, saved, workspace.view(Dtype::fp32, {numel}));
            return true;
          }};
}

/// Operands and masks go through device memory, late streams and the device's own kernels.
TEST(ComputeSample, PassesTheCheckOnAStream) {
  auto& device = test::FakeDevice::of_process();
  device.jitter_us = 50;
  auto const q = memory::make_stream_queue("compute");
  memory::Buffer workspace;
  auto const calls = portable_kernels(workspace);
  EXPECT_EQ(check_masks(config,
                        [&](AttentionSample& sample) { return compute_sample(*q, calls, sample); }),
            "");
  device.jitter_us = 0;
}

/// A captured stream cannot be waited for, and the graph must not hold the sample's work.
TEST(ComputeSample, IsNoPartOfAGraphThatIsCaptured) {
  test::FakeDevice::of_process();
  auto const q = memory::make_stream_queue("compute", memory::StreamPriority::normal,
                                           memory::GraphMode::capture);
  memory::Buffer workspace;
  auto const calls = portable_kernels(workspace);
  std::vector<std::string> said;
  std::atomic<int> ran = 0;
  for (int step = 0; step < 3; ++step)  // plain, captured, replayed
    q->run_as_graph("step", [&] {
      q->submit([&] { ++ran; });
      if (step == 0) return;
      said.push_back(check_masks(
          config, [&](AttentionSample& sample) { return compute_sample(*q, calls, sample); }));
    });
  q->record().wait("the steps", std::chrono::seconds(10));
  EXPECT_EQ(ran, 3);
  ASSERT_GE(said.size(), 2u);
  for (auto const& answer : said) EXPECT_EQ(answer, "");
}

TEST(ComputeSample, SaysWhenThereIsNoPlan) {
  auto const q = memory::make_inline_queue("compute");
  memory::Buffer workspace;
  auto calls = portable_kernels(workspace);
  calls.backward = [](auto const&...) { return false; };
  auto const said = check_masks(
      config, [&](AttentionSample& sample) { return compute_sample(*q, calls, sample); });
  EXPECT_NE(said.find("no plan"), std::string::npos) << said;
}

TEST(MaskFindings, AskOncePerClass) {
  MaskFindings findings;
  int asked = 0;
  auto const check = [&] {
    ++asked;
    return std::string("no");
  };
  EXPECT_EQ(findings.refusal(config, true, check), "no");
  AttentionConfig later = config;
  later.drop.stream = 7;
  later.shape.batch = 9;
  EXPECT_EQ(findings.refusal(later, true, check), "no");
  EXPECT_EQ(asked, 1) << "layers, steps and batches are of one class";
  findings.refusal(config, false, check);
  EXPECT_EQ(asked, 2) << "another backward pass";
  later.drop.p = 0.5f;
  findings.refusal(later, true, check);
  later.shape.sequence = 41;
  findings.refusal(later, true, check);
  EXPECT_EQ(asked, 4);
}

TEST(MaskFindings, AFailureIsAnAnswer) {
  MaskFindings findings;
  auto const fails = []() -> std::string { throw std::runtime_error("cuDNN failed"); };
  EXPECT_EQ(findings.refusal(config, true, fails), "cuDNN failed");
  EXPECT_EQ(findings.refusal(config, true, [] { return std::string(); }), "cuDNN failed");
}

TEST(MaskFindings, TooLittleMemoryIsNoAnswer) {
  MaskFindings findings;
  auto const fails = []() -> std::string { throw OutOfMemoryError("no room for the sample"); };
  EXPECT_THROW(findings.refusal(config, true, fails), OutOfMemoryError);
  EXPECT_EQ(findings.refusal(config, true, [] { return std::string(); }), "");
}

}  // namespace
}  // namespace tessera::kernels::detail
