/// The batch sizes of a resolved configuration.
#include "resolved_case.hpp"

#include <gmock/gmock.h>

namespace tessera::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// total = micro * steps * ranks; 0: absent.
struct Triangle {
  int total, micro, steps, world;
  int want_total, want_micro, want_steps;  ///< 0: refused
};

TEST(ResolvedBatch, BatchTriangle) {
  for (auto const& t : std::vector<Triangle>{
           {32, 4, 2, 4, 32, 4, 2},
           {32, 4, 0, 4, 32, 4, 2},
           {32, 0, 2, 4, 32, 4, 2},
           {0, 4, 2, 4, 32, 4, 2},
           {32, 0, 0, 4, 32, 8, 1},
           {0, 4, 0, 4, 16, 4, 1},
           {0, 0, 2, 4, 64, 8, 2},
           {0, 0, 0, 4, 32, 8, 1},
           {32, 4, 3, 4, 0, 0, 0},
           {30, 4, 0, 4, 0, 0, 0},
           {2, 0, 0, 4, 0, 0, 0},
           {1, 1, 3, 1, 0, 0, 0},
           {1, 1, 0, 2, 0, 0, 0},
           {33, 0, 2, 4, 0, 0, 0},
       }) {
    auto tree = ConfigTree::object();
    if (t.total) tree.set("train_batch_size", t.total);
    if (t.micro) tree.set("train_micro_batch_size_per_gpu", t.micro);
    if (t.steps) tree.set("gradient_accumulation_steps", t.steps);
    if (t.want_total == 0) {
      EXPECT_THAT(error_of(tree.dump(), {}, t.world),
                  AllOf(HasSubstr("train_micro_batch_size_per_gpu"), HasSubstr("* ranks")))
          << tree.dump();
      continue;
    }
    auto const c = resolved(tree.dump(), {}, t.world);
    EXPECT_EQ(c.train_batch_size, t.want_total) << tree.dump();
    EXPECT_EQ(c.micro_batch_size, t.want_micro) << tree.dump();
    EXPECT_EQ(c.accumulation_steps, t.want_steps) << tree.dump();
  }
  EXPECT_EQ(resolved(R"({"train_batch_size": 64})", {"--per_device_train_batch_size", "4"}, 2)
                .accumulation_steps,
            8);
}

/// DeepSpeed's own arithmetic over every combination of given and missing values.
TEST(ResolvedBatch, AgreesWithDeepSpeedOnTheBatchTriangle) {
  auto const stored =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/hf_deepspeed_auto.json");
  char const* const keys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                              "gradient_accumulation_steps"};
  for (auto const& entry : stored.at("triangle").as_array()) {
    auto const& given = entry.at("given").as_array();
    auto tree = ConfigTree::object();
    for (int i = 0; i < 3; ++i)
      if (!given[i].is_null()) tree.set(keys[i], given[i]);
    int const ranks = static_cast<int>(given[3].as_int());
    if (entry.at("derived").is_null()) {
      EXPECT_NE(error_of(tree.dump(), {}, ranks), "") << entry.dump();
      continue;
    }
    ASSERT_EQ(error_of(tree.dump(), {}, ranks), "") << entry.dump();
    auto const c = resolved(tree.dump(), {}, ranks);
    EXPECT_EQ(
        entry.at("derived"),
        ConfigTree(ConfigTree::Array{c.train_batch_size, c.micro_batch_size, c.accumulation_steps}))
        << entry.dump();
  }
}

}  // namespace
}  // namespace tessera::config
