#include "tessera/kernels/elementwise/column_scaling.hpp"

#include "fake_device.hpp"
#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

TESSERA_KERNEL_SUITE(ColumnScaling);

void wait_for(Queue& q) { q.record().wait("columns", std::chrono::seconds(60)); }

void check_columns(Queue& q, Dtype dtype) {
  for (std::int64_t const rows : {1, 5})
    for (std::int64_t const columns : {1, 7, 257}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows of " << columns);
      Array in(dtype, {rows, columns}), out(dtype, {rows, columns}),
          shifted = out, wide(Dtype::fp32, {rows, columns}), factors(Dtype::fp32, {columns}),
          bias = factors;
      in.randomize(1), shifted.randomize(2), wide.randomize(3);
      factors.randomize(4), bias.randomize(5);
      Array in_place = in, plain = shifted;
      Reals scaled = in.values(), added = scaled, added_plain = scaled, itself = scaled,
            product = scaled;
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        auto const at = static_cast<std::size_t>(i);
        double const x = in.get(i), f = factors.get(i % columns), b = bias.get(i % columns);
        scaled[at] = x * (f - 1.0);
        added[at] = shifted.get(i) + (f - 1.0) * (x - b);
        added_plain[at] = shifted.get(i) + (f - 1.0) * x;
        itself[at] = x + (f - 1.0) * (x - b);
        product[at] = wide.get(i) * x * f;
      }
      scale_columns(q, out.view(), in.view(), factors.view(), -1.0f);
      add_scaled_columns(q, shifted.view(), in.view(), factors.view(), bias.view());
      add_scaled_columns(q, plain.view(), in.view(), factors.view());
      add_scaled_columns(q, in_place.view(), in_place.view(), factors.view(), bias.view());
      multiply_columns(q, wide.view(), in.view(), factors.view());
      wait_for(q);
      expect_close(out, scaled);
      expect_close(shifted, added);
      expect_close(plain, added_plain);
      expect_close(in_place, itself);
      expect_close(wide, product);
    }
}

TEST_P(ColumnScaling, MatchesItsDefinition) { check_columns(*queue, dtype); }

TEST_P(ColumnScaling, OnAStream) {
  tessera::test::FakeDevice device;
  check_columns(*memory::make_stream_queue("compute"), dtype);
}

/// Against norms of rows of W + s B A in double.
void check_factors(Queue& q, Dtype dtype) {
  constexpr double s = 0.75;
  for (bool const transposed : {false, true})
    for (auto const& [outputs, inputs, rank] :
         {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 1},
          {7, 300, 3},
          {130, 65, 8}}) {
      SCOPED_TRACE(::testing::Message() << outputs << " x " << inputs << ", rank " << rank);
      Array w(dtype, {transposed ? inputs : outputs, transposed ? outputs : inputs}),
          b(Dtype::fp32, {outputs, rank}), products = b, magnitudes(Dtype::fp32, {outputs}),
                                           factors = magnitudes, inverses = magnitudes,
                                           a(Dtype::fp32, {rank, inputs});
      w.randomize(1), a.randomize(2), b.randomize(3), magnitudes.randomize(4);
      auto const weight = [&](std::int64_t o, std::int64_t i) {
        return w.get(transposed ? i * outputs + o : o * inputs + i);
      };
      Reals want_factors, want_inverses;
      for (std::int64_t o = 0; o < outputs; ++o) {
        double norm = 0.0;
        for (std::int64_t i = 0; i < inputs; ++i) {
          double v = weight(o, i);
          for (std::int64_t r = 0; r < rank; ++r)
            v += s * b.get(o * rank + r) * a.get(r * inputs + i);
          norm += v * v;
        }
        want_inverses.push_back(1.0 / std::sqrt(norm));
        want_factors.push_back(magnitudes.get(o) / std::sqrt(norm));
        for (std::int64_t r = 0; r < rank; ++r) {
          double product = 0.0;
          for (std::int64_t i = 0; i < inputs; ++i) {
            product += 2.0 * s * weight(o, i) * a.get(r * inputs + i);
            for (std::int64_t k = 0; k < rank; ++k)
              product +=
                  s * s * b.get(o * rank + k) * a.get(k * inputs + i) * a.get(r * inputs + i);
          }
          products.set(o * rank + r, product);
        }
      }
      adapted_row_factors(q, factors.view(), inverses.view(), magnitudes.view(),
                          {.weight = w.view(),
                           .b = b.view(),
                           .products = products.view(),
                           .transposed = transposed});
      wait_for(q);
      expect_close(factors, want_factors, 1e-5);
      expect_close(inverses, want_inverses, 1e-5);
    }
}

TEST_P(ColumnScaling, FactorsAreMagnitudesOverNorms) { check_factors(*queue, dtype); }

TEST_P(ColumnScaling, FactorsOnAStream) {
  tessera::test::FakeDevice device;
  check_factors(*memory::make_stream_queue("compute"), dtype);
}

}  // namespace
}  // namespace tessera::kernels::test
