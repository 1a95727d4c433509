/// Norms of fp32 rows that write 16-bit rows or copies, as under autocast: those of fp32 rows
/// with casts next to them, bit for bit but for sums that the host's compiler vectorizes.
#include "fake_device.hpp"
#include "fiber_thread_block.hpp"
#include "launch/element_types.hpp"
#include "norm/rms_norm_device.hpp"
#include "reference.hpp"
#include "tessera/kernels/norm/layer_norm.hpp"

namespace tessera::kernels::test {
namespace {

constexpr std::int64_t rows = 21;

class NarrowNorms : public testing::TestWithParam<Dtype> {
 protected:
  std::unique_ptr<Queue> host = memory::make_inline_queue("host");

  Array cast_to(Dtype dtype, Array const& from, std::int64_t columns) {
    Array out(dtype, {rows, columns});
    cast(*host, out.view(), from.view());
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Dtypes, NarrowNorms, testing::Values(Dtype::fp16, Dtype::bf16),
                         [](auto const& info) { return std::string(name_of(info.param)); });

/// The operands of a norm of fp32 rows whose neighbors are of another dtype.
struct Operands {
  std::int64_t columns;
  Array in, gamma, beta, branch, dout, sum, out, din, copy;
  Array mean{Dtype::fp32, {rows}}, rstd{Dtype::fp32, {rows}};
  Array dgamma, dbeta;

