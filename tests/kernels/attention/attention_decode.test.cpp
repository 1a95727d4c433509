#include "tessera/kernels/attention/attention_decode.hpp"

#include "attention/attention_decode_device.hpp"
#include "fake_device.hpp"
#include "fiber_thread_block.hpp"
#include "launch/element_types.hpp"
#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

enum class CacheLayout { by_position, by_head };

/// Queries and a cache of keys and values whose rows have different lengths; unused memory is NaN.
struct Problem {
  DecodeShape shape;
  CacheLayout layout;
  Array query, key, value, lengths, out;

  Problem(DecodeShape const& s, std::vector<int> const& of_rows,
          CacheLayout cache = CacheLayout::by_position)
      : shape(s),
        layout(cache),
        query(s.dtype, {s.batch, s.queries, row()}),
        key(s.dtype, {s.batch, s.max_length, shared_row()}),
        value(s.dtype, {s.batch, s.max_length, shared_row()}),
        lengths(Dtype::int32, {s.batch}),
        out(s.dtype, {s.batch, s.queries, std::int64_t{s.heads} * s.head_dim}) {
    query.randomize(1, 1.5);
    key.randomize(2, 1.5);
    value.randomize(3);
    out.randomize(4);
    for (std::int64_t b = 0; b < s.batch; ++b) {
      int const length = of_rows[static_cast<std::size_t>(b)];
      lengths.set(b, length);
      for (std::int64_t p = length; p < s.max_length; ++p)
        for (int h = 0; h < s.kv_heads; ++h)
          for (int c = 0; c < s.head_dim; ++c) {
            key.set(at(b, p, h, c), std::nan(""));
            value.set(at(b, p, h, c), std::nan(""));
          }
    }
  }
  std::int64_t row() const { return std::int64_t{shape.heads} * shape.head_dim + 8; }
  std::int64_t shared_row() const { return std::int64_t{shape.kv_heads} * shape.head_dim; }
  ConstCacheView cache(Array const& x) const {
    std::int64_t const batch = shape.max_length * shared_row();
    if (layout == CacheLayout::by_position) return {x.data(), batch, shared_row(), 0};
    return {x.data(), batch, shape.head_dim, shape.max_length * shape.head_dim};
  }
  std::int64_t at(std::int64_t b, std::int64_t s, int h, int c) const {
    ConstCacheView const view = cache(key);
    return b * view.batch_stride + s * view.position_stride +
           h * (view.head_stride > 0 ? view.head_stride : shape.head_dim) + c;
  }
  DecodeInput in() const {
    return {{query.data(), row()}, cache(key), cache(value), lengths.view()};
  }
  void run(Queue& q) {
    Array workspace(Dtype::fp32, {attention_decode_workspace(q, shape) + 1});
    workspace.randomize(5);
    attention_decode(q, shape, out.view(), in(), workspace.view());
    q.record().wait("attention", std::chrono::seconds(60));
  }
};

Reals reference(Problem const& p) {
  DecodeShape const& s = p.shape;
  Reals out(static_cast<std::size_t>(p.out.numel()));
  for (std::int64_t i = 0; i < s.batch * s.queries * s.heads; ++i) {
    std::int64_t const query = i / s.heads, b = query / s.queries,
                       t = static_cast<std::int64_t>(p.lengths.get(b)) - s.queries +
                           query % s.queries,
                       first =
                           s.mask.window > 0 ? std::max<std::int64_t>(0, t - s.mask.window + 1) : 0;
    int const h = static_cast<int>(i % s.heads), kv = h / (s.heads / s.kv_heads);
    Reals score;
    double most = -1e300, sum = 0;
    for (std::int64_t k = first; k <= t; ++k) {
      double dot = 0;
      for (int c = 0; c < s.head_dim; ++c)
        dot += p.query.get(query * p.row() + h * s.head_dim + c) * p.key.get(p.at(b, k, kv, c));
      dot *= static_cast<double>(s.scale);
      double const cap = s.mask.soft_cap;
      score.push_back(cap > 0 ? cap * std::tanh(dot / cap) : dot);
      most = std::max(most, score.back());
    }
    for (double& x : score) sum += x = std::exp(x - most);
    for (std::int64_t k = first; k <= t; ++k)
      for (int c = 0; c < s.head_dim; ++c)
        out[static_cast<std::size_t>(i * s.head_dim + c)] +=
            score[static_cast<std::size_t>(k - first)] / sum * p.value.get(p.at(b, k, kv, c));
  }
  return out;
}

void check(Queue& q, DecodeShape const& shape, std::vector<int> const& lengths) {
  SCOPED_TRACE(::testing::Message() << shape.queries << " queries, heads " << shape.heads << "/"
                                    << shape.kv_heads << " of " << shape.head_dim << ", window "
                                    << shape.mask.window << ", cap " << shape.mask.soft_cap);
  for (auto layout : {CacheLayout::by_position, CacheLayout::by_head}) {
    Problem p(shape, lengths, layout);
    p.run(q);
    expect_close(p.out, reference(p), 2e-6);
  }
}

TESSERA_KERNEL_SUITE(Decode);

TEST_P(Decode, AnyLength) {
  for (int queries : {1, 3})
    for (int length : {3, 8, 63, 64, 65, 511, 512, 513, 1100})
      check(*queue, {dtype, 2, queries, 4, 2, 16, 0.25f, {}, length + 5}, {length, queries});
}

