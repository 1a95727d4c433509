#include "tessera/kernels/attention/attention.hpp"

#include <barrier>
#include <thread>

#include "attention/attention_cudnn.hpp"
#include "decoder_oracle.hpp"
#include "launch/amx.hpp"

namespace tessera::kernels::test {
namespace {

TESSERA_KERNEL_SUITE(Attention);

/// How fused rows hold queries, keys and values.
enum class Layout {
  in_parts,      ///< all queries, all keys, all values: GPT-2
  next_to_each,  ///< query, key and value of the first head, then of the next: GPT-NeoX
};

/// Fused rows [B, T, (heads + 2 kv_heads) * head_dim], as projections give them.
struct Problem {
  AttentionShape shape;
  Dtype dtype;
  Dropout drop;
  Layout layout = Layout::in_parts;
  Array qkv, out, lse, dout, dqkv;
  std::optional<Array> documents;

  Problem(Dtype t, AttentionShape const& s, Dropout const& d = {})
      : shape(s),
        dtype(t),
        drop(d),
        qkv(t, {s.batch, s.sequence, row()}),
        out(t, {s.batch, s.sequence, s.heads * s.head_dim}),
        lse(Dtype::fp32, {s.batch, s.heads, s.sequence}),
        dout(t, {s.batch, s.sequence, s.heads * s.head_dim}),
        dqkv(t, {s.batch, s.sequence, row()}) {
    qkv.randomize(1, 1.5);
    dout.randomize(2);
    dqkv.randomize(3);
  }
  std::int64_t row() const {
    return std::int64_t{shape.heads + 2 * shape.kv_heads} * shape.head_dim;
  }
  bool in_parts() const { return layout == Layout::in_parts; }
  std::int64_t key_at() const {
    return std::int64_t{in_parts() ? shape.heads : 1} * shape.head_dim;
  }
  std::int64_t value_at() const {
    return key_at() + std::int64_t{in_parts() ? shape.kv_heads : 1} * shape.head_dim;
  }
  std::int64_t head_stride() const { return (in_parts() ? 1 : 3) * shape.head_dim; }
  template <class End, class Data>
  End part(Data* base, std::int64_t offset) const {
    using Byte = std::conditional_t<std::is_const_v<Data>, std::byte const, std::byte>;
    return {static_cast<Byte*>(base) + static_cast<std::size_t>(offset) * size_of(dtype), row(),
            in_parts() ? 0 : head_stride()};
  }
  AttentionConfig config() const { return {dtype, shape, drop}; }
  AttentionInput in() const {
    return {part<ConstHeadsView>(qkv.data(), 0), part<ConstHeadsView>(qkv.data(), key_at()),
            part<ConstHeadsView>(qkv.data(), value_at()),
            documents ? documents->view() : TensorView{}};
  }
  /// Documents of these lengths, again and again, in every row another phase.
  void set_documents(std::vector<std::int32_t> const& lengths) {
    documents = Array(Dtype::int32, {shape.batch, shape.sequence});
    auto* const starts = documents->view().as<std::int32_t>();
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      std::size_t next = static_cast<std::size_t>(b) % lengths.size();
      for (std::int64_t t = 0; t < shape.sequence; next = (next + 1) % lengths.size())
        for (std::int64_t const begin = t; t < std::min(begin + lengths[next], shape.sequence); ++t)
          starts[b * shape.sequence + t] = static_cast<std::int32_t>(begin);
    }
  }
  std::int64_t first_key(std::int64_t b, std::int64_t t) const {
    std::int64_t const window = shape.mask.window;
    return std::max<std::int64_t>(
        window > 0 ? std::max<std::int64_t>(t - window + 1, 0) : 0,
        documents ? documents->view().as<std::int32_t>()[b * shape.sequence + t] : 0);
  }
  AttentionGradients to() {
    return {part<HeadsView>(dqkv.data(), 0), part<HeadsView>(dqkv.data(), key_at()),
            part<HeadsView>(dqkv.data(), value_at())};
  }
  AttentionSaved saved() { return {dout.view(), out.view(), lse.view()}; }

  void forward(Queue& q) { attention(q, config(), {out.view(), lse.view()}, in()); }
  void backward(Queue& q) {
    Array workspace(Dtype::fp32, {attention_backward_workspace(q, shape)});
    workspace.randomize(4);
    attention_backward(q, config(), to(), in(), saved(), workspace.view());
  }
};

struct Reference {
  Reals out, lse, dqkv;
};

/// One query row: probabilities, outputs, and with them its contributions to the gradients.
struct Row {
  Problem const& p;
  Reals const &qkv, &factors;
  std::int64_t b, t;
  int h;

