#include "tessera/train/report/used_paths.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "engine_settings.hpp"
#include "nccl/nccl_collectives.hpp"
#include "small_run.hpp"
#include "tessera/kernels/launch/used_routes.hpp"
#include "tessera/train/step/evaluator.hpp"

namespace tessera::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(UsedPaths, AreThoseOfTheStep) {
  kernels::reset_used_routes();
  test::SmallRun run;
  Evaluator(run.context(), test::small_sequences(run.files, 16), 8).evaluate();
  zero::EngineConfig config;
  config.reduce_bucket_size = 12'345'678;
  auto const text = used_paths_text(config, 2);
  EXPECT_THAT(text, HasSubstr("attention tiles on the host; "));
  EXPECT_THAT(text, HasSubstr("; products "));
  EXPECT_THAT(text, HasSubstr("gradients reduced in fp32 while backward continues, at most "
                              "12,345,678 elements per message"));
  config.reduce_bucket_size = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(used_paths_text(config, 2), HasSubstr("continues, a unit per message"));
  EXPECT_THAT(used_paths_text(config, 1), Not(HasSubstr("gradients")));
  config.reduce_bucket_size = 12'345'678;
  auto const tree = used_paths(config, 2);
  EXPECT_GT(tree.at("attention").at("tiles on the host").as_int(), 0);
  EXPECT_EQ(tree.at("gradient reduction").at("largest_message").as_int(), 12'345'678);
  EXPECT_EQ(used_paths(config, 1).find("gradient reduction"), nullptr);
  config.partition = zero::partition_of(3);
  test::weights_of(config).quantized_weight_bits = 8;
  test::weights_of(config).quantized_gradients = {.ranks_per_node = 2, .feedback = {}};
  EXPECT_THAT(used_paths_text(config, 4),
              HasSubstr("weights gathered as int8 codes; gradients reduced as codes (int8 in "
                        "nodes, int4 between nodes) while"));
  EXPECT_EQ(used_paths(config, 4).at("weight gathers").at("dtype").as_string(), "int8");
  test::weights_of(config).quantized_gradients = {
      .ranks_per_node = 1, .feedback = zero::QuantizedGradients::ErrorFeedback{}};
  EXPECT_THAT(used_paths_text(config, 4), HasSubstr("(int4, error feedback)"));
}

TEST(UsedPaths, NameWhatNcclUses) {
  zero::EngineConfig const config;
  EXPECT_EQ(used_paths(config, 2).find("NCCL"), nullptr);
  comm::detail::note_nccl({"2.28.9", 2, comm::NcclCtaPolicy::zero, {}});
  comm::detail::note_nccl_buffer(comm::NcclMemoryKind::window);
  auto const nccl = used_paths(config, 2).at("NCCL");
  EXPECT_EQ(nccl.at("version").as_string(), "2.28.9");
  EXPECT_EQ(nccl.at("cta_policy").as_string(), "zero");
  EXPECT_EQ(nccl.at("symmetric_windows").as_int(), 1);
  EXPECT_EQ(nccl.at("registered_buffers").as_int(), 0);
  EXPECT_THAT(used_paths_text(config, 2),
              HasSubstr("; NCCL 2.28.9 with 2 communicators, 1 buffer in symmetric windows, CTA "
                        "policy zero; "));
}

TEST(UsedPaths, SayWhenNoGraphIsReplayed) {
  EXPECT_EQ(graph_text(10, {.replayed = 9, .updated = 2, .captured = 1}),
            "device graphs of step 10: 9 replayed, 2 updated, 1 captured, 0 launched kernel by "
            "kernel");
  EXPECT_THAT(graph_text(10, {.updated = 12}),
              HasSubstr("0 replayed, 12 updated, 0 captured, 0 launched kernel by kernel; "
                        "capturing costs the host what launching the kernels does"));
}

TEST(UsedPaths, ResidentPagesGrowWithTouchedMemory) {
  auto const before = resident_pages();
  std::vector<char> memory(std::size_t{64} << 20);
  std::memset(memory.data(), 1, memory.size());
  auto const after = resident_pages();
  if (before.all == 0) GTEST_SKIP() << "the system does not tell";
  EXPECT_GT(after.all, before.all + (std::int64_t{60} << 20));
  EXPECT_LE(after.huge, after.all);
}

}  // namespace
}  // namespace tessera::train
