#include "attention/attention_cudnn.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention/document_mask.hpp"
#include "attention/plan_room.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::kernels::detail {
namespace {

struct Measured {
  int major;
  bool deterministic;
  std::int64_t batch;
  int heads, kv_heads;
  std::int64_t sequence;
  int head_dim;
  double megabytes;  ///< 10^6 bytes
};

AttentionConfig config_of(Measured const& m) {
  return {Dtype::bf16, {m.batch, m.sequence, m.heads, m.kv_heads, m.head_dim}, {}};
}

/// Workspaces of the backward plans of cuDNN 9.26 (frontend 1.32), built from the properties of an
/// A100, H100 and B200 without a device, and of 9.19 for an RTX PRO 6000. 9.19 has the same on the
/// H100.
std::vector<Measured> const measured{
    {8, true, 4, 12, 12, 1024, 64, 100.860},  {8, false, 4, 12, 12, 1024, 64, 25.363},
    {8, true, 2, 32, 8, 1000, 128, 167.242},  {8, false, 2, 32, 8, 1000, 128, 98.560},
    {8, true, 1, 32, 8, 8192, 128, 4430.234}, {8, true, 1, 16, 16, 17, 80, 0.132},
    {9, true, 4, 12, 12, 1024, 64, 100.860},  {9, false, 4, 12, 12, 1024, 64, 12.780},
    {9, true, 4, 12, 12, 1000, 64, 100.856},  {9, true, 2, 32, 8, 1000, 128, 167.242},
    {9, false, 2, 32, 8, 2048, 128, 134.742}, {9, true, 2, 32, 32, 2048, 128, 537.395},
    {9, true, 1, 16, 16, 512, 128, 8.422},    {9, true, 1, 16, 16, 17, 80, 0.263},
    {9, false, 1, 16, 16, 17, 80, 0.088},     {10, true, 4, 12, 12, 1024, 64, 0.197},
    {10, false, 4, 12, 12, 1024, 64, 12.780}, {10, true, 2, 32, 8, 1000, 128, 65.792},
    {10, false, 2, 32, 8, 1000, 128, 65.792}, {10, true, 1, 32, 8, 8192, 128, 269.484},
    {9, true, 1, 16, 16, 2048, 256, 134.349}, {9, true, 1, 16, 8, 2048, 192, 159.515},
    {9, false, 1, 16, 8, 2048, 256, 67.240},  {12, true, 2, 12, 12, 1024, 64, 50.430},
    {12, false, 2, 12, 12, 1024, 64, 12.681}, {12, true, 1, 32, 8, 1000, 128, 83.621}};

TEST(CudnnWorkspace, IsThatOfTheBuiltPlans) {
  for (auto const& m : measured) {
    double const megabytes =
        static_cast<double>(cudnn_backward_workspace(config_of(m), {m.deterministic, m.major})) *
        1e-6;
    bool const at_most = m.major == 10 || (m.major == 8 && m.sequence == 17);
    if (at_most)
      EXPECT_GE(megabytes, m.megabytes - 0.001) << m.major << ", T " << m.sequence;
    else
      EXPECT_NEAR(megabytes, m.megabytes, 0.001) << m.major << ", T " << m.sequence;
  }
}

TEST(CudnnWorkspace, OfManyLongRowsIsThatOfAPart) {
  auto const part_of = [](AttentionConfig config, std::int64_t batch, std::int64_t sequence,
                          CudnnDevice const& device = {}) {
    config.shape.batch = batch;
    config.shape.sequence = sequence;
    return cudnn_backward_part(config, false, device).shape.batch;
  };
  AttentionConfig gpt2 = config_of(measured[6]), llama = config_of(measured[4]);
  EXPECT_EQ(part_of(gpt2, 32, 1024), 32) << "0.8 GB";
  EXPECT_EQ(part_of(gpt2, 64, 1024), 32) << "1.6 GB in two parts";
  EXPECT_EQ(part_of(gpt2, 10, 4096), 2) << "2 rows have 0.8 GB, 3 would have 1.2 GB";
  EXPECT_EQ(part_of(gpt2, 7, 4096), 2) << "2, 2, 2 and 1";
  EXPECT_EQ(part_of(llama, 4, 8192), 1) << "4.4 GB per row";
  EXPECT_EQ(part_of(llama, 1, 8192), 1);
  EXPECT_EQ(part_of(llama, 3, 8192, {false, 9}), 3) << "0.8 GB with a linear workspace";
  EXPECT_LE(cudnn_backward_workspace(cudnn_backward_part(gpt2, false, {}), {}),
            std::int64_t{1} << 30);
  gpt2.shape.batch = 1 << 7;
  gpt2.shape.sequence = 1024;
  CudnnDevice const linear{.deterministic = false};
  EXPECT_EQ(cudnn_backward_part(gpt2, false, linear).shape.batch, 128) << "0.4 GB";
  gpt2.shape.batch = 1 << 9;
  EXPECT_EQ(cudnn_backward_part(gpt2, false, linear).shape.batch, 256) << "1.6 GB in two parts";
  EXPECT_EQ(cudnn_backward_part(gpt2, true, linear).shape.batch, 171) << "and 1.1 GB of masks";
  gpt2.drop.p = 0.1f;
  EXPECT_EQ(part_of(gpt2, 64, 1024), 64) << "masks depend on the place in the batch";
}

/// A backward pass without memory on a queue that drops its kernels.
void plan_backward(AttentionConfig const& config, memory::MemorySpace space,
                   bool documents = false) {
  auto const& s = config.shape;
  memory::PlanningQueue queue(space);
  memory::ArenaPlanning const without_memory;
  memory::Arena arena("planned", memory::Purpose::activations, space);
  std::int64_t const rows = s.batch * s.sequence, width = std::int64_t{s.heads} * s.head_dim;
  auto const heads = [&](int count) {
    std::int64_t const row = std::int64_t{count} * s.head_dim;
    return HeadsView{arena.allocate(config.dtype, {rows, row}).data(), row};
  };
  AttentionGradients const to{heads(s.heads), heads(s.kv_heads), heads(s.kv_heads)};
  AttentionInput from{heads(s.heads), heads(s.kv_heads), heads(s.kv_heads)};
  if (documents) from.documents = arena.allocate(Dtype::int32, {s.batch, s.sequence});
  TensorView const out = arena.allocate(config.dtype, {rows, width});
  attention_backward(queue, config, to, from,
                     {out, out, arena.allocate(Dtype::fp32, {s.batch, s.heads, s.sequence})},
                     arena.allocate(Dtype::fp32, {attention_backward_workspace(queue, s)}));
}

TEST(AttentionPlanning, KnowsTheLargestWorkspaceThatCudnnHas) {
  auto const large = config_of(measured[6]), small = config_of(measured[12]);
  auto const bytes = [](AttentionConfig const& config) {
    return static_cast<std::size_t>(cudnn_backward_workspace(config, {}));
  };
  AttentionPlanning const outer(std::nullopt);
  {
    AttentionPlanning const planning{CudnnDevice{}};
    plan_backward(small, memory::MemorySpace::device);
    EXPECT_EQ(planning.workspace_bytes(), bytes(small));
    plan_backward(large, memory::MemorySpace::device);
    plan_backward(small, memory::MemorySpace::device);
    EXPECT_EQ(planning.workspace_bytes(), bytes(large));
  }
  EXPECT_EQ(outer.workspace_bytes(), 0u) << "no cuDNN";
  {
    AttentionPlanning const planning{CudnnDevice{}};
    plan_backward(large, memory::MemorySpace::device, true);
    EXPECT_EQ(planning.workspace_bytes(), bytes(large) + 4 * 1024 * 1024 * 2) << "with a mask";
    AttentionPlanning const portable{CudnnDevice{.major = 10}};
    plan_backward(large, memory::MemorySpace::device, true);
    EXPECT_EQ(portable.workspace_bytes(), 0u);
  }

  AttentionPlanning const planning{CudnnDevice{}};
  plan_backward(large, memory::MemorySpace::host);
  auto refused = large;
  refused.dtype = Dtype::fp32;
  plan_backward(refused, memory::MemorySpace::device);
  refused = large;
  refused.shape.mask.window = 100;
  plan_backward(refused, memory::MemorySpace::device);
  EXPECT_EQ(planning.workspace_bytes(), 0u) << "other kernels compute these";
}

TEST(WhyNotCudnn, SequencesOfOneTokenHaveNoBackwardPlan) {
  auto config = config_of(measured[0]);
  EXPECT_EQ(why_not_cudnn(config, {}, {.major = 9}), "");
  config.shape.sequence = 1;
  EXPECT_EQ(why_not_cudnn(config, {}, {.major = 9}), "sequences of one token");
}

/// cuDNN 9.26 builds plans for heads of 256 elements for an H100, not for an A100.
TEST(WhyNotCudnn, HeadsAreWiderOnHopper) {
  auto config = config_of(measured[0]);
  for (int const width : {136, 192, 256}) {
    config.shape.head_dim = width;
    EXPECT_EQ(why_not_cudnn(config, {}, {.major = 9}), "") << width;
    for (int const major : {8, 10})
      EXPECT_NE(why_not_cudnn(config, {}, {.major = major}).find("multiples of 8 up to 128"),
                std::string::npos)
          << major;
  }
  config.shape.head_dim = 260;
  EXPECT_NE(why_not_cudnn(config, {}, {.major = 9}).find("multiples of 8 up to 256"),
            std::string::npos);
}

TEST(WhyNotCudnn, DocumentsHaveASmallMaskAndNoDropoutAndRepeatNoBitsOnBlackwell) {
  auto config = config_of(measured[0]);
  std::int32_t const first = 0;
  ConstTensorView const documents(&first, Dtype::int32, {1});
  for (int const major : {8, 9, 12})
    EXPECT_EQ(why_not_cudnn(config, documents, {.major = major}), "");
  EXPECT_EQ(why_not_cudnn(config, documents, {.deterministic = false, .major = 10}), "");
  EXPECT_NE(why_not_cudnn(config, documents, {.major = 10}).find("--deterministic false"),
            std::string::npos);
  config.shape.sequence = 23168;
  EXPECT_EQ(why_not_cudnn(config, documents, {}), "");
  config.shape.sequence = 23169;
  EXPECT_NE(why_not_cudnn(config, documents, {}).find("of 23169 positions, whose mask"),
            std::string::npos);
  config.drop.p = 0.1f;
  EXPECT_NE(why_not_cudnn(config, documents, {})
                .find("documents in packed rows "
                      "(reset_attention_mask) with a dropout"),
            std::string::npos);
}

std::vector<float> document_mask(AttentionConfig const& config,
                                 std::vector<std::int32_t> const& documents) {
  auto const& s = config.shape;
  std::vector<std::uint16_t> mask(static_cast<std::size_t>(SetDocumentMask::indices(s) * 8 + 8),
                                  std::uint16_t{0x1234});
  auto* const aligned =  // to 16 bytes
      mask.data() + (16 - reinterpret_cast<std::uintptr_t>(mask.data()) % 16) % 16 / 2;
  SetDocumentMask const rule(
      config, ConstTensorView(documents.data(), Dtype::int32, {s.batch, s.sequence}), aligned);
  for (std::int64_t i = 0; i < SetDocumentMask::indices(s); ++i) rule(i);
  std::vector<float> out;
  for (std::int64_t row = 0; row < s.batch * s.sequence; ++row)
    for (std::int64_t key = 0; key < s.sequence; ++key) {
      auto const bits = aligned[row * document_mask_row(s.sequence) + key];
      out.push_back(config.dtype == Dtype::bf16 ? static_cast<float>(std::bit_cast<bfloat16>(bits))
                                                : static_cast<float>(std::bit_cast<float16>(bits)));
    }
  return out;
}

/// The softmax of a row as cuDNN's kernels compute it: tile by tile with a running maximum, in base
/// 2, with a fused multiply-add.
std::vector<float> tiled_softmax(std::vector<float> const& scores) {
  constexpr float log2e = 1.44269504f;
  float largest = -std::numeric_limits<float>::infinity(), sum = 0.0f;
  for (std::size_t tile = 0; tile < scores.size(); tile += 64) {
    std::size_t const end = std::min(tile + 64, scores.size());
    float const before = largest;
    for (std::size_t s = tile; s < end; ++s) largest = std::max(largest, scores[s]);
    sum *= std::exp2((before - largest) * log2e);
    for (std::size_t s = tile; s < end; ++s)
      sum += std::exp2(std::fma(scores[s], log2e, -(largest * log2e)));
  }
  std::vector<float> out;
  for (float const score : scores) out.push_back(std::exp2((score - largest) * log2e) / sum);
  return out;
}

TEST(DocumentMask, LeavesTheSoftmaxOfTheDocument) {
  for (Dtype const dtype : {Dtype::bf16, Dtype::fp16})
    for (std::int64_t const sequence : {2, 17, 200}) {
      SCOPED_TRACE(sequence);
      AttentionConfig const config{dtype, {2, sequence, 1, 1, 64}, {}};
      std::vector<std::int32_t> documents;  // the second row has documents of one token
      for (std::int64_t i = 0; i < 2 * sequence; ++i) {
        auto const t = static_cast<std::int32_t>(i % sequence);
        documents.push_back(i < sequence ? t - t % 70 : t);
      }
      auto const mask = document_mask(config, documents);
      std::uint32_t state = 1;
      for (std::int64_t row = 0; row < 2 * sequence; ++row) {
        std::int64_t const t = row % sequence, first = documents[static_cast<std::size_t>(row)];
        std::vector<float> masked, scores;
        for (std::int64_t s = 0; s <= t; ++s) {
          state = state * 1664525u + 1013904223u;
          float const score = static_cast<float>(state >> 8) * 0x1p-17f - 64.0f;
          masked.push_back(score + mask[static_cast<std::size_t>(row * sequence + s)]);
          if (s >= first) scores.push_back(score);
        }
        auto const got = tiled_softmax(masked), want = tiled_softmax(scores);
        for (std::int64_t s = 0; s < first; ++s) ASSERT_EQ(got[static_cast<std::size_t>(s)], 0.0f);
        for (std::size_t s = 0; s < want.size(); ++s)
          ASSERT_NEAR(got[static_cast<std::size_t>(first) + s], want[s], 2e-6) << t << ", " << s;
      }
    }
}

struct FakePlan {
  std::int64_t workspace_bytes = 0;
  bool exists = false;
  explicit operator bool() const { return exists; }
};

struct Room {
  FakePlan plan, smaller;
  std::int64_t free_bytes;
  int built = 0;

