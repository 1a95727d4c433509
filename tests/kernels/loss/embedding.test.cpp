#include "tessera/kernels/loss/embedding.hpp"

#include <algorithm>
#include <numeric>

#include "fake_device.hpp"
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
    tokens.set(
        i, i % 2 == 0 ? 7 : std::floor(random.uniform(static_cast<std::uint64_t>(i)) * vocabulary));
  return tokens;
}

enum class Tokens { mixed, equal, different, scattered };

Array tokens_of(Tokens kind, std::int64_t batch, std::int64_t sequence) {
  if (kind == Tokens::mixed) return make_tokens(batch, sequence);
  Array tokens(Dtype::int32, {batch, sequence});
  // scattered: a few of each token, at uneven distances; different: descending, so that the order
  // is not that of the positions
  for (std::int64_t i = 0; i < tokens.numel(); ++i)
    tokens.set(i, static_cast<double>(kind == Tokens::equal       ? 7
                                      : kind == Tokens::scattered ? i * i % 97 % vocabulary
                                                                  : tokens.numel() - 1 - i));
  return tokens;
}

void finish(Queue& q) { q.record().wait("embedding", std::chrono::seconds(60)); }

void check_forward(Queue& q, Dtype dtype) {
  for (std::int64_t columns : {1, 7, 48, 64, 300}) {
    for (int positions : {0, 1, 2}) {  // none, in order, by id
      std::int64_t const batch = 3, sequence = 37;
      Array const tokens = make_tokens(batch, sequence);
      Array wte(dtype, {vocabulary, columns}), wpe(dtype, {places, columns}),
          out(dtype, {batch, sequence, columns});
      wte.randomize(1);
      wpe.randomize(2);
      Array ids(Dtype::int32, {batch, sequence});
      for (std::int64_t i = 0; i < ids.numel(); ++i)
        ids.set(i, static_cast<double>(i * 5 % places));
      Dropout const drop{positions > 0 ? 0.3f : 0.0f, 3, 4, 5};
      Reals want = dropout_factors(drop, out.numel());
      for (std::int64_t i = 0; i < out.numel(); ++i) {
        std::int64_t const p = i / columns, c = i % columns;
        std::int64_t const id =
            positions == 2 ? static_cast<std::int64_t>(ids.get(p)) : p % sequence;
        double const place = positions > 0 ? wpe.get(id * columns + c) : 0.0;
        want[static_cast<std::size_t>(i)] *=
            wte.get(static_cast<std::int64_t>(tokens.get(p)) * columns + c) + place;
      }
      PositionTable table;
      if (positions > 0) table.wpe = wpe.view();
      if (positions == 2) table.ids = ids.view();
      embedding(q, out.view(), tokens.view(), wte.view(), table, drop);
      finish(q);
      expect_close(out, want, 2e-7);
    }
  }
}

/// Order and room for parts as the model gives them.
struct Groups {
  Array order, parts;
  Groups(Queue const& q, Array const& tokens, std::int64_t columns)
      : order(Dtype::int32, {tokens.numel()}),
        parts(Dtype::fp32, {embedding_backward_parts(q, tokens.numel(), columns)}) {
    order_by_token(order.view().as<std::int32_t>(), tokens.view().as<std::int32_t>(),
                   tokens.numel());
    for (std::int64_t i = 0; i < parts.numel(); ++i) parts.set(i, std::nan(""));
  }
  TokenGroups view() { return {order.view(), parts.view()}; }
};

struct Shape {
  std::int64_t batch, sequence, columns;
};