  std::size_t at(std::int64_t position, std::int64_t offset, int head, int c) const {
    return static_cast<std::size_t>((b * p.shape.sequence + position) * p.row() + offset +
                                    head * p.head_stride() + c);
  }
  std::size_t out_at(int c) const {
    return static_cast<std::size_t>(
        ((b * p.shape.sequence + t) * p.shape.heads + h) * p.shape.head_dim + c);
  }
  std::size_t index() const {
    return static_cast<std::size_t>((b * p.shape.heads + h) * p.shape.sequence + t);
  }
  double factor(std::int64_t s) const {
    return factors[index() * static_cast<std::size_t>(p.shape.sequence) +
                   static_cast<std::size_t>(s)];
  }

  void run(Reference& r, Reals const& dout) const {
    int const kv = h / (p.shape.heads / p.shape.kv_heads), d = p.shape.head_dim;
    AttentionMask const& mask = p.shape.mask;
    double const cap = mask.soft_cap;
    std::int64_t const first = p.first_key(b, t);
    Reals score(static_cast<std::size_t>(t) + 1), probability(score.size());
    double most = -1e300, sum = 0;
    for (std::int64_t s = first; s <= t; ++s) {
      double dot = 0;
      for (int c = 0; c < d; ++c) dot += qkv[at(t, 0, h, c)] * qkv[at(s, p.key_at(), kv, c)];
      double& x = score[static_cast<std::size_t>(s)];
      x = dot * p.shape.scale;
      if (cap > 0.0) x = cap * std::tanh(x / cap);
      most = std::max(most, x);
    }
    for (auto s = static_cast<std::size_t>(first); s < score.size(); ++s)
      sum += probability[s] = std::exp(score[s] - most);
    r.lse[index()] = most + std::log(sum);
    double delta = 0;
    Reals dp(probability.size());
    for (std::int64_t s = 0; s <= t; ++s) {
      double& x = probability[static_cast<std::size_t>(s)];
      x /= sum;
      for (int c = 0; c < d; ++c) {
        double const v = qkv[at(s, p.value_at(), kv, c)];
        r.out[out_at(c)] += x * factor(s) * v;
        dp[static_cast<std::size_t>(s)] += dout[out_at(c)] * factor(s) * v;
        r.dqkv[at(s, p.value_at(), kv, c)] += x * factor(s) * dout[out_at(c)];
      }
      delta += x * dp[static_cast<std::size_t>(s)];
    }
    for (std::int64_t s = 0; s <= t; ++s) {
      double const x = score[static_cast<std::size_t>(s)] / cap;
      double const ds = probability[static_cast<std::size_t>(s)] *
                        (dp[static_cast<std::size_t>(s)] - delta) * p.shape.scale *
                        (cap > 0.0 ? 1.0 - x * x : 1.0);
      for (int c = 0; c < d; ++c) {
        r.dqkv[at(t, 0, h, c)] += ds * qkv[at(s, p.key_at(), kv, c)];
        r.dqkv[at(s, p.key_at(), kv, c)] += ds * qkv[at(t, 0, h, c)];
      }
    }
  }
};

Reference reference(Problem const& p, Reals const& qkv) {
  Reference r{Reals(static_cast<std::size_t>(p.out.numel())),
              Reals(static_cast<std::size_t>(p.lse.numel())),
              Reals(static_cast<std::size_t>(p.qkv.numel()))};
  Reals const dout = p.dout.values(),
              factors = dropout_factors(p.drop, p.lse.numel() * p.shape.sequence);
  for (std::int64_t b = 0; b < p.shape.batch; ++b)
    for (int h = 0; h < p.shape.heads; ++h)
      for (std::int64_t t = 0; t < p.shape.sequence; ++t)
        Row{p, qkv, factors, b, t, h}.run(r, dout);
  return r;
}

/// The rules that streams run, on the host's teams of one thread.
void run_flash(Problem& p, Queue& q) {
  Array delta(Dtype::fp32, {p.lse.numel()});
  detail::attention_on_device(q, p.config(), {p.out.view(), p.lse.view()}, p.in());
  detail::attention_backward_on_device(q, p.config(), p.to(), p.in(), p.saved(),
                                       delta.view().as<float>());
}

/// A block of a device as threads of the host: the same instance of the rules, the same barriers.
template <int Threads>
struct HostThreadBlock {
  struct Team {
    int number;
    std::barrier<>& meeting;
    float* memory;
    int rank() const { return number; }
    void barrier() const { meeting.arrive_and_wait(); }
    float* scratch() const { return memory; }
  };
  template <class Rule>
  void operator()(char const*, Rule const& rule) const {
    std::barrier<> meeting(Threads);
    std::vector<detail::Float4> memory(Rule::scratch_floats / 4 + 1,
                                       detail::Float4{{NAN, NAN, NAN, NAN}});
    std::vector<std::thread> threads;
    for (int i = 0; i < Threads; ++i)
      threads.emplace_back([&, i] {
        for (std::int64_t index = 0; index < rule.teams(); ++index) {
          rule(Team{i, meeting, memory[0].v}, index);
          meeting.arrive_and_wait();
        }
      });
    for (auto& thread : threads) thread.join();
  }
};

void run_flash_as_a_thread_block(Problem& p) {
  constexpr int threads = 128;
  Array delta(Dtype::fp32, {p.lse.numel()});
  detail::FlashCall const call{p.config(), p.in()};
  AttentionSaved const saved = p.saved();
  detail::with_flash_width(p.shape.head_dim, [&](auto width) {
    constexpr int w = decltype(width)::value;
    detail::flash_forward<w, threads>(call, p.out.data(), p.lse.view().as<float>(),
                                      HostThreadBlock<threads>());
    auto const rule = detail::flash_delta(call, saved, delta.view().as<float>());
    for (std::int64_t i = 0; i < p.lse.numel(); ++i) rule(i);
    detail::flash_backward<w, threads>(call, p.to(), saved, delta.view().as<float>(),
                                       HostThreadBlock<threads>());
  });
}

void expect_reference(Problem const& p) {
  SCOPED_TRACE(::testing::Message()
               << "T " << p.shape.sequence << ", heads " << p.shape.heads << "/" << p.shape.kv_heads
               << " of " << p.shape.head_dim << ", dropout " << p.drop.p);
  Reference const want = reference(p, p.qkv.values());
  expect_close(p.out, want.out, 2e-6);
  expect_close(p.lse, want.lse, 1e-6);
  expect_close(p.dqkv, want.dqkv, 3e-6 + (p.dtype == Dtype::fp32 ? 0.0 : 4 * rounding(p.dtype)));
}

/// Both passes. @p products  error of the rounding of P and dS before they are multiplied
void check_passes(Problem& p, Queue& q, double products) {
  SCOPED_TRACE(::testing::Message() << "T " << p.shape.sequence << ", heads " << p.shape.heads
                                    << "/" << p.shape.kv_heads << " of " << p.shape.head_dim
                                    << ", dropout " << p.drop.p << ", products " << products);
  Reference const want = reference(p, p.qkv.values());
  p.forward(q);
  expect_close(p.out, want.out, 2e-6 + products);
  expect_close(p.lse, want.lse, 1e-6);
  p.backward(q);
  // the rounding of the stored output reaches the gradients through delta
  expect_close(p.dqkv, want.dqkv,
               3e-6 + (p.dtype == Dtype::fp32 ? 0.0 : 4 * rounding(p.dtype) + 2 * products));
}

/// Checks the form of this machine, and that of one without AMX.
void check(Problem& p, Queue& q) {
  if (p.dtype == Dtype::bf16 && detail::has_amx_bf16()) {
    check_passes(p, q, 1.5 * rounding(p.dtype));
    p.dqkv.randomize(7);
  }
  detail::WithoutAmx const everywhere;
  check_passes(p, q, 0.0);
}

TEST_P(Attention, AnySequence) {
  for (std::int64_t t : {1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 129, 200}) {
    Problem p(dtype, {2, t, 2, 2, 16, 0.25f});
    check(p, *queue);
  }
}

TEST_P(Attention, AnyHead) {
  for (int d : {1, 5, 16, 20, 48, 64, 80, 100, 128, 160, 256}) {
    Problem p(dtype, {1, 75, 2, 2, d, 1.0f / std::sqrt(static_cast<float>(d))});
    check(p, *queue);
  }
}

TEST_P(Attention, SharedKeyValueHeads) {
  for (int kv_heads : {1, 2, 3}) {
    Problem p(dtype, {2, 70, 6, kv_heads, 24, 0.2f}, {0.1f, 3, 4, 5});
    check(p, *queue);
  }
}

TEST_P(Attention, HeadsNextToEachOther) {
  for (int d : {20, 64}) {
    Problem p(dtype, {2, 70, 3, 3, d, 0.2f});
    p.layout = Layout::next_to_each;
    check(p, *queue);
    p.dqkv.randomize(6);
    run_flash(p, *queue);
    expect_reference(p);
  }
}

std::vector<AttentionMask> masks() {
  return {{1, 0.0f},   {3, 0.0f},   {17, 0.0f},   {63, 0.0f}, {64, 0.0f}, {65, 0.0f}, {66, 0.0f},
          {100, 0.0f}, {129, 0.0f}, {1000, 0.0f}, {0, 2.5f},  {0, 50.0f}, {7, 1.5f},  {70, 30.0f}};
}

TEST_P(Attention, WindowsAndSoftCaps) {
  for (auto const& mask : masks())
    for (std::int64_t t : {1, 9, 64, 130, 200}) {
      SCOPED_TRACE(::testing::Message() << "window " << mask.window << ", cap " << mask.soft_cap);
      Problem p(dtype, {1, t, 2, 1, 20, 0.6f, mask});
      check(p, *queue);
    }
}

TEST_P(Attention, WindowsAndSoftCapsWithDropout) {
  for (AttentionMask const mask : {AttentionMask{5, 0.0f}, {66, 2.0f}}) {
    Problem p(dtype, {2, 150, 4, 2, 64, 0.2f, mask}, {0.2f, 3, 4, 5});
    check(p, *queue);
    p.dqkv.randomize(6);
    run_flash(p, *queue);
    expect_reference(p);
  }
}

TEST_P(Attention, DeviceRulesOfWindowsAndSoftCaps) {
  for (auto const& mask : masks())
    for (int d : {20, 100, 200}) {
      SCOPED_TRACE(::testing::Message() << "window " << mask.window << ", cap " << mask.soft_cap);
      Problem p(dtype, {1, 130, 2, 1, d, 1.0f / std::sqrt(static_cast<float>(d)), mask});
      run_flash(p, *queue);
      expect_reference(p);
    }
}

TEST_P(Attention, AWindowThatHoldsTheSequenceChangesNothing) {
  Problem plain(dtype, {1, 90, 2, 2, 32, 0.2f}), wide = plain;
  wide.shape.mask.window = 90;
  for (Problem* p : {&plain, &wide}) {
    p->forward(*queue);
    p->backward(*queue);
  }
  EXPECT_TRUE(plain.out == wide.out && plain.lse == wide.lse && plain.dqkv == wide.dqkv);
}

std::vector<std::vector<std::int32_t>> document_lengths() {
  return {{5, 1, 40}, {64}, {63, 66}, {1000}};
}

TEST_P(Attention, Documents) {
  for (auto const& lengths : document_lengths())
    for (AttentionMask const mask : {AttentionMask{}, {7, 0.0f}, {70, 2.5f}})
      for (std::int64_t t : {9, 64, 200}) {
        SCOPED_TRACE(::testing::Message()
                     << "documents of " << lengths[0] << ", window " << mask.window);
        Problem p(dtype, {2, t, 2, 1, 20, 0.6f, mask});
        p.set_documents(lengths);
        check(p, *queue);
      }
}

TEST_P(Attention, DeviceRulesOfDocuments) {
  for (auto const& lengths : document_lengths())
    for (int d : {20, 200}) {
      SCOPED_TRACE(::testing::Message() << "documents of " << lengths[0]);
      Problem p(dtype, {2, 130, 2, 1, d, 1.0f / std::sqrt(static_cast<float>(d)), {70, 0.0f}},
                {0.1f, 3, 4, 5});
      p.set_documents(lengths);
      run_flash(p, *queue);
      expect_reference(p);
    }
}

/// Each document has the bits that it has as a row of its own.
TEST_P(Attention, ADocumentIsARowOfItsOwn) {
  Problem packed(dtype, {1, 128, 2, 2, 32, 0.2f}), alone(dtype, {2, 64, 2, 2, 32, 0.2f});
  packed.set_documents({64});
  for (std::int64_t i = 0; i < packed.qkv.numel(); ++i) alone.qkv.set(i, packed.qkv.get(i));
  for (std::int64_t i = 0; i < packed.dout.numel(); ++i) alone.dout.set(i, packed.dout.get(i));
  for (Problem* p : {&packed, &alone}) {
    p->forward(*queue);
    p->backward(*queue);
  }
  for (std::int64_t i = 0; i < packed.out.numel(); ++i)
    ASSERT_EQ(packed.out.get(i), alone.out.get(i)) << i;
  for (std::int64_t i = 0; i < packed.dqkv.numel(); ++i)
    ASSERT_EQ(packed.dqkv.get(i), alone.dqkv.get(i)) << i;
}

TEST_P(Attention, DocumentsOfOneRowChangeNothing) {
  Problem plain(dtype, {1, 90, 2, 2, 32, 0.2f}), one = plain;
  one.set_documents({90});
  for (Problem* p : {&plain, &one}) {
    p->forward(*queue);
    p->backward(*queue);
  }
  EXPECT_TRUE(plain.out == one.out && plain.lse == one.lse && plain.dqkv == one.dqkv);
}

TEST_P(Attention, WithDropout) {
  for (std::int64_t t : {64, 67, 130}) {
    Problem p(dtype, {2, t, 3, 3, 64, 0.125f}, {0.2f, 8, 9, 1001});
    check(p, *queue);
  }
}

TEST_P(Attention, DropoutOfABatchRowIsThatOfTheWhole) {
  AttentionShape const one{1, 66, 2, 2, 32, 0.2f};
  AttentionShape two = one;
  two.batch = 2;
  Problem whole(dtype, two, {0.3f, 1, 2, 40}), part(dtype, one, {0.3f, 1, 2, 40 + 2 * 66 * 66});
  std::int64_t const half = part.qkv.numel();
  for (std::int64_t i = 0; i < half; ++i) part.qkv.set(i, whole.qkv.get(half + i));
  whole.forward(*queue);
  part.forward(*queue);
  for (std::int64_t i = 0; i < part.out.numel(); ++i)
    ASSERT_EQ(part.out.get(i), whole.out.get(part.out.numel() + i)) << i;
}

TEST_P(Attention, DeviceRulesAnySequence) {
  for (std::int64_t t : {1, 5, 31, 32, 33, 63, 64, 65, 130}) {
    Problem p(dtype, {2, t, 2, 2, 16, 0.25f});
    run_flash(p, *queue);
    expect_reference(p);
  }
}

TEST_P(Attention, DeviceRulesAnyHead) {
  for (int d : {1, 3, 20, 64, 80, 128, 130, 256}) {
    Problem p(dtype, {1, 75, 2, 1, d, 1.0f / std::sqrt(static_cast<float>(d))}, {0.1f, 3, 4, 5});
    run_flash(p, *queue);
    expect_reference(p);
  }
}

TEST_P(Attention, DeviceRulesInAThreadBlock) {
  for (int d : {24, 64, 100, 256}) {
    Problem p(dtype, {1, 71, 2, 1, d, 1.0f / std::sqrt(static_cast<float>(d))}, {0.1f, 3, 4, 5});
    if (d != 64) p.shape.mask = {37, 1.5f};
    run_flash_as_a_thread_block(p);
    expect_reference(p);
    Problem again = p;
    again.dqkv.randomize(5);
    run_flash_as_a_thread_block(again);
    EXPECT_TRUE(p.out == again.out && p.lse == again.lse && p.dqkv == again.dqkv)
        << "two runs give the same bits";
  }
}

TEST_P(Attention, DeviceRulesOfLargeScoresDoNotOverflow) {
  Problem p(dtype, {1, 80, 1, 1, 32, 40.0f});
  run_flash(p, *queue);
  Reference const want = reference(p, p.qkv.values());
  expect_close(p.out, want.out, 1e-3);
  expect_close(p.lse, want.lse, 1e-6);
}

/// The backward pass of cuDNN is computed in parts where its workspace would be large.
TEST_P(Attention, PartsOfABatchHaveTheGradientsOfAllRows) {
  for (auto const layout : {Layout::in_parts, Layout::next_to_each}) {
    Problem p(dtype, {5, 33, 4, layout == Layout::in_parts ? 2 : 4, 16, 0.25f});
    p.layout = layout;
    if (layout == Layout::in_parts) p.set_documents({7, 5, 16, 12});
    run_flash(p, *queue);
    auto const all = p.dqkv.values();
    p.dqkv.randomize(9);
    for (std::int64_t const first : {0, 2, 4}) {
      auto const part = detail::part_of_batch({{p.config(), p.in()}, p.to(), p.saved()}, first,
                                              std::min<std::int64_t>(2, 5 - first));
      Array delta(Dtype::fp32, {part.saved.lse.numel()});
      detail::attention_backward_on_device(*queue, part.call.config, part.to, part.call.in,
                                           part.saved, delta.view().as<float>());
    }
    EXPECT_EQ(p.dqkv.values(), all);
  }
}

TEST_P(Attention, TwoRunsGiveTheSameBits) {
  Problem a(dtype, {2, 150, 4, 2, 64, 0.125f}, {0.1f, 1, 2, 3}), b = a;
  for (Problem* p : {&a, &b}) {
    p->forward(*queue);
    p->backward(*queue);
  }
  EXPECT_TRUE(a.out == b.out && a.lse == b.lse && a.dqkv == b.dqkv);
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  Problem p(dtype, {1, 80, 1, 1, 32, 40.0f});
  p.forward(*queue);
  Reference const want = reference(p, p.qkv.values());
  expect_close(p.out, want.out, 1e-3);  // scores of 2000 carry absolute errors of 1e-4
  expect_close(p.lse, want.lse, 1e-6);
}

void expect_finite_differences(AttentionMask const& mask, std::int32_t document) {
  Problem p(Dtype::fp32, {1, 5, 2, 1, 3, 0.7f, mask}, {0.2f, 1, 2, 3});
  p.set_documents({document});
  Reals const qkv = p.qkv.values(), dout = p.dout.values();
  Reference const want = reference(p, qkv);
  auto const loss = [&](std::size_t i, double shift) {
    Reals moved = qkv;
    moved[i] += shift;
    Reals const out = reference(p, moved).out;
    double sum = 0;
    for (std::size_t k = 0; k < out.size(); ++k) sum += out[k] * dout[k];
    return sum;
  };
  for (std::size_t i = 0; i < qkv.size(); ++i)
    EXPECT_NEAR(want.dqkv[i], (loss(i, 1e-5) - loss(i, -1e-5)) / 2e-5, 1e-8);
}

TEST(AttentionReference, AgreesWithFiniteDifferences) {
  for (AttentionMask const mask : {AttentionMask{}, {2, 0.0f}, {0, 0.8f}, {3, 1.5f}})
    for (std::int32_t const document : {5, 3}) expect_finite_differences(mask, document);
}

/// A stored operand [B, T, heads, head_dim].
ConstHeadsView packed(Array const& x, int heads, int head_dim) {
  return {x.data(), std::int64_t{heads} * head_dim};
}

TEST(AttentionOracle, EqualsTransformers) {
  auto const queue = memory::make_inline_queue("compute");
  auto const stored = decoder_oracle("attention");
  ASSERT_EQ(stored.size(), 5u);
  for (auto const& c : stored.as_array()) {
    auto const number = [&](char const* key) { return c.at(key).as_int(); };
    AttentionShape const shape{number("batch"),
                               number("length"),
                               static_cast<int>(number("heads")),
                               static_cast<int>(number("kv_heads")),
                               static_cast<int>(number("head_dim")),
                               static_cast<float>(c.at("scale").as_double()),
                               {number("window"), static_cast<float>(c.at("cap").as_double())}};
    SCOPED_TRACE(::testing::Message()
                 << "window " << shape.mask.window << ", cap " << shape.mask.soft_cap);
    auto const array = [&](char const* key) { return array_of(c.at(key), Dtype::fp32); };
    Array const q = array("query"), k = array("key"), v = array("value"), dout = array("dout");
    Array out = dout, dq = q, dk = k, dv = v, lse(Dtype::fp32, {q.numel() / shape.head_dim}),
          workspace(Dtype::fp32, {attention_backward_workspace(*queue, shape)});
    AttentionInput const in{packed(q, shape.heads, shape.head_dim),
                            packed(k, shape.kv_heads, shape.head_dim),
                            packed(v, shape.kv_heads, shape.head_dim)};
    AttentionConfig const config{Dtype::fp32, shape, {}};
    attention(*queue, config, {out.view(), lse.view()}, in);
    std::int64_t const row = std::int64_t{shape.heads} * shape.head_dim,
                       shared_row = std::int64_t{shape.kv_heads} * shape.head_dim;
    attention_backward(*queue, config,
                       {{dq.data(), row}, {dk.data(), shared_row}, {dv.data(), shared_row}}, in,
                       {dout.view(), out.view(), lse.view()}, workspace.view());
    expect_close(out, reals(c.at("out")), 5e-7);
    // dS = P (dP - D) of a query that sees one key is the difference of equal sums of head_dim
    // products, added in other orders on some processors: 1.24e-6 with NEON
    expect_close(dq, reals(c.at("dquery")), 2e-6, 1.0);
    expect_close(dk, reals(c.at("dkey")), 2e-6, 1.0);
    expect_close(dv, reals(c.at("dvalue")), 1e-6);
  }
}

TEST(CudnnAttention, SaysWhatItDoesNotCompute) {
  alignas(16) static std::byte memory[64];
  ConstHeadsView const aligned{memory, 192}, shifted{memory + 2, 192};
  auto const why = [&](Dtype dtype, int head_dim, float dropout, ConstHeadsView const& value) {
    return detail::why_not_cudnn(
        {{dtype, {1, 8, 1, 1, head_dim, 1.0f}, {dropout, 1, 2, 3}}, {aligned, aligned, value}},
        {.major = 8});
  };
  EXPECT_NE(why(Dtype::fp32, 64, 0, aligned).find("fp32; it takes fp16 and bf16"),
            std::string::npos);
  EXPECT_NE(why(Dtype::bf16, 60, 0, aligned).find("heads of 60 elements"), std::string::npos);
  EXPECT_NE(why(Dtype::bf16, 160, 0, aligned).find("heads of 160 elements"), std::string::npos);
  EXPECT_NE(why(Dtype::fp16, 64, 1.0f, aligned).find("a dropout of 1 on"), std::string::npos);
  EXPECT_EQ(why(Dtype::fp16, 64, 0.1f, aligned), why(Dtype::fp16, 64, 0, aligned));
  EXPECT_NE(why(Dtype::fp16, 64, 0, shifted).find("16 bytes"), std::string::npos);
  auto const why_masked = [&](AttentionMask const& mask) {
    return detail::why_not_cudnn(
        {{Dtype::bf16, {1, 8, 1, 1, 64, 1.0f, mask}, {}}, {aligned, aligned, aligned}},
        {.major = 9});
  };
  EXPECT_NE(why_masked({4, 0.0f}).find("sliding window of 4"), std::string::npos);
  EXPECT_NE(why_masked({0, 50.0f}).find("soft cap of 50"), std::string::npos);
  EXPECT_EQ(why_masked({8, 0.0f}), why_masked({})) << "this window holds the sequence";
  EXPECT_EQ(why(Dtype::bf16, 64, 0, aligned).empty(), !detail::cudnn_description().empty());
}

TEST(CudnnAttention, WritesGradientsOnlyWhereTheyAreAligned) {
  alignas(16) static std::byte memory[64];
  HeadsView const aligned{memory, 192, 64};
  EXPECT_EQ(detail::why_not_cudnn(AttentionGradients{aligned, aligned, aligned}), "");
  for (HeadsView const& wrong :
       {HeadsView{memory + 2, 192, 64}, HeadsView{memory, 190, 64}, HeadsView{memory, 192, 60}})
    for (auto const& gradients :
         {AttentionGradients{wrong, aligned, aligned}, AttentionGradients{aligned, wrong, aligned},
          AttentionGradients{aligned, aligned, wrong}})
      EXPECT_NE(detail::why_not_cudnn(gradients).find("gradients that are not aligned to 16 bytes"),
                std::string::npos);
}

TEST(AttentionShape, IsChecked) {
  auto const queue = memory::make_inline_queue("compute");
  Problem heads(Dtype::fp32, {1, 4, 3, 2, 8, 1.0f});
  EXPECT_THROW(heads.forward(*queue), ConfigError);
  Problem wide(Dtype::fp32, {1, 4, 1, 1, 257, 1.0f});
  EXPECT_THROW(wide.forward(*queue), ConfigError);
  for (AttentionMask const mask : {AttentionMask{-1, 0.0f}, {0, -1.0f}}) {
    Problem p(Dtype::fp32, {1, 4, 1, 1, 8, 1.0f, mask});
    EXPECT_THROW(p.forward(*queue), ConfigError);
  }
}

}  // namespace
}  // namespace tessera::kernels::test
