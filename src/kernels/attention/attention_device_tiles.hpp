#pragma once
/// Tiles in scratch memory, and products of tiles by a team of threads: the parts that the device's
/// forward and backward attention share (attention_device.hpp, attention_backward_device.hpp).
///
/// No Kokkos here. A team is any type with rank(), barrier() and scratch(), so host threads can run
/// the exact instance that a device runs. `Width` is the head width in scratch, padded with zeros
/// beyond head_dim; `Threads` is the size of the team.

#include <cstdint>

#include "attention/attention_operands.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

/// Sixteen bytes, loaded and stored in one instruction.
struct alignas(16) Float4 {
  float v[4];
};

/// Rows of heads of any dtype, accessed four neighboring elements at a time.
struct FlashRows {
  void* base = nullptr;
  std::int64_t row_stride = 0, head_stride = 0, sequence = 0;
  int head_dim = 0;
  Dtype dtype = Dtype::fp32;
  bool vectorized = false;  ///< every four elements from a multiple of four on are aligned

  TESSERA_FUNCTION std::int64_t at(std::int64_t b, std::int64_t t, int h, int c) const {
    return (b * sequence + t) * row_stride + h * head_stride + c;
  }
  template <class T>
  TESSERA_FUNCTION Float4 read_typed(std::int64_t index, int count) const {
    struct alignas(4 * sizeof(T)) Pack {
      T v[4];
    };
    Float4 out{};
    T const* const from = static_cast<T const*>(base) + index;
    if (vectorized && count >= 4) {
      Pack const pack = *reinterpret_cast<Pack const*>(from);
      for (int i = 0; i < 4; ++i) out.v[i] = load(pack.v[i]);
    } else {
      for (int i = 0; i < 4; ++i)
        if (i < count) out.v[i] = load(from[i]);
    }
    return out;
  }
  template <class T>
  TESSERA_FUNCTION void write_typed(std::int64_t index, int count, Float4 const& value) const {
    struct alignas(4 * sizeof(T)) Pack {
      T v[4];
    };
    T* const to = static_cast<T*>(base) + index;
    if (vectorized && count >= 4) {
      Pack pack;
      for (int i = 0; i < 4; ++i) store(pack.v[i], value.v[i]);
      *reinterpret_cast<Pack*>(to) = pack;
    } else {
      for (int i = 0; i < 4; ++i)
        if (i < count) store(to[i], value.v[i]);
    }
  }
  /// Elements c .. c + 3 of (b, t, h); zeros beyond the sequence and the head.
  TESSERA_FUNCTION Float4 read(std::int64_t b, std::int64_t t, int h, int c) const {
    int const count = t < sequence ? head_dim - c : 0;
    if (count <= 0) return Float4{};
    std::int64_t const index = at(b, t, h, c);
    return dtype == Dtype::fp32   ? read_typed<float>(index, count)
           : dtype == Dtype::bf16 ? read_typed<bfloat16>(index, count)
                                  : read_typed<float16>(index, count);
  }
  TESSERA_FUNCTION void write(std::int64_t b, std::int64_t t, int h, int c,
                              Float4 const& value) const {
    int const count = t < sequence ? head_dim - c : 0;
    if (count <= 0) return;
    std::int64_t const index = at(b, t, h, c);
    if (dtype == Dtype::fp32)
      write_typed<float>(index, count, value);
    else if (dtype == Dtype::bf16)
      write_typed<bfloat16>(index, count, value);
    else
      write_typed<float16>(index, count, value);
  }
};

struct FlashInput {
  AttentionShape shape;
  FlashRows query, key, value;
  DropoutFactors drop;
  std::int32_t const* documents = nullptr;  ///< [B, T], or null
  SoftCap cap{shape.mask.soft_cap};
  TESSERA_FUNCTION int group() const { return shape.heads / shape.kv_heads; }
  TESSERA_FUNCTION SeenInRow seen(std::int64_t b) const {
    return {shape.mask, shape.sequence,
            documents == nullptr ? nullptr : documents + b * shape.sequence};
  }
};

template <int Rows, int Columns>
TESSERA_FUNCTION void cap_scores(float (&score)[Rows][Columns], SoftCap const& cap) {
  if (!cap.active()) return;
  for (int r = 0; r < Rows; ++r)
    for (int c = 0; c < Columns; ++c) score[r][c] = cap.value(score[r][c]);
}