  std::string log() {
    testing::internal::CaptureStderr();
    make_room(
        plan, [&] { return ++built, smaller; },
        [&](std::int64_t bytes) { return bytes <= free_bytes; });
    return testing::internal::GetCapturedStderr();
  }
};

TEST(MakeRoom, KeepsAPlanThatFits) {
  Room room{{1000, true}, {10, true}, 1000};
  EXPECT_EQ(room.log(), "");
  EXPECT_EQ(room.plan.workspace_bytes, 1000);
  EXPECT_EQ(room.built, 0);
}

TEST(MakeRoom, TakesTheAlgorithmWithASmallerWorkspaceThatFits) {
  Room room{{std::int64_t{4} << 30, true}, {std::int64_t{2} << 20, true}, std::int64_t{1} << 30};
  auto const text = room.log();
  EXPECT_NE(text.find("a workspace of 4.0 GiB, which the device has no room for; its algorithm "
                      "with 2.0 MiB computes instead"),
            std::string::npos)
      << text;
  EXPECT_EQ(room.plan.workspace_bytes, 2 << 20);
  EXPECT_EQ(room.log(), "") << "said once";
}

TEST(MakeRoom, LeavesTheCallToThePortableKernelWhereNothingFits) {
  std::int64_t needed = 1000;  // a warning is logged once
  for (FakePlan const& smaller : {FakePlan{}, FakePlan{1001, true}, FakePlan{500, true}}) {
    Room room{{needed++, true}, smaller, 100};
    auto const text = room.log();
    EXPECT_NE(text.find("the portable kernel computes instead"), std::string::npos) << text;
    EXPECT_FALSE(room.plan);
    EXPECT_EQ(room.log(), "") << "said once";
    EXPECT_EQ(room.built, 1);
  }
}

}  // namespace
}  // namespace tessera::kernels::detail
