/// What a device computes in its row and column kernels, compared with the host, and that it gives
/// the same bits again. Without arguments over a device made of host memory, which tries the test
/// itself; with "device" on a GPU.
#include <gtest/gtest.h>

#include "../kernels/flat_case.hpp"
#include "tessera/kernels/attention/attention.hpp"
#include "tessera/kernels/attention/attention_decode.hpp"
#include "tessera/kernels/attention/rotary.hpp"
#include "tessera/kernels/elementwise/activation.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/kernels/loss/cross_entropy.hpp"
#include "tessera/kernels/loss/embedding.hpp"
#include "tessera/kernels/norm/rms_norm.hpp"

namespace tessera::kernels::test {
namespace {

using Results = std::vector<Array>;

class Rows : public KernelTest {
 protected:
  std::unique_ptr<Queue> stream = memory::make_stream_queue("compute");

  /// call(queue) -> Results. Where sums differ in their last bits, both may be rounded to
  /// neighboring numbers.
  template <class Call>
  void compare(Call const& call, double fp32_error) {
    Results const host = call(*queue), device = call(*stream), again = call(*stream);
    ASSERT_EQ(device.size(), host.size());
    for (std::size_t i = 0; i < host.size(); ++i) {
      SCOPED_TRACE("result " + std::to_string(i));
      ASSERT_NO_FATAL_FAILURE(
          expect_close(device[i], host[i].values(), fp32_error + 4 * rounding(device[i].dtype())));
      EXPECT_TRUE(device[i] == again[i]) << "two runs give the same bits";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Dtypes, Rows, all_dtypes(), dtype_test_name);

Guarded operand(Queue& q, Dtype dtype, std::int64_t numel, std::uint64_t seed, double size = 1.0,
                double middle = 0.0) {
  return Guarded(q, Array(dtype, {numel}).randomize(seed, size, middle), 0);
}

TEST_P(Rows, ColumnSums) {
  for (std::int64_t rows : {1, 3, 1000})
    for (std::int64_t columns : {1, 7, 48, 769, 768, 4800}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows of " << columns);
      compare(
          [&](Queue& q) {
            Guarded const dout = operand(q, dtype, rows * columns, 1),
                          dbias = operand(q, dtype, columns, 2),
                          workspace = operand(q, Dtype::fp32,
                                              1 + bias_gradient_workspace(q, rows, columns), 3);
            bias_gradient(q, {dbias.view(), WriteMode::add}, dout.view(), workspace.view());
            return Results{dbias.read()};
          },
          4e-6);
    }
}

/// What norms of both kinds read and write, each with the given number of rows and columns.
struct NormRows {
  Guarded in, branch, sum, out, gamma;
};
NormRows norm_rows(Queue& q, Dtype dtype, std::int64_t rows, std::int64_t columns) {
  std::int64_t const n = rows * columns;
  return {operand(q, dtype, n, 1, 2.0, 0.5), operand(q, dtype, n, 2), operand(q, dtype, n, 3),
          operand(q, dtype, n, 4), operand(q, dtype, columns, 5, 0.5, 1.0)};
}

TEST_P(Rows, LayerNorms) {
  for (std::int64_t rows : {1, 3, 1000})
    for (std::int64_t columns : {7, 48, 769, 768, 1600}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows of " << columns);
      compare(
          [&](Queue& q) {
            NormRows const x = norm_rows(q, dtype, rows, columns);
            Guarded const &in = x.in, &branch = x.branch, &sum = x.sum, &out = x.out;
            Guarded const beta = operand(q, dtype, columns, 6),
                          mean = operand(q, Dtype::fp32, rows, 7),
                          rstd = operand(q, Dtype::fp32, rows, 8);
            LayerNormWeights const norm{x.gamma.view(), beta.view(), 1e-5f};
            LayerNormOutput const to{out.view(), mean.view(), rstd.view()};
            layer_norm(q, norm, to, in.view());
            Results results{out.read(), mean.read(), rstd.read()};
            residual_layer_norm(q, norm, sum.view(), to,
                                {in.view(), branch.view(), {0.2f, 8, 9, 10}});
            for (Guarded const* r : {&sum, &out, &mean, &rstd}) results.push_back(r->read());
            return results;
          },
          1e-5 + 4 * rounding(dtype));
      compare(
          [&](Queue& q) {
            std::int64_t const n = rows * columns;
            Guarded const in = operand(q, dtype, n, 1, 2.0, 0.5), dout = operand(q, dtype, n, 2),
                          din = operand(q, dtype, n, 3),
                          gamma = operand(q, dtype, columns, 5, 0.5, 1.0),
                          mean = operand(q, Dtype::fp32, rows, 7, 0.1, 0.5),
                          rstd = operand(q, Dtype::fp32, rows, 8, 0.1, 0.9),
                          dgamma = operand(q, Dtype::fp32, columns, 9),
                          dbeta = operand(q, Dtype::fp32, columns, 10),
                          workspace = operand(q, Dtype::fp32,
                                              layer_norm_backward_workspace(q, rows, columns), 11);
            layer_norm_backward(
                q, {{din.view(), WriteMode::add}, dgamma.view(), dbeta.view(), WriteMode::add},
                {dout.view(), in.view(), mean.view(), rstd.view(), gamma.view()}, workspace.view());
            return Results{din.read(), dgamma.read(), dbeta.read()};
          },
          1e-5);
    }
}

TEST_P(Rows, CrossEntropy) {
  for (std::int64_t columns : {1, 7, 1000, 50257})
    for (std::int64_t row : {columns, (columns + 63) / 64 * 64}) {
      SCOPED_TRACE(::testing::Message() << columns << " columns in rows of " << row);
      compare(
          [&](Queue& q) {
            std::int64_t const rows = 9;
            Array wanted(Dtype::int32, {rows});
            for (std::int64_t r = 0; r < rows; ++r)
              wanted.set(r, r % 3 == 1 ? -100.0 : static_cast<double>(r * 7919 % columns));
            Array zeros(dtype, {rows * row});
            Guarded const logits = operand(q, Dtype::fp32, rows * row, 1, 8.0),
                          dlogits(q, zeros, 0), losses = operand(q, Dtype::fp32, rows, 2),
                          targets(q, wanted, 0);
            cross_entropy(q, {0.125f, columns}, losses.view(), dlogits.view(), logits.view(),
                          targets.view());
            Array gradients = dlogits.read();
            for (std::int64_t i = 0; i < gradients.numel(); ++i)
              if (i % row >= columns) gradients.set(i, 0.0);  // undefined
            return Results{losses.read(), gradients};
          },
          2e-6);
    }
}

TEST_P(Rows, Embeddings) {
  std::int64_t const batch = 5, sequence = 67, positions = batch * sequence, vocabulary = 400;
  for (std::int64_t columns : {7, 48, 768, 1600})
    for (bool equal : {false, true}) {
      SCOPED_TRACE(::testing::Message() << columns << " columns" << (equal ? ", one token" : ""));
      compare(
          [&](Queue& q) {
            Array ids(Dtype::int32, {positions}), sorted(Dtype::int32, {positions});
            for (std::int64_t i = 0; i < positions; ++i)
              ids.set(i, equal || i % 2 == 0 ? 7.0 : static_cast<double>(i * 7919 % vocabulary));
            order_by_token(sorted.view().as<std::int32_t>(), ids.view().as<std::int32_t>(),
                           positions);
            Dropout const drop{0.1f, 3, 4, 5};
            Guarded const flat_tokens(q, ids, 0), order(q, sorted, 0),
                wte = operand(q, dtype, vocabulary * columns, 1),
                wpe = operand(q, dtype, 70 * columns, 2),
                out = operand(q, dtype, positions * columns, 3),
                dwte = operand(q, dtype, vocabulary * columns, 4),
                dwpe = operand(q, dtype, 70 * columns, 5),
                dout = operand(q, dtype, positions * columns, 6),
                parts =
                    operand(q, Dtype::fp32, 1 + embedding_backward_parts(q, positions, columns), 7);
            TensorView const tokens = flat_tokens.view().reshape({batch, sequence});
            auto const table = [&](Guarded const& t) {
              return t.view().reshape({t.view().numel() / columns, columns});
            };
            embedding(q, out.view(), tokens, table(wte), {table(wpe)}, drop);
            embedding_backward(q, drop, {{table(dwte), WriteMode::add}, {table(dwpe)}},
                               {dout.view(), tokens, {order.view(), parts.view()}});
            return Results{out.read(), dwte.read(), dwpe.read()};
          },
          3e-6);
    }
}

TEST_P(Rows, RmsNorms) {
  for (std::int64_t rows : {1, 3, 1000})
    for (std::int64_t columns : {7, 48, 769, 768, 1600}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows of " << columns);
      compare(
          [&](Queue& q) {
            NormRows const x = norm_rows(q, dtype, rows, columns);
            Guarded const &in = x.in, &branch = x.branch, &sum = x.sum, &out = x.out;
            Guarded const rstd = operand(q, Dtype::fp32, rows, 6),
                          din = operand(q, dtype, rows * columns, 7),
                          dgamma = operand(q, Dtype::fp32, columns, 8),
                          workspace = operand(q, Dtype::fp32,
                                              rms_norm_backward_workspace(q, rows, columns), 9);
            RmsNormWeights const norm{x.gamma.view(), 1e-5f, 1.0f, RmsNormRounding::after_gamma};
            rms_norm(q, norm, {out.view(), rstd.view()}, in.view());
            Results results{out.read(), rstd.read()};
            rms_norm_backward(q, norm,
                              {{din.view(), WriteMode::add}, {dgamma.view(), WriteMode::add}},
                              {branch.view(), in.view(), rstd.view()}, workspace.view());
            residual_rms_norm(q, norm, sum.view(), {out.view(), rstd.view()},
                              {in.view(), branch.view(), {0.2f, 8, 9, 10}});
            for (Guarded const* r : {&din, &dgamma, &sum, &out, &rstd})
              results.push_back(r->read());
            return results;
          },
          1e-5 + 4 * rounding(dtype));
    }
}

/// Norms and rotations of the heads of rows, in place, and gated activations of the same rows.
TEST_P(Rows, HeadsAndGates) {
  std::int64_t const batch = 3, sequence = 17, rows = batch * sequence;
  for (int head_dim : {6, 64, 128})
    for (int rotary_dim : {2, head_dim / 2, head_dim}) {
      if (rotary_dim % 2 != 0) continue;
      SCOPED_TRACE(::testing::Message() << rotary_dim << " of " << head_dim);
      std::int64_t const width = 5 * head_dim;
      compare(
          [&](Queue& q) {
            Guarded const x = operand(q, dtype, rows * width, 1, 2.0),
                          up = operand(q, dtype, rows * width, 2),
                          out = operand(q, dtype, rows * width, 3),
                          gamma = operand(q, dtype, head_dim, 4, 0.5, 1.0),
                          rstd = operand(q, Dtype::fp32, rows * 5, 5),
                          cos = operand(q, Dtype::fp32, 64 * (rotary_dim / 2), 6),
                          sin = operand(q, Dtype::fp32, 64 * (rotary_dim / 2), 7);
            HeadsView const heads{x.data(), width};
            rms_norm_heads(q, {gamma.view()}, {dtype, rows, 5, head_dim}, {heads, rstd.view()},
                           heads);
            rotate_heads(q,
                         {{dtype, batch, sequence, 5, head_dim, rotary_dim},
                          {cos.view(), sin.view()},
                          {9, {}}},
                         heads, heads, RotaryDirection::inverse);
            gated_activate(q, Activation::silu, {dtype, rows, width}, {out.data(), width},
                           {{x.data(), width}, {up.data(), width}});
            return Results{x.read(), rstd.read(), out.read()};
          },
          1e-5 + 8 * rounding(dtype));
    }
}

TEST_P(Rows, AttentionWithAWindowASoftCapAndACache) {
  std::int64_t const batch = 2, length = 150;
  for (int head_dim : {20, 64, 128}) {
    SCOPED_TRACE(head_dim);
    int const heads = 4, kv_heads = 2;
    std::int64_t const row = std::int64_t{heads} * head_dim, shared = row / 2;
    AttentionShape const shape{batch, length, heads, kv_heads, head_dim, 0.2f, {37, 2.0f}};
    compare(
        [&](Queue& q) {
          Array rows_of_cache(Dtype::int32, {batch});
          rows_of_cache.set(0, 150);
          rows_of_cache.set(1, 41);
          Guarded const query = operand(q, dtype, batch * length * row, 1),
                        key = operand(q, dtype, batch * length * shared, 2),
                        value = operand(q, dtype, batch * length * shared, 3),
                        dout = operand(q, dtype, batch * length * row, 4),
                        out = operand(q, dtype, batch * length * row, 5),
                        lse = operand(q, Dtype::fp32, batch * heads * length, 6),
                        dquery = operand(q, dtype, batch * length * row, 7),
                        dkey = operand(q, dtype, batch * length * shared, 8),
                        dvalue = operand(q, dtype, batch * length * shared, 9),
                        workspace =
                            operand(q, Dtype::fp32, attention_backward_workspace(q, shape), 10),
                        decoded = operand(q, dtype, batch * row, 11), lengths(q, rows_of_cache, 0);
          AttentionConfig const config{dtype, shape, {}};
          AttentionInput const in{
              {query.data(), row}, {key.data(), shared}, {value.data(), shared}};
          attention(q, config, {out.view(), lse.view()}, in);
          attention_backward(q, config,
                             {{dquery.data(), row}, {dkey.data(), shared}, {dvalue.data(), shared}},
                             in, {dout.view(), out.view(), lse.view()}, workspace.view());
          DecodeShape const decode{dtype,    batch, 1,          heads, kv_heads,
                                   head_dim, 0.2f,  {37, 2.0f}, length};
          attention_decode(q, decode, decoded.view(),
                           {{query.data(), row},
                            {key.data(), length * shared, shared},
                            {value.data(), length * shared, shared},
                            lengths.view()},
                           {});
          Results results;
          for (Guarded const* r : {&out, &lse, &dquery, &dkey, &dvalue, &decoded})
            results.push_back(r->read());
          return results;
        },
        1e-5 + 8 * rounding(dtype));
  }
}

}  // namespace
}  // namespace tessera::kernels::test
