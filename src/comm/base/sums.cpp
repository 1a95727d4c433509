#include "base/sums.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/path_limits.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/streaming.hpp"

namespace tessera::comm::detail {
namespace {

/// Elements per tile: the accumulator stays in the L1 cache.
constexpr std::int64_t tile = 1024;
/// Size from which on stores are non-temporal. Memory traffic falls from 4 to 3 bytes per byte of a
/// reduction's result, as from 3 to 2 per byte of a copy. Smaller results may still be in a cache
/// when they are read. Measured with tests/bench/collectives_bench.
constexpr std::size_t large_result = std::size_t{16} << 20;

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {  // wraps around
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return (b > a || b != b) ? b : a;  // NOLINT(misc-redundant-expression)
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return (b < a || b != b) ? b : a;  // NOLINT(misc-redundant-expression)
  }
};

template <class T>
T const* typed(std::byte const* p) {
  return reinterpret_cast<T const*>(p);
}

template <class Acc, class T>
void load(Acc* acc, std::byte const* from, std::int64_t n) {
  T const* const in = typed<T>(from);
  for (std::int64_t i = 0; i < n; ++i) acc[i] = static_cast<Acc>(in[i]);
}

/// Two sources per loop: more loads are in flight than with one source after the other.
template <class Acc, class T, class Op>
void load_pair(Acc* acc, std::byte const* from, std::byte const* from_other, std::int64_t n) {
  T const *const in = typed<T>(from), *const other = typed<T>(from_other);
  for (std::int64_t i = 0; i < n; ++i)
    acc[i] = Op::apply(static_cast<Acc>(in[i]), static_cast<Acc>(other[i]));
}

template <class Acc, class T, class Op>
void combine(Acc* acc, std::byte const* from, std::int64_t n) {
  T const* const in = typed<T>(from);
  for (std::int64_t i = 0; i < n; ++i) acc[i] = Op::apply(acc[i], static_cast<Acc>(in[i]));
}

template <class Acc, class T>
void store(std::byte* to, Acc const* acc, std::int64_t n) {
  T* const out = reinterpret_cast<T*>(to);
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(acc[i]);
}

template <class Acc, class Op>
void merge(Acc* acc, Acc const* other, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) acc[i] = Op::apply(acc[i], other[i]);
}

/// The steps of a reduction for one input dtype.
template <class Acc>
struct Input {
  void (*load)(Acc*, std::byte const*, std::int64_t);
  void (*load_pair)(Acc*, std::byte const*, std::byte const*, std::int64_t);
  void (*merge)(Acc*, Acc const*, std::int64_t);
};
template <class Acc, class T>
Input<Acc> input(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return {load<Acc, T>, load_pair<Acc, T, Sum>, merge<Acc, Sum>};
    case ReduceOp::max:
      return {load<Acc, T>, load_pair<Acc, T, Max>, merge<Acc, Max>};
    case ReduceOp::min:
      return {load<Acc, T>, load_pair<Acc, T, Min>, merge<Acc, Min>};
  }
  return {};
}
template <class Acc>
struct Output {
  void (*add)(Acc*, std::byte const*, std::int64_t);
  void (*store)(std::byte*, Acc const*, std::int64_t);
};
template <class Acc, class T>
Output<Acc> output() {
  return {combine<Acc, T, Sum>, store<Acc, T>};
}

/// Partial sums of accumulate() that exist at the same time: of pairs of sources, then of pairs of
/// these, and so on.
std::size_t levels_of(std::size_t sources) { return std::bit_width((sources + 1) / 2); }

/// Elements [first, first + n) of all sources into the first tile of the accumulator, added as a
/// binary tree: a pair, then two pairs, then two such sums. Tile k + 1 holds what is added to that
/// of tile k when it covers as many sources.
template <class Acc>
void accumulate(Input<Acc> const& in, std::span<std::byte const* const> sources, std::size_t at,
                std::int64_t n, Acc* acc) {
  std::size_t depth = 0;
  auto const add_last = [&] {
    --depth;
    in.merge(acc + (depth - 1) * tile, acc + depth * tile, n);
  };
  for (std::size_t q = 0; q < sources.size(); q += 2) {
    Acc* const top = acc + depth++ * tile;
    if (q + 1 < sources.size())
      in.load_pair(top, sources[q] + at, sources[q + 1] + at, n);
    else
      in.load(top, sources[q] + at, n);
    for (std::size_t pair = q / 2; pair % 2 == 1; pair /= 2) add_last();
  }
  while (depth > 1) add_last();  // NOLINT(bugprone-infinite-loop): add_last() changes depth
}

/// The accumulator's tiles: on the stack for as many sources as usual.
template <class Acc>
class Tiles {
 public:
  explicit Tiles(std::size_t sources) {
    if (levels_of(sources) > levels) more_.resize(levels_of(sources) * tile);
  }
  Acc* data() { return more_.empty() ? few_ : more_.data(); }