  Operands(Dtype narrow, std::int64_t c)
      : columns(c),
        in(Dtype::fp32, {rows, c}),
        gamma(Dtype::fp32, {c}),
        beta(Dtype::fp32, {c}),
        branch(Dtype::fp32, {rows, c}),
        dout(Dtype::fp32, {rows, c}),
        sum(Dtype::fp32, {rows, c}),
        out(narrow, {rows, c}),
        din(Dtype::fp32, {rows, c}),
        copy(narrow, {rows, c}),
        dgamma(Dtype::fp32, {c}),
        dbeta(Dtype::fp32, {c}) {
    in.randomize(1, 2.0, 0.5);
    gamma.randomize(2, 0.5, 1.0);
    beta.randomize(3);
    branch.randomize(4);
    dout.randomize(5);
    din.randomize(6);
  }
  LayerNormWeights layer_weights() { return {gamma.view(), beta.view()}; }
  RmsNormWeights rms_weights() { return {.gamma = gamma.view()}; }
  LayerNormOutput layer_output() { return {out.view(), mean.view(), rstd.view()}; }
  RmsNormOutput rms_output() { return {out.view(), rstd.view()}; }
  ResidualBranch residual(Dropout const& drop) { return {in.view(), branch.view(), drop}; }
};

/// All norms in the order of a training step.
struct Results {
  std::vector<Array> wide, narrow;
};

Results run_all(Queue& q, Operands o, Dropout const& drop, bool copies) {
  Results results;
  auto const finish = [&] { q.record().wait("norm", std::chrono::seconds(60)); };
  auto const keep = [&](std::initializer_list<Array const*> wide, Array const& narrow) {
    finish();
    for (auto const* array : wide) results.wide.push_back(*array);
    results.narrow.push_back(narrow);
  };
  TensorView const copy = copies ? o.copy.view() : TensorView{};
  Array workspace(Dtype::fp32, {layer_norm_backward_workspace(q, rows, o.columns)});
  layer_norm(q, o.layer_weights(), o.layer_output(), o.in.view());
  keep({&o.mean, &o.rstd}, o.out);
  residual_layer_norm(q, o.layer_weights(), o.sum.view(), o.layer_output(), o.residual(drop));
  keep({&o.sum, &o.mean, &o.rstd}, o.out);
  layer_norm_backward(
      q,
      {{o.din.view(), WriteMode::add}, o.dgamma.view(), o.dbeta.view(), WriteMode::overwrite, copy},
      {o.dout.view(), o.sum.view(), o.mean.view(), o.rstd.view(), o.gamma.view()},
      workspace.view());
  keep({&o.din, &o.dgamma, &o.dbeta}, copies ? o.copy : o.din);
  rms_norm(q, o.rms_weights(), o.rms_output(), o.in.view());
  keep({&o.rstd}, o.out);
  residual_rms_norm(q, o.rms_weights(), o.sum.view(), o.rms_output(), o.residual(drop));
  keep({&o.sum, &o.rstd}, o.out);
  rms_norm_backward(q, o.rms_weights(), {{o.din.view(), WriteMode::add}, {o.dgamma.view()}, copy},
                    {o.dout.view(), o.sum.view(), o.rstd.view()}, workspace.view());
  keep({&o.din, &o.dgamma}, copies ? o.copy : o.din);
  return results;
}

TEST_P(NarrowNorms, AreThoseOfFp32WithCasts) {
  tessera::test::FakeDevice device;
  auto const stream = memory::make_stream_queue("compute");
  for (Queue* const q : {host.get(), stream.get()})
    for (std::int64_t const columns : {257, 768})
      for (float const p : {0.0f, 0.2f}) {
        SCOPED_TRACE(testing::Message() << columns << " columns, dropout " << p);
        Operands narrow(GetParam(), columns), wide(Dtype::fp32, columns);
        Dropout const drop{p, 8, 9, 10};
        Results const got = run_all(*q, narrow, drop, true), want = run_all(*q, wide, drop, false);
        for (std::size_t i = 0; i < want.wide.size(); ++i)
          expect_close(got.wide[i], want.wide[i].values(), 1e-6);
        for (std::size_t i = 0; i < want.narrow.size(); ++i)
          EXPECT_TRUE(
              got.narrow[i] ==
              cast_to(GetParam(), i % 3 == 2 ? got.wide[i == 2 ? 5 : 11] : want.narrow[i], columns))
              << "16-bit result " << i << "; of backward passes the copy of din";
      }
}

/// Runs rules of a device in a thread block, in one order of its threads.
template <class Narrow>
Results run_on_fibers(Operands o, bool copies, FiberOrder order) {
  constexpr int threads = 256;
  Results results;
  auto const run = [&](auto const& rule) {
    FiberThreadBlock<threads>(order).run(rule, rule.teams());
  };
  float *const mean = o.mean.view().as<float>(), *const rstd = o.rstd.view().as<float>(),
               *const sum = o.sum.view().as<float>();
  auto* const copy = copies ? o.copy.view().template as<Narrow>() : nullptr;
  auto const* const gamma = o.gamma.view().template as<float>();
  std::int64_t const chunk = detail::rows_per_norm_chunk(rows);
  std::vector<float> parts(static_cast<std::size_t>(4 * o.columns), std::nanf(""));
  using Layer = detail::TeamNormalize<float, threads, Narrow>;
  Layer const layer{o.out.view().template as<Narrow>(), mean, rstd,      sum,  gamma,
                    o.beta.view().template as<float>(), rows, o.columns, 1e-5f};
  run(detail::TeamResidualNormalize<float, threads, Layer>{
      sum, o.in.view().template as<float>(), o.branch.view().template as<float>(),
      detail::DropoutFactors(Dropout{0.2f, 8, 9, 10}), layer});
  results.wide.insert(results.wide.end(), {o.sum, o.mean, o.rstd});
  results.narrow.push_back(o.out);
  run(detail::TeamNormalizeBackward<float, threads, Narrow>{
      o.din.view().template as<float>(), o.dout.view().template as<float>(), sum, mean, rstd, gamma,
      parts.data(), rows, o.columns, chunk, true, copy});
  results.wide.push_back(o.din);
  results.narrow.push_back(copies ? o.copy : o.din);
  detail::RmsGamma<float> const rms_gamma(o.rms_weights());
  run(detail::TeamRmsNormalize<float, threads, Narrow>{o.out.view().template as<Narrow>(), rstd,
                                                       sum, rms_gamma, rows, o.columns, 1e-6f});
  results.wide.push_back(o.rstd);
  results.narrow.push_back(o.out);
  run(detail::TeamRmsNormalizeBackward<float, threads, Narrow>{
      o.din.view().template as<float>(), o.dout.view().template as<float>(), sum, rstd, rms_gamma,
      parts.data(), rows, o.columns, chunk, true, copy});
  results.wide.push_back(o.din);
  results.narrow.push_back(copies ? o.copy : o.din);
  return results;
}

TEST_P(NarrowNorms, DeviceRulesInBlocksOfThreads) {
  std::int64_t const columns = 776;
  Operands narrow(GetParam(), columns), wide(Dtype::fp32, columns);
  Results const want = run_on_fibers<float>(wide, false, FiberOrder::ascending);
  detail::with_type(GetParam(), "test", [&](auto tag) {
    for (auto const order : {FiberOrder::ascending, FiberOrder::descending}) {
      Results const got = run_on_fibers<typename decltype(tag)::type>(narrow, true, order);
      for (std::size_t i = 0; i < want.wide.size(); ++i)
        EXPECT_TRUE(got.wide[i] == want.wide[i]) << "fp32 result " << i;
      for (std::size_t i = 0; i < want.narrow.size(); ++i)
        EXPECT_TRUE(got.narrow[i] == cast_to(GetParam(), want.narrow[i], columns))
            << "16-bit result " << i;
    }
  });
}

TEST_P(NarrowNorms, DropoutWritesThemToo) {
  std::int64_t const columns = 301;
  for (float const p : {0.0f, 0.3f}) {
    Operands narrow(GetParam(), columns), wide(Dtype::fp32, columns);
    Dropout const drop{p, 8, 9, 10};
    dropout(*host, narrow.out.view(), narrow.in.view(), drop);
    dropout(*host, wide.out.view(), wide.in.view(), drop);
    EXPECT_TRUE(narrow.out == cast_to(GetParam(), wide.out, columns));
  }
}

TEST_P(NarrowNorms, RefuseOtherPairs) {
  Operands o(GetParam(), 64);
  Array in(GetParam() == Dtype::fp16 ? Dtype::bf16 : Dtype::fp16, {rows, 64});
  EXPECT_THROW(layer_norm(*host, o.layer_weights(), o.layer_output(), in.view()), InternalError);
}

}  // namespace
}  // namespace tessera::kernels::test