void check_backward(Queue& q, Dtype dtype, Dtype to, Tokens kind, Shape const& s, float p) {
  SCOPED_TRACE(::testing::Message() << s.batch << " x " << s.sequence << " tokens, " << s.columns
                                    << " columns, tokens " << static_cast<int>(kind));
  Array const tokens = tokens_of(kind, s.batch, s.sequence);
  std::int64_t const rows = std::max(vocabulary, tokens.numel());
  Array dwte(to, {rows, s.columns}), dwpe(to, {s.sequence + 4, s.columns}),
      dout(dtype, {s.batch, s.sequence, s.columns});
  dwte.randomize(1);
  dwpe.randomize(2);
  dout.randomize(3);
  Dropout const drop{p, 3, 4, 6};
  Reals const factor = dropout_factors(drop, dout.numel());
  Reals want_wte(static_cast<std::size_t>(dwte.numel())),
      want_wpe(static_cast<std::size_t>(dwpe.numel()));
  for (std::int64_t i = 0; i < dout.numel(); ++i) {
    std::int64_t const at = i / s.columns, c = i % s.columns;
    double const d = dout.get(i) * factor[static_cast<std::size_t>(i)];
    want_wte[static_cast<std::size_t>(static_cast<std::int64_t>(tokens.get(at)) * s.columns + c)] +=
        d;
    want_wpe[static_cast<std::size_t>(at % s.sequence * s.columns + c)] += d;
  }
  Reals more_wte = want_wte, more_wpe = want_wpe;
  for (std::size_t i = 0; i < more_wte.size(); ++i)
    more_wte[i] += dwte.get(static_cast<std::int64_t>(i));
  for (std::size_t i = 0; i < more_wpe.size(); ++i)
    more_wpe[i] += dwpe.get(static_cast<std::int64_t>(i));

  Groups groups(q, tokens, s.columns);
  Array also_wte = dwte, also_wpe = dwpe;
  auto const run = [&](Array& wte, TensorView wpe, WriteMode mode_wte, WriteMode mode_wpe) {
    embedding_backward(q, drop, {{wte.view(), mode_wte}, {wpe, mode_wpe}},
                       {dout.view(), tokens.view(), groups.view()});
    finish(q);
  };
  run(dwte, dwpe.view(), WriteMode::add, WriteMode::overwrite);
  expect_close(dwte, more_wte, 3e-6);
  expect_close(dwpe, want_wpe);
  run(also_wte, also_wpe.view(), WriteMode::overwrite, WriteMode::add);
  expect_close(also_wte, want_wte, 3e-6);
  expect_close(also_wpe, more_wpe);
  Array third(to, {rows, s.columns});
  run(third, {}, WriteMode::overwrite, WriteMode::overwrite);
  EXPECT_TRUE(third == also_wte) << "two runs give the same bits; positions may be left out";
}

void check_backward(Queue& q, Dtype dtype) {
  for (Dtype to : {Dtype::fp32, dtype})
    for (std::int64_t columns : {1, 7, 48, 64, 300})
      check_backward(q, dtype, to, Tokens::mixed, {3, 37, columns}, 0.3f);
  for (Tokens kind : {Tokens::mixed, Tokens::equal, Tokens::different, Tokens::scattered})
    for (Shape const& shape : {Shape{1, 1, 48}, Shape{1, 3, 768}, Shape{4, 8, 40}, Shape{4, 32, 32},
                               Shape{3, 11, 16}, Shape{10, 100, 24}, Shape{3, 33, 1600}})
      check_backward(q, dtype, dtype, kind, shape, 0.0f);
}

TEST_P(Embedding, Forward) { check_forward(*queue, dtype); }
TEST_P(Embedding, Backward) { check_backward(*queue, dtype); }

TEST_P(Embedding, ForwardOnAStream) {
  tessera::test::FakeDevice device;
  check_forward(*memory::make_stream_queue("compute"), dtype);
}
TEST_P(Embedding, BackwardOnAStream) {
  tessera::test::FakeDevice device;
  check_backward(*memory::make_stream_queue("compute"), dtype);
}

TEST(EmbeddingOrder, IsThatOfAStableSort) {
  for (std::int64_t n : {0, 1, 2, 31, 1000, 5000}) {
    for (std::int64_t vocabulary_size : {std::int64_t{1}, std::int64_t{3}, std::int64_t{2048},
                                         std::int64_t{50257}, std::int64_t{1} << 31}) {
      Philox const random{7, 9};
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(n)), want(tokens.size()),
          got(tokens.size());
      for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<std::int32_t>(static_cast<double>(random.uniform(i)) *
                                              static_cast<double>(vocabulary_size));
      std::iota(want.begin(), want.end(), 0);
      std::stable_sort(want.begin(), want.end(), [&](std::int32_t a, std::int32_t b) {
        return tokens[static_cast<std::size_t>(a)] < tokens[static_cast<std::size_t>(b)];
      });
      order_by_token(got.data(), tokens.data(), n);
      EXPECT_EQ(got, want) << n << " tokens of " << vocabulary_size;
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::test
