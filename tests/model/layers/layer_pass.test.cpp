/// What a layer of one's own sees of its pass.
#include "tessera/model/layers/layer_pass.hpp"

#include "own_layers.hpp"

namespace tessera::model {
namespace {

using test::StoredModel;
using testing::ElementsAre;
using namespace test_layers;

struct Seen {
  std::int64_t batch, sequence, rows;
  bool is_generation;
  bool operator==(Seen const&) const = default;
};

/// Notes its passes; a second operation has no part in the result.
struct Noting final : Layer {
  Noting(Parameters& p, std::vector<Seen>* to, int* backwards)
      : attention(p, "attention", {.width = width, .heads = 2}), seen(to), calls(backwards) {}
  Value forward(LayerPass& pass, Value const& in) const override {
    seen->push_back({pass.batch(), pass.sequence(), in.rows().dim(0), pass.is_generation()});
    EXPECT_EQ(pass.allocate(3).dim(1), 3);
    pass.record(in.rows(), [this](Backward&) { *calls += 100; });
    Value const out = attention(pass, in);
    return pass.record(out.rows(), [this, out](Backward& backward) {
      ++*calls;
      backward.pass_on(out);
    });
  }
  Attention attention;
  std::vector<Seen>* seen;
  int* calls;
};

TEST(LayerPass, SaysWhatAPassIsAndRunsBackwardWhereTheResultIsUsed) {
  std::vector<Seen> seen;
  int backwards = 0;
  ComposedLm lm(small_options());
  lm.add_layer<Noting>("layers.0", &seen, &backwards);
  StoredModel model(std::move(lm).build(Dtype::fp32), Dtype::fp32, spread_weights());
  EXPECT_THAT(seen, ElementsAre(Seen{1, 2, 2, false})) << "the planned pass";
  EXPECT_EQ(backwards, 1);
  std::vector<std::int32_t> const tokens{1, 5, 9, 2, 0, 10};
  Batch const batch{tokens.data(), 2, 3};
  model.train(batch, {});
  EXPECT_EQ(backwards, 2);
  model.evaluate(batch);
  EXPECT_EQ(model.next_token_logits(batch).size(), static_cast<std::size_t>(2 * vocabulary));
  EXPECT_EQ(backwards, 2);
  EXPECT_THAT(seen, ElementsAre(Seen{1, 2, 2, false}, Seen{2, 3, 6, false}, Seen{2, 3, 6, false},
                                Seen{2, 3, 6, true}));
}

}  // namespace
}  // namespace tessera::model