TEST_P(Decode, AnyHeads) {
  for (int d : {1, 5, 20, 64, 80, 128, 256})
    for (auto const& [heads, kv_heads] : {std::pair{1, 1}, {4, 4}, {2, 1}, {6, 2}, {8, 1}, {9, 1}})
      check(*queue, {dtype, 1, 1, heads, kv_heads, d, 0.2f, {}, 600}, {580});
}

TEST_P(Decode, PartsOfPrompts) {
  for (int queries : {7, 17, 64, 100})
    check(*queue, {dtype, 2, queries, 4, 2, 24, 0.25f, {}, 700}, {queries, 650});
}

TEST_P(Decode, WindowsAndSoftCaps) {
  for (AttentionMask const mask :
       {AttentionMask{1, 0.0f}, {5, 0.0f}, {64, 2.0f}, {600, 0.0f}, {5000, 0.0f}, {0, 1.5f}})
    for (int queries : {1, 6, 40})
      check(*queue, {dtype, 2, queries, 4, 2, 20, 0.5f, mask, 1200}, {1200, 45});
}

TEST_P(Decode, LargeScoresDoNotOverflow) {
  Problem p({dtype, 1, 1, 2, 2, 32, 40.0f, {}, 700}, {700});
  p.run(*queue);
  expect_close(p.out, reference(p), 1e-3);
}

/// A row by itself, with other room, has the bits that it has in a batch.
TEST_P(Decode, ARowDoesNotDependOnTheOthers) {
  Problem three({dtype, 3, 1, 4, 2, 64, 0.125f, {}, 1500}, {600, 1490, 9});
  three.run(*queue);
  std::int64_t const row = three.out.numel() / 3;
  for (std::int64_t b = 0; b < 3; ++b) {
    auto const length = static_cast<int>(three.lengths.get(b));
    Problem one({dtype, 1, 1, 4, 2, 64, 0.125f, {}, length}, {length});
    for (std::int64_t i = 0; i < one.query.numel(); ++i)
      one.query.set(i, three.query.get(b * one.query.numel() + i));
    for (std::int64_t s = 0; s < length; ++s)
      for (int c = 0; c < 2 * 64; ++c) {
        one.key.set(s * 128 + c, three.key.get(three.at(b, s, 0, c)));
        one.value.set(s * 128 + c, three.value.get(three.at(b, s, 0, c)));
      }
    one.run(*queue);
    for (std::int64_t i = 0; i < row; ++i) ASSERT_EQ(one.out.get(i), three.out.get(b * row + i));
  }
}

TEST_P(Decode, EqualsAttentionOfTheFullSequence) {
  std::int64_t const length = 150, columns = 4 * 32;
  Problem p({dtype, 1, length, 4, 2, 32, 0.2f, {40, 3.0f}, length}, {static_cast<int>(length)});
  p.run(*queue);
  Array out(dtype, {1, length, columns}), lse(Dtype::fp32, {1, 4, length});
  attention(*queue, {dtype, {1, length, 4, 2, 32, 0.2f, p.shape.mask}, {}},
            {out.view(), lse.view()},
            {{p.query.data(), p.row()}, {p.key.data(), 64}, {p.value.data(), 64}});
  expect_close(p.out, out.values(), 2e-6 + 2 * rounding(dtype));
}

TEST_P(Decode, OnAStream) {
  tessera::test::FakeDevice device;
  auto const stream = memory::make_stream_queue("compute");
  check(*stream, {dtype, 2, 1, 4, 2, 20, 0.5f, {}, 200}, {200, 45});
  check(*stream, {dtype, 2, 3, 4, 1, 64, 0.5f, {30, 2.0f}, 200}, {200, 45});
}

TEST_P(Decode, DeviceRulesInBlocksOfThreads) {
  for (int d : {20, 128, 200})
    for (AttentionMask const mask : {AttentionMask{}, {150, 2.0f}}) {
      Problem p({dtype, 2, 2, 4, 2, d, 0.3f, mask, 300}, {300, 45});
      detail::with_type(dtype, "test", [&](auto tag) {
        using T = typename decltype(tag)::type;
        constexpr int threads = 128;
        detail::TeamDecode<T, threads> const rule{
            detail::decode_call<T>(p.shape, p.out.view(), p.in(), nullptr)};
        FiberThreadBlock<threads>().run(rule, rule.teams());
        expect_close(p.out, reference(p), 2e-6);
        Array const first = p.out;
        FiberThreadBlock<threads>(FiberOrder::descending).run(rule, rule.teams());
        EXPECT_TRUE(first == p.out) << "the order of the threads does not show";
      });
    }
}

TEST(DecodeShapes, AreChecked) {
  auto const queue = memory::make_inline_queue("compute");
  Problem p({Dtype::fp32, 1, 1, 3, 2, 8, 1.0f, {}, 4}, {4});
  EXPECT_THROW(p.run(*queue), ConfigError);
}

TEST(DecodeWorkspace, IsForFewQueriesOfLongRows) {
  auto const queue = memory::make_inline_queue("compute");
  DecodeShape shape{Dtype::fp32, 2, 1, 4, 2, 20, 1.0f, {}, 1025};
  EXPECT_EQ(attention_decode_workspace(*queue, shape), 2 * 4 * 3 * (32 + 2));
  shape.max_length = 512;
  EXPECT_EQ(attention_decode_workspace(*queue, shape), 0);
  shape.max_length = 5000;
  shape.queries = 100;
  EXPECT_EQ(attention_decode_workspace(*queue, shape), 0);
}

}  // namespace
}  // namespace tessera::kernels::test
