/// The seeds of dropout masks that a library draws itself, by the passes of a model.
#include <gtest/gtest.h>

#include <set>

#include "attention/mask_key.hpp"
#include "layers/pass.hpp"

namespace tessera::model::detail {
namespace {

using kernels::detail::mask_key;
using kernels::detail::MaskKey;

struct Place {
  std::uint64_t step = 0, first_row = 0;
  Recompute recompute = Recompute::none;
};

MaskKey key_of(Place const& place, int layer) {
  static auto const queue = memory::make_inline_queue("compute");
  static Arena arena("activations", memory::Purpose::activations);
  PassContext pass{*queue, arena, Dtype::bf16};
  pass.dropout_on = true;
  pass.dropout_seed = 42;
  kernels::DropoutPlace const staged = dropout_place(place.step, place.first_row);
  pass.dropout_place = &staged;
  pass.recompute = place.recompute;
  return mask_key(pass.dropout(0.1, layer, DropoutSite::attention_weights, 12 * 1024 * 1024));
}

TEST(DropoutStreams, StepsLayersMicroBatchesAndRanksHaveSeedsOfTheirOwn) {
  std::set<std::int64_t> seeds;
  std::size_t calls = 0;
  for (std::uint64_t step = 0; step < 40; ++step)
    for (int layer = 0; layer < 12; ++layer)
      for (std::uint64_t micro_batch_of_rank = 0; micro_batch_of_rank < 64; ++micro_batch_of_rank)
        ++calls, seeds.insert(key_of({step, micro_batch_of_rank * 4}, layer).seed);
  EXPECT_EQ(seeds.size(), calls);
}

TEST(DropoutStreams, ARecomputedBlockAndAResumedRunHaveTheSameSeed) {
  MaskKey const kept = key_of({5, 8}, 3);
  EXPECT_EQ(kept, key_of({5, 8, Recompute::block}, 3));
  EXPECT_EQ(kept, key_of({5, 8, Recompute::light}, 3));
  EXPECT_EQ(kept, key_of({5, 8}, 3)) << "another process at the same step";
}

}  // namespace
}  // namespace tessera::model::detail
