#include "tessera/kernels/embedding.hpp"

#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

TESSERA_KERNEL_SUITE(Embedding);

constexpr std::int64_t vocabulary = 50, places = 41;

Array make_tokens(std::int64_t batch, std::int64_t sequence) {
  Array tokens(Dtype::int32, {batch, sequence});
  Philox const random{5, 5};
  // half of them the same, so that long sums and absent tokens both occur
  for (std::int64_t i = 0; i < tokens.numel(); ++i)
    tokens.set(i, i % 2 == 0 ? 7 : std::floor(random.uniform(static_cast<std::uint64_t>(i)) * vocabulary));
  return tokens;
}

TEST_P(Embedding, Forward) {
  for (std::int64_t columns : {1, 64, 300}) {
    for (bool positions : {false, true}) {
      std::int64_t const batch = 3, sequence = 37;
      Array const tokens = make_tokens(batch, sequence);
      Array wte(dtype, {vocabulary, columns}), wpe(dtype, {places, columns}), out(dtype, {batch, sequence, columns});
      wte.randomise(1);
      wpe.randomise(2);
      Dropout const drop{positions ? 0.3f : 0.0f, 3, 4, 5};
      Reals want = dropout_factors(drop, out.numel());
      for (std::int64_t i = 0; i < out.numel(); ++i) {
        std::int64_t const p = i / columns, c = i % columns;
        double const place = positions ? wpe.get(p % sequence * columns + c) : 0.0;
        want[static_cast<std::size_t>(i)] *= wte.get(static_cast<std::int64_t>(tokens.get(p)) * columns + c) + place;
      }
      embedding(*queue, out.view(), tokens.view(), wte.view(), positions ? wpe.view() : TensorView{}, drop);
      expect_close(out, want, 2e-7);
    }
  }
}

TEST_P(Embedding, Backward) {
  for (std::int64_t columns : {1, 64, 300}) {
    for (Dtype to : {Dtype::fp32, dtype}) {
      std::int64_t const batch = 3, sequence = 37;
      Array const tokens = make_tokens(batch, sequence);
      Array dwte(to, {vocabulary, columns}), dwpe(to, {places, columns}), dout(dtype, {batch, sequence, columns});
      dwte.randomise(1);
      dwpe.randomise(2);
      dout.randomise(3);
      Dropout const drop{0.3f, 3, 4, 6};
      Reals const factor = dropout_factors(drop, dout.numel());
      Reals want_wte(static_cast<std::size_t>(dwte.numel())), want_wpe(static_cast<std::size_t>(dwpe.numel()));
      for (std::int64_t i = 0; i < dout.numel(); ++i) {
        std::int64_t const p = i / columns, c = i % columns;
        double const d = dout.get(i) * factor[static_cast<std::size_t>(i)];
        want_wte[static_cast<std::size_t>(static_cast<std::int64_t>(tokens.get(p)) * columns + c)] += d;
        want_wpe[static_cast<std::size_t>(p % sequence * columns + c)] += d;
      }
      Reals more_wte = want_wte, more_wpe = want_wpe;
      for (std::size_t i = 0; i < more_wte.size(); ++i) more_wte[i] += dwte.get(static_cast<std::int64_t>(i));
      for (std::size_t i = 0; i < more_wpe.size(); ++i) more_wpe[i] += dwpe.get(static_cast<std::int64_t>(i));

      Array also_wte = dwte, also_wpe = dwpe;
      embedding_backward(*queue, dwte.view(), dwpe.view(), true, false, dout.view(), tokens.view(), drop);
      expect_close(dwte, more_wte);
      expect_close(dwpe, want_wpe);
      embedding_backward(*queue, also_wte.view(), also_wpe.view(), false, true, dout.view(), tokens.view(), drop);
      expect_close(also_wte, want_wte);
      expect_close(also_wpe, more_wpe);
      Array third(to, {vocabulary, columns});
      embedding_backward(*queue, third.view(), {}, false, false, dout.view(), tokens.view(), drop);
      EXPECT_TRUE(third == also_wte) << "two runs give the same bits; positions may be left out";
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::test
