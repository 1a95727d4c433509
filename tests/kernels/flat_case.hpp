#pragma once
/// The flat kernels and operands for them that lie anywhere between the borders of packs, in the
/// memory of a queue's space.

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "reference.hpp"
#include "tessera/kernels/elementwise/activation.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::kernels::test {

inline void finish(Queue& q) { q.record().wait("a flat kernel", std::chrono::seconds(60)); }

/// Elements that begin `shift` elements after a 64-byte border, between guards.
class Guarded {
 public:
  Guarded(Queue& q, Array const& values, std::int64_t shift)
      : q_(q),
        dtype_(values.dtype()),
        numel_(values.numel()),
        first_(guard + static_cast<std::size_t>(shift) * size_of(dtype_)),
        written_(first_ + values.bytes().size() + guard, std::byte{0xA5}),
        memory_("operand", memory::Purpose::workspace, written_.size(),
                memory::memory_space_of(q)) {
    std::memcpy(written_.data() + first_, values.data(), values.bytes().size());
    memory::copy(q, memory_.data(), written_.data(), written_.size());
    finish(q);
  }
  TensorView view() const { return {data(), dtype_, {numel_}}; }
  void* data() const { return static_cast<std::byte*>(memory_.data()) + first_; }

  /// The elements now; a test fails that has written next to them.
  Array read() const {
    std::vector<std::byte> now(written_.size());
    memory::copy(q_, now.data(), memory_.data(), now.size());
    finish(q_);
    Array out(dtype_, {numel_});
    std::memcpy(out.data(), now.data() + first_, out.bytes().size());
    for (std::size_t i = 0; i < now.size(); ++i) {
      bool const beside = i < first_ || i >= first_ + out.bytes().size();
      EXPECT_TRUE(!beside || now[i] == std::byte{0xA5}) << i << " bytes after the guard's begin";
    }
    return out;
  }
  bool unchanged() const {
    Array const now = read();
    return std::memcmp(now.data(), written_.data() + first_, now.bytes().size()) == 0;
  }

 private:
  static constexpr std::size_t guard = 64;
  Queue& q_;
  Dtype dtype_;
  std::int64_t numel_;
  std::size_t first_;
  std::vector<std::byte> written_;
  memory::Buffer memory_;
};

struct FlatKernel {
  std::string name;
  Dtype out, a, b;
  bool rounds_once;  ///< its result is that of one operation, the same on every processor
  std::function<void(Queue&, TensorView, TensorView, TensorView)> call;
};

inline std::vector<FlatKernel> flat_kernels(Dtype t) {
  using View = TensorView;
  std::vector<FlatKernel> out{
      {"fill", t, t, t, true, [](Queue& q, View o, View, View) { fill(q, o, 0.3f); }},
      {"scale", t, t, t, true, [](Queue& q, View o, View, View) { scale(q, o, 0.7f); }},
      {"residual_add", t, t, t, true,
       [](Queue& q, View o, View a, View b) { residual_add(q, o, a, b, {}); }},
      {"residual_add in place", t, t, t, true,
       [](Queue& q, View o, View, View b) { residual_add(q, o, o, b, {}); }},
      {"gelu_new", t, t, t, false, [](Queue& q, View o, View a, View) { gelu_new(q, o, a); }},
      {"gelu_new_backward", t, t, t, false,
       [](Queue& q, View o, View a, View b) { gelu_new_backward(q, o, a, b); }},
      {"silu", t, t, t, false,
       [](Queue& q, View o, View a, View) { activate(q, Activation::silu, o, a); }},
      {"gelu backward", t, t, t, false,
       [](Queue& q, View o, View a, View b) { activate_backward(q, Activation::gelu, o, a, b); }},
      {"cap_logits", t, t, t, false, [](Queue& q, View o, View, View) { cap_logits(q, o, 1.5f); }},
  };
  for (Dtype from : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    std::string const name(name_of(from));
    out.push_back(
        {"cast " + name, t, from, t, true, [](Queue& q, View o, View a, View) { cast(q, o, a); }});
    out.push_back(
        {"add " + name, t, from, t, true, [](Queue& q, View o, View a, View) { add(q, o, a); }});
  }
  for (std::uint64_t first = 8; first < 12; ++first) {
    Dropout const drop{0.3f, 4, 5, first};
    out.push_back({"dropout", t, t, t, true,
                   [drop](Queue& q, View o, View a, View) { dropout(q, o, a, drop); }});
    out.push_back({"residual_add with dropout", t, t, t, false,
                   [drop](Queue& q, View o, View a, View b) { residual_add(q, o, a, b, drop); }});
  }
  return out;
}

/// By how many elements each operand lies after a border.
struct FlatPlace {
  std::int64_t out = 0, a = 0, b = 0;
};
inline std::vector<FlatPlace> flat_places() {
  return {{0, 0, 0}, {1, 1, 1}, {3, 3, 3}, {6, 6, 6}, {7, 7, 7}, {0, 1, 0}, {2, 2, 5}, {5, 4, 3}};
}

/// What @p kernel makes of random operands.
inline Array run_flat(Queue& q, FlatKernel const& kernel, std::int64_t numel, FlatPlace place) {
  auto const operand = [&](Dtype dtype, std::int64_t shift, std::uint64_t seed) {
    return Guarded(q, Array(dtype, {numel}).randomize(seed, 3.0), shift);
  };
  Guarded const out = operand(kernel.out, place.out, 1), a = operand(kernel.a, place.a, 2),
                b = operand(kernel.b, place.b, 3);
  kernel.call(q, out.view(), a.view(), b.view());
  EXPECT_TRUE(a.unchanged() && b.unchanged());
  return out.read();
}

}  // namespace tessera::kernels::test
