/// Times causal attention, forward and backward of one layer, on fused rows [B, T, 3C] as GPT-2's
/// projection gives them:
///   bench.attention [rows=4] [sequence=256] [heads=12] [head_dim=64] [dropout=0] [repeats=40]
/// Prints one JSON line with the best times. Its peer is attention_torch.py with the same
/// arguments; OMP_NUM_THREADS for both.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tessera/core/random.hpp"
#include "tessera/kernels/attention_backward.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/runtime.hpp"

namespace {

using namespace tessera;

memory::TensorView random_rows(memory::Arena& arena, std::int64_t rows, std::int64_t columns) {
  auto const view = arena.allocate(Dtype::fp32, {rows, columns});
  Philox const random{1, 2};
  for (std::int64_t i = 0; i < view.numel(); ++i)
    view.as<float>()[i] = 2.0f * random.uniform(static_cast<std::uint64_t>(i)) - 1.0f;
  return view;
}

template <class Work>
double milliseconds(Work const& work) {
  auto const start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

int main(int argc, char** argv) {
  memory::Runtime const runtime{{}};
  auto const argument = [&](int i, double otherwise) {
    return i < argc ? std::atof(argv[i]) : otherwise;
  };
  kernels::AttentionShape shape;
  shape.batch = static_cast<std::int64_t>(argument(1, 4));
  shape.sequence = static_cast<std::int64_t>(argument(2, 256));
  shape.heads = shape.kv_heads = static_cast<int>(argument(3, 12));
  shape.head_dim = static_cast<int>(argument(4, 64));
  shape.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  kernels::Dropout const drop{static_cast<float>(argument(5, 0)), 1, 2, 3};

  auto const queue = memory::make_inline_queue("compute");
  memory::Arena arena("attention", memory::Purpose::activations);
  std::int64_t const rows = shape.batch * shape.sequence,
                     columns = std::int64_t{shape.heads} * shape.head_dim, stride = 3 * columns;
  float *const qkv = random_rows(arena, rows, stride).as<float>(),
               *const dqkv = random_rows(arena, rows, stride).as<float>();
  auto const out = random_rows(arena, rows, columns), dout = random_rows(arena, rows, columns);
  auto const lse = arena.allocate(Dtype::fp32, {shape.batch, shape.heads, shape.sequence});
  auto const workspace =
      arena.allocate(Dtype::fp32, {kernels::attention_backward_workspace(*queue, shape)});

  kernels::AttentionConfig const config{Dtype::fp32, shape, drop};
  kernels::AttentionInput const from{
      {qkv, stride}, {qkv + columns, stride}, {qkv + 2 * columns, stride}};
  kernels::AttentionGradients const to{
      {dqkv, stride}, {dqkv + columns, stride}, {dqkv + 2 * columns, stride}};

  double forward = 1e9, backward = 1e9;
  for (int i = 0; i < static_cast<int>(argument(6, 40)); ++i) {
    forward = std::min(forward, milliseconds([&] {
                         kernels::attention(*queue, config, {out, lse}, from);
                       }));
    backward = std::min(
        backward, milliseconds([&] {
          kernels::attention_backward(*queue, config, to, from, {dout, out, lse}, workspace);
        }));
  }
  std::printf(
      "{\"program\": \"tessera\", \"threads\": %d, \"dropout\": %g, \"forward_ms\": %.3f, "
      "\"backward_ms\": %.3f}\n",
      memory::Runtime::threads(), static_cast<double>(drop.p), forward, backward);
  return 0;
}