/// Distributes a Rows x Columns result over the threads in micro tiles of TR x TC. The rows of a
/// micro tile are `row_groups` apart, so neighboring threads read neighboring rows: the threads of
/// a quarter warp use different banks of shared memory.
template <int Rows, int Columns, int TR, int TC, int Threads>
struct MicroTiles {
  static constexpr int row_groups = Rows / TR, column_groups = Columns / TC,
                       tiles = row_groups * column_groups;
  static constexpr int each = ceil_divide(tiles, Threads);
  static_assert(Rows % TR == 0 && Columns % TC == 0);
  TESSERA_FUNCTION static bool has(int thread, int i) { return thread + i * Threads < tiles; }
  TESSERA_FUNCTION static int row(int thread, int i, int r) {
    return (thread + i * Threads) / column_groups + r * row_groups;
  }
  TESSERA_FUNCTION static int column_group(int thread, int i) {
    return (thread + i * Threads) % column_groups;
  }
};

/// The rows of one head from position `first`.
struct HeadPart {
  std::int64_t b, first;
  int h;
};

/// tile [rows, stride] of scratch <- factor * rows.
template <int Rows, int Width, int Threads, class Team>
TESSERA_FUNCTION void read_tile(Team const& team, float* tile, FlashRows const& from,
                                HeadPart const& at, float factor) {
  constexpr int chunks = Width / 4, stride = Width + 4;
  for (int i = team.rank(); i < Rows * chunks; i += Threads) {
    int const r = i / chunks, c = i % chunks * 4;
    Float4 four = from.read(at.b, at.first + r, at.h, c);
    for (int k = 0; k < 4; ++k) four.v[k] *= factor;
    *reinterpret_cast<Float4*>(tile + r * stride + c) = four;
  }
}

/// out[r, c] = a[r, :] . b[c, :] for micro tile i of this thread; a and b have rows of Width + 4.
template <class Split, int Width, int TR, int TC>
TESSERA_FUNCTION void multiply_rows_by_rows(float (&out)[TR][TC], int thread, int i, float const* a,
                                            float const* b) {
  constexpr int stride = Width + 4;
  for (int r = 0; r < TR; ++r)
    for (int c = 0; c < TC; ++c) out[r][c] = 0.0f;
  int const group = Split::column_group(thread, i);
  for (int k = 0; k < Width; k += 4) {
    Float4 left[TR], right[TC];
    for (int r = 0; r < TR; ++r)
      left[r] = *reinterpret_cast<Float4 const*>(a + Split::row(thread, i, r) * stride + k);
    for (int c = 0; c < TC; ++c)
      right[c] =
          *reinterpret_cast<Float4 const*>(b + (group + c * Split::column_groups) * stride + k);
    for (int r = 0; r < TR; ++r)
      for (int c = 0; c < TC; ++c)
        for (int e = 0; e < 4; ++e) out[r][c] += left[r].v[e] * right[c].v[e];
  }
}

/// The column of element c of a micro tile in add_rows_by_columns: four neighbors, then the next
/// four one stripe further.
template <class Split>
TESSERA_FUNCTION int striped_column(int group, int c) {
  return group * 4 + c / 4 * (Split::column_groups * 4) + c % 4;
}

/// sum[r, c] += x[r, :] . y[:, c] over Depth; x has rows of Depth + 4, y of Width + 4.
template <class Split, int Depth, int Width, int TR, int TC>
TESSERA_FUNCTION void add_rows_by_columns(float (&sum)[TR][TC], int thread, int i, float const* x,
                                          float const* y) {
  int const group = Split::column_group(thread, i);
  for (int k = 0; k < Depth; k += 4) {
    Float4 left[TR];
    for (int r = 0; r < TR; ++r)
      left[r] = *reinterpret_cast<Float4 const*>(x + Split::row(thread, i, r) * (Depth + 4) + k);
    for (int e = 0; e < 4; ++e) {
      for (int c = 0; c < TC; c += 4) {
        Float4 const right = *reinterpret_cast<Float4 const*>(y + (k + e) * (Width + 4) +
                                                              striped_column<Split>(group, c));
        for (int r = 0; r < TR; ++r)
          for (int n = 0; n < 4; ++n) sum[r][c + n] += left[r].v[e] * right.v[n];
      }
    }
  }
}

}  // namespace tessera::kernels::detail
