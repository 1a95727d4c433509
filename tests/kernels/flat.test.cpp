/// The flat kernels wherever their operands lie: between the borders of packs, at different places between them, of any length, on the
/// host and in the device's way (which a stream made of a host thread takes too), with the bits of operands that begin at a border and
/// nothing written outside.
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "fake_device.hpp"
#include "reference.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::kernels::test {
namespace {

/// Elements of a dtype that begin `shift` elements after a 64-byte border, between guards.
class Guarded {
 public:
  Guarded(Dtype dtype, std::int64_t numel, std::int64_t shift, std::uint64_t seed)
      : dtype_(dtype), numel_(numel), bytes_(static_cast<std::size_t>(numel) * size_of(dtype)), memory_(bytes_ + 4 * border, std::byte{0xA5}) {
    auto const address = reinterpret_cast<std::uintptr_t>(memory_.data());
    first_ = (address + border + 63) / 64 * 64 - address + static_cast<std::size_t>(shift) * size_of(dtype);
    Array values(dtype, {numel});
    values.randomise(seed, 3.0);
    std::memcpy(memory_.data() + first_, values.data(), bytes_);
  }
  TensorView view() { return {memory_.data() + first_, dtype_, {numel_}}; }
  bool guards_are_whole() const {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if ((i < first_ || i >= first_ + bytes_) && memory_[i] != std::byte{0xA5}) return false;
    return true;
  }
  std::vector<std::byte> values() const {
    return {memory_.begin() + static_cast<std::ptrdiff_t>(first_), memory_.begin() + static_cast<std::ptrdiff_t>(first_ + bytes_)};
  }

 private:
  static constexpr std::size_t border = 128;
  Dtype dtype_;
  std::int64_t numel_;
  std::size_t bytes_, first_ = 0;
  std::vector<std::byte> memory_;
};

struct Kernel {
  std::string name;
  Dtype out, a, b;
  std::function<void(Queue&, TensorView, TensorView, TensorView)> call;
};

std::vector<Kernel> kernels_of(Dtype t) {
  std::vector<Kernel> out{
      {"fill", t, t, t, [](Queue& q, TensorView o, TensorView, TensorView) { fill(q, o, 0.3f); }},
      {"scale", t, t, t, [](Queue& q, TensorView o, TensorView, TensorView) { scale(q, o, 0.7f); }},
      {"residual_add", t, t, t, [](Queue& q, TensorView o, TensorView a, TensorView b) { residual_add(q, o, a, b, {}); }},
      {"residual_add in place", t, t, t, [](Queue& q, TensorView o, TensorView, TensorView b) { residual_add(q, o, o, b, {}); }},
      {"gelu_new", t, t, t, [](Queue& q, TensorView o, TensorView a, TensorView) { gelu_new(q, o, a); }},
      {"gelu_new_backward", t, t, t, [](Queue& q, TensorView o, TensorView a, TensorView b) { gelu_new_backward(q, o, a, b); }},
  };
  for (Dtype from : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    std::string const name(name_of(from));
    out.push_back({"cast " + name, t, from, t, [](Queue& q, TensorView o, TensorView a, TensorView) { cast(q, o, a); }});
    out.push_back({"add " + name, t, from, t, [](Queue& q, TensorView o, TensorView a, TensorView) { add(q, o, a); }});
  }
  for (std::uint64_t first = 8; first < 12; ++first) {
    Dropout const drop{0.3f, 4, 5, first};
    out.push_back({"dropout", t, t, t, [drop](Queue& q, TensorView o, TensorView a, TensorView) { dropout(q, o, a, drop); }});
    out.push_back({"residual_add with dropout", t, t, t, [drop](Queue& q, TensorView o, TensorView a, TensorView b) { residual_add(q, o, a, b, drop); }});
  }
  return out;
}

struct Place {
  std::int64_t out, a, b;
};

class FlatKernels : public ::testing::TestWithParam<Dtype> {
 protected:
  std::vector<std::byte> run(Queue& q, Kernel const& kernel, std::int64_t numel, Place place) {
    Guarded out(kernel.out, numel, place.out, 1), a(kernel.a, numel, place.a, 2), b(kernel.b, numel, place.b, 3);
    std::vector<std::byte> const before_a = a.values(), before_b = b.values();
    kernel.call(q, out.view(), a.view(), b.view());
    q.record().wait("a flat kernel", std::chrono::seconds(60));
    EXPECT_TRUE(out.guards_are_whole() && a.guards_are_whole() && b.guards_are_whole());
    EXPECT_TRUE(a.values() == before_a && b.values() == before_b);
    return out.values();
  }

  tessera::test::FakeDevice device;
  std::unique_ptr<Queue> host = memory::make_inline_queue("compute"), stream = memory::make_stream_queue("compute");
};

TEST_P(FlatKernels, GiveTheSameBitsWhereverTheirOperandsLie) {
  std::vector<Place> const places{{0, 0, 0}, {1, 1, 1}, {3, 3, 3}, {6, 6, 6}, {7, 7, 7}, {0, 1, 0}, {2, 2, 5}, {5, 4, 3}};
  for (auto const& kernel : kernels_of(GetParam()))
    for (std::int64_t n : {1, 3, 4, 9, 31, 257, 1023, 1024, 1025, 3079}) {
      auto const expected = run(*host, kernel, n, {0, 0, 0});
      for (auto const& place : places)
        for (Queue* const q : {host.get(), stream.get()}) {
          SCOPED_TRACE(kernel.name + ", " + std::to_string(n) + " elements at " + std::to_string(place.out) + ", " + std::to_string(place.a) + ", " +
                       std::to_string(place.b) + (q == host.get() ? " on the host" : " on a stream"));
          ASSERT_EQ(run(*q, kernel, n, place), expected);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, FlatKernels, all_dtypes(), dtype_test_name);

}  // namespace
}  // namespace tessera::kernels::test
