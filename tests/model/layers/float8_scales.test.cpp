#include "layers/float8_scales.hpp"

#include <gtest/gtest.h>

#include "layers/linear.hpp"

namespace tessera::model::detail::test {
namespace {

class ScalesOfWeights : public ::testing::Test {
 protected:
  /// s of the values 0 to @p largest, which are new.
  float scale_of(std::string const& name, std::uint64_t version, float largest) {
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i] = largest * static_cast<float>(i) / static_cast<float>(values_.size() - 1);
    ConstTensorView const weight(values_.data(), Dtype::fp32, {4, 16});
    ArenaScope const scope(arena_);
    return scales_.of(pass_, {name, weight, version}).values.as<float>()[0];
  }

  Float8Scales scales_;

 private:
  std::vector<float> values_ = std::vector<float>(64);
  std::unique_ptr<Queue> queue_ = memory::make_inline_queue("compute");
  Arena arena_{"activations", memory::Purpose::activations};
  PassContext pass_{.compute = *queue_, .arena = arena_, .dtype = Dtype::bf16};
};

/// The largest finite number of e4m3 is 448: 1.75 x 2^8.
constexpr float of_1 = 256.0f, of_4 = 64.0f;

TEST_F(ScalesOfWeights, AreComputedOncePerVersion) {
  EXPECT_EQ(scale_of("a", 3, 1.0f), of_1);
  scales_.commit();
  EXPECT_EQ(scale_of("a", 3, 4.0f), of_1) << "the version says that the values are the same";
  EXPECT_EQ(scale_of("a", 4, 4.0f), of_4);
  scales_.commit();
  EXPECT_EQ(scale_of("a", 4, 1.0f), of_4);
  EXPECT_EQ(scale_of("b", 4, 1.0f), of_1) << "another weight";
}

/// A graph's work may begin twice, first only to be compared.
TEST_F(ScalesOfWeights, AreComputedAgainUntilTheyAreCommitted) {
  EXPECT_EQ(scale_of("a", 3, 1.0f), of_1);
  EXPECT_EQ(scale_of("a", 3, 4.0f), of_4);
  scales_.commit();
  scales_.commit();
  EXPECT_EQ(scale_of("a", 3, 1.0f), of_4);
}

TEST_F(ScalesOfWeights, WithoutVersionsAreComputedEachTime) {
  EXPECT_EQ(scale_of("a", 0, 1.0f), of_1);
  scales_.commit();
  EXPECT_EQ(scale_of("a", 0, 4.0f), of_4);
}

}  // namespace
}  // namespace tessera::model::detail::test