 private:
  static constexpr std::size_t levels = 3;
  alignas(64) Acc few_[levels * tile];
  std::vector<Acc> more_;
};

template <class Acc>
void run(Input<Acc> const& in, std::size_t in_size, std::span<std::byte const* const> sources,
         std::int64_t numel, Output<Acc> const& out, Target const& target) {
  std::size_t const out_size = size_of(target.dtype);
  bool const streams = static_cast<std::size_t>(numel) * out_size >= large_result;
  bool const packs = out_size != sizeof(Acc);  // else the accumulator has the output's type
  Tiles<Acc> tiles(sources.size());
  Acc* const acc = tiles.data();
  alignas(64) std::byte packed[tile * sizeof(Acc)];
  for (std::int64_t first = 0; first < numel; first += tile) {
    std::int64_t const n = std::min(tile, numel - first);
    accumulate(in, sources, static_cast<std::size_t>(first) * in_size, n, acc);
    std::byte* const to = target.data + static_cast<std::size_t>(first) * out_size;
    if (target.mode == memory::WriteMode::add) out.add(acc, to, n);
    if (!streams) {
      out.store(to, acc, n);
      continue;
    }
    if (packs) out.store(packed, acc, n);
    stream_bytes(to, packs ? packed : reinterpret_cast<std::byte const*>(acc),
                 static_cast<std::size_t>(n) * out_size);
  }
  if (streams) finish_streaming();
}

template <class T>
void run_same(ReduceOp op, std::span<std::byte const* const> sources, std::int64_t numel,
              Target const& target) {
  run<T>(input<T, T>(op), sizeof(T), sources, numel, output<T, T>(), target);
}

bool is_float(Dtype d) { return d == Dtype::fp32 || d == Dtype::fp16 || d == Dtype::bf16; }

}  // namespace

void require_reducible(Dtype in, Dtype out) {
  bool const same = in == out && in != Dtype::uint8;
  TESSERA_VALIDATE(same || (is_float(in) && is_float(out)), InternalError, "a reduction of ",
                   name_of(in), " into ", name_of(out),
                   " is not supported; fp32, fp16 and bf16 may be combined, fp64, int32 and int64 "
                   "need the same dtype on both sides");
}

void reduce_arrays(ReduceOp op, Dtype in, std::span<std::byte const* const> sources,
                   std::int64_t numel, Target const& target) {
  require_reducible(in, target.dtype);
  if (numel == 0) return;
  if (in == Dtype::fp64) return run_same<double>(op, sources, numel, target);
  if (in == Dtype::int32) return run_same<std::int32_t>(op, sources, numel, target);
  if (in == Dtype::int64) return run_same<std::int64_t>(op, sources, numel, target);
  Input<float> const from = in == Dtype::fp32   ? input<float, float>(op)
                            : in == Dtype::fp16 ? input<float, float16>(op)
                                                : input<float, bfloat16>(op);
  Output<float> const to = target.dtype == Dtype::fp32   ? output<float, float>()
                           : target.dtype == Dtype::fp16 ? output<float, float16>()
                                                         : output<float, bfloat16>();
  run<float>(from, size_of(in), sources, numel, to, target);
}

void reduce_by_node(ReduceOp op, Dtype in, std::span<std::byte const* const> sources,
                    std::span<std::vector<std::size_t> const> nodes, std::int64_t numel,
                    Target const& target) {
  if (nodes.size() < 2) return reduce_arrays(op, in, sources, numel, target);
  std::size_t const tile_bytes = tile * size_of(in);
  std::vector<std::uint64_t> memory(nodes.size() * tile_bytes / sizeof(std::uint64_t));
  auto* const partial = reinterpret_cast<std::byte*>(memory.data());
  std::vector<std::byte const*> of_node, sums;
  for (std::size_t n = 0; n < nodes.size(); ++n) sums.push_back(partial + n * tile_bytes);
  for (std::int64_t first = 0; first < numel; first += tile) {
    std::int64_t const count = std::min(tile, numel - first);
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      of_node.clear();
      for (auto const position : nodes[n])
        of_node.push_back(sources[position] + static_cast<std::size_t>(first) * size_of(in));
      reduce_arrays(op, in, of_node, count, {partial + n * tile_bytes, in});
    }
    reduce_arrays(op, in, sums, count,
                  {target.data + static_cast<std::size_t>(first) * size_of(target.dtype),
                   target.dtype, target.mode});
  }
}

void copy_bytes(std::byte* to, std::byte const* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  if (bytes < streamed_copy()) {
    std::memcpy(to, from, bytes);
    return;
  }
  stream_bytes(to, from, bytes);
  finish_streaming();
}

}  // namespace tessera::comm::detail
