/// Times causal attention, forward and backward of one layer, on fused rows [B, T, 3C] as GPT-2's
/// projection gives them:
///   bench.attention [rows=4] [sequence=256] [heads=12] [head_dim=64] [dropout=0] [repeats=40]
///       [dtype=fp32]
/// Prints one JSON line with the best times and what computed: dtype fp32 or bf16. Its peer is
/// attention_torch.py with the same arguments; OMP_NUM_THREADS for both.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "interleaved.hpp"
#include "tessera/core/random.hpp"
#include "tessera/kernels/attention/attention.hpp"
#include "tessera/kernels/launch/used_routes.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/runtime.hpp"

namespace {

using namespace tessera;

memory::TensorView random_rows(memory::Arena& arena, Dtype dtype, std::int64_t rows,
                               std::int64_t columns) {
  auto const view = arena.allocate(dtype, {rows, columns});
  Philox const random{1, 2};
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    float const value = 2.0f * random.uniform(static_cast<std::uint64_t>(i)) - 1.0f;
    if (dtype == Dtype::fp32)
      view.as<float>()[i] = value;
    else
      view.as<bfloat16>()[i] = bfloat16(value);
  }
  return view;
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

  Dtype const dtype = argc > 7 ? dtype_from_name(argv[7]) : Dtype::fp32;

  auto const queue = memory::make_inline_queue("compute");
  memory::Arena arena("attention", memory::Purpose::activations);
  std::int64_t const rows = shape.batch * shape.sequence,
                     columns = std::int64_t{shape.heads} * shape.head_dim, stride = 3 * columns;
  auto const qkv = random_rows(arena, dtype, rows, stride),
             dqkv = random_rows(arena, dtype, rows, stride),
             out = random_rows(arena, dtype, rows, columns),
             dout = random_rows(arena, dtype, rows, columns);
  auto const lse = arena.allocate(Dtype::fp32, {shape.batch, shape.heads, shape.sequence});
  auto const workspace =
      arena.allocate(Dtype::fp32, {kernels::attention_backward_workspace(*queue, shape)});
  auto const part = [&](memory::TensorView const& view, int i) {
    return static_cast<std::byte*>(view.data()) +
           static_cast<std::size_t>(i * columns) * size_of(dtype);
  };

  kernels::AttentionConfig const config{dtype, shape, drop};
  kernels::AttentionInput const from{
      {part(qkv, 0), stride}, {part(qkv, 1), stride}, {part(qkv, 2), stride}};
  kernels::AttentionGradients const to{
      {part(dqkv, 0), stride}, {part(dqkv, 1), stride}, {part(dqkv, 2), stride}};

  auto const times = bench::interleaved(
      {[&] {
         kernels::attention(*queue, config, {out, lse}, from);
       },
       [&] {
         kernels::attention_backward(*queue, config, to, from, {dout, out, lse}, workspace);
       }},
      static_cast<int>(argument(6, 40)));
  std::printf(
      "{\"program\": \"tessera\", \"threads\": %d, \"dtype\": \"%s\", \"dropout\": %g, "
      "\"forward_ms\": %.3f, "
      "\"backward_ms\": %.3f, \"uses\": \"%s\"}\n",
      memory::Runtime::threads(), std::string(name_of(dtype)).c_str(), static_cast<double>(drop.p),
      1e3 * times[0].best, 1e3 * times[1].best, kernels::used_routes_text().c_str());
  return 0;
}
