#include "decoder_oracle.hpp"
#include "elementwise/activation_functions.hpp"
#include "fake_device.hpp"
#include "tessera/kernels/elementwise/activation.hpp"

namespace tessera::kernels::test {
namespace {

void finish(Queue& q) { q.record().wait("activations", std::chrono::seconds(60)); }

TESSERA_KERNEL_SUITE(GatedActivations);

/// gate and up in one buffer of rows, with `apart` unused elements between and after them.
struct Gates {
  std::int64_t rows, width, stride, up_at;
  Array both, out, dout, dboth;
  Gates(Dtype t, std::int64_t r, std::int64_t w, std::int64_t apart)
      : rows(r),
        width(w),
        stride(2 * (w + apart)),
        up_at(w + apart),
        both(t, {r, stride}),
        out(t, {r, w}),
        dout(t, {r, w}),
        dboth(t, {r, stride}) {
    both.randomize(1, 4.0);
    dout.randomize(2);
    dboth.randomize(3);
  }
  RowsView part(Array& x, std::int64_t at) const {
    return {static_cast<std::byte*>(x.data()) + static_cast<std::size_t>(at) * size_of(x.dtype()),
            stride};
  }
  ConstRowsView from(Array& x, std::int64_t at) const { return {part(x, at).base, stride}; }
  GatedInput in() { return {from(both, 0), from(both, up_at)}; }
  GatedShape shape() const { return {both.dtype(), rows, width}; }

  void run(Queue& q, Activation f) {
    gated_activate(q, f, shape(), {out.data(), width}, in());
    gated_activate_backward(q, f, shape(), {part(dboth, 0), part(dboth, up_at)},
                            {dout.data(), width}, in());
    finish(q);
  }
};

void check_gates(Queue& q, Dtype dtype, Activation which) {
  Function const& f = functions.at(which);
  for (std::int64_t rows : {2, 7})
    for (std::int64_t width : {3, 7, 64, 1000})
      for (std::int64_t apart : {0, 3, 8}) {
        SCOPED_TRACE(::testing::Message() << rows << " rows of " << width << " + " << apart);
        Gates g(dtype, rows, width, apart);
        Reals want = g.out.values(), slopes = g.dboth.values();
        for (std::int64_t i = 0; i < rows * width; ++i) {
          std::int64_t const at = i / width * g.stride + i % width;
          double const gate = g.both.get(at), up = g.both.get(at + g.up_at), d = g.dout.get(i);
          want[static_cast<std::size_t>(i)] = f(gate) * up;
          slopes[static_cast<std::size_t>(at)] = d * up * slope(f, gate);
          slopes[static_cast<std::size_t>(at + g.up_at)] = d * f(gate);
        }
        g.run(q, which);
        expect_close(g.out, want);
        expect_close(g.dboth, slopes, 2e-6);
      }
}

TEST_P(GatedActivations, ValuesAndGradients) {
  for (auto const& entry : functions) check_gates(*queue, dtype, entry.first);
}

TEST_P(GatedActivations, OnAStream) {
  tessera::test::FakeDevice device;
  auto const stream = memory::make_stream_queue("compute");
  check_gates(*stream, dtype, Activation::silu);
  check_gates(*stream, dtype, Activation::gelu);
}

TEST_P(GatedActivations, GradientsInPlaceOfTheInputs) {
  Gates apart(dtype, 5, 77, 0), here = apart;
  apart.run(*queue, Activation::silu);
  gated_activate_backward(*queue, Activation::silu, here.shape(),
                          {here.part(here.both, 0), here.part(here.both, here.up_at)},
                          {here.dout.data(), here.width}, here.in());
  EXPECT_TRUE(here.both == apart.dboth);
}

}  // namespace
}  // namespace tessera::kernels::test
