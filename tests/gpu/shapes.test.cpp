/// What a model computes most of its time, in the shapes that models have: matrix products of
/// GPT-2 against the formula in double precision at sampled places, and attention as the settings
/// choose it against the portable kernel. With "device" on a GPU; else small, on a device made of
/// host memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/kernels/attention/attention.hpp"
#include "tessera/kernels/gemm/float8.hpp"
#include "tessera/kernels/gemm/gemm.hpp"
#include "tessera/kernels/launch/device_settings.hpp"
#include "tessera/kernels/launch/used_routes.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::kernels {
namespace {

using namespace std::chrono_literals;

bool is_real() { return memory::Runtime::device() >= 0; }

/// Values in device memory, and what they are on the host.
class Values {
 public:
  Values(Queue& q, Dtype dtype, std::int64_t numel, std::uint32_t seed)
      : q_(q), dtype_(dtype), host_(static_cast<std::size_t>(numel)) {
    for (auto& value : host_) value = rounded(next(seed));
    device_ =
        memory::Buffer("values", memory::Purpose::workspace, bytes(), memory::MemorySpace::device);
    std::vector<std::byte> const packed = pack();
    memory::copy(q, device_.data(), packed.data(), packed.size());
    q.record().wait("the copy", 60s);
  }
  void* data() const { return device_.data(); }
  TensorView view(std::vector<std::int64_t> const& shape) const {
    return shape.size() == 2 ? TensorView(data(), dtype_, {shape[0], shape[1]})
                             : TensorView(data(), dtype_, {shape[0]});
  }
  double operator[](std::int64_t i) const { return host_[static_cast<std::size_t>(i)]; }
  std::int64_t numel() const { return static_cast<std::int64_t>(host_.size()); }
  std::vector<float> const& host() const { return host_; }
  /// What the device has now.
  std::vector<float> const& read() {
    std::vector<std::byte> packed(bytes());
    memory::copy(q_, packed.data(), data(), packed.size());
    q_.record().wait("the kernels", 60s);
    unpack(packed);
    return host_;
  }

 private:
  static float next(std::uint32_t& state) {
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  std::size_t bytes() const { return host_.size() * size_of(dtype_); }
  float rounded(float x) const {
    return dtype_ == Dtype::bf16   ? static_cast<float>(bfloat16(x))
           : dtype_ == Dtype::fp16 ? static_cast<float>(float16(x))
                                   : x;
  }
  template <class F>
  void each(std::byte* at, F const& f) const {
    for (std::size_t i = 0; i < host_.size(); ++i) {
      if (dtype_ == Dtype::bf16)
        f(i, reinterpret_cast<bfloat16*>(at)[i]);
      else if (dtype_ == Dtype::fp16)
        f(i, reinterpret_cast<float16*>(at)[i]);
      else
        f(i, reinterpret_cast<float*>(at)[i]);
    }
  }
  std::vector<std::byte> pack() const {
    std::vector<std::byte> out(bytes());
    each(out.data(),
         [&](std::size_t i, auto& to) { to = std::remove_reference_t<decltype(to)>(host_[i]); });
    return out;
  }
  void unpack(std::vector<std::byte>& packed) {
    each(packed.data(), [&](std::size_t i, auto& from) { host_[i] = static_cast<float>(from); });
  }

  Queue& q_;
  Dtype dtype_;
  std::vector<float> host_;
  memory::Buffer device_;
};

/// c [m, n] = op(a) op(b)
struct Shape {
  char const* name;
  std::int64_t m, n, k;
};
/// GPT-2 124M's, with fewer rows, columns and terms where no GPU is.
std::vector<Shape> model_shapes() {
  std::int64_t const rows = is_real() ? 4096 : 24, scored = rows / 4, c = is_real() ? 768 : 32;
  std::vector<Shape> out{{"qkv", rows, 3 * c, c},
                         {"attention projection", rows, c, c},
                         {"fc", rows, 4 * c, c},
                         {"fc projection", rows, c, 4 * c},
                         {"head of 50257 tokens", scored, is_real() ? 50257 : 157, c},
                         {"head of 50304 tokens", scored, is_real() ? 50304 : 160, c}};
  return out;
}

class ModelProducts : public ::testing::TestWithParam<Dtype> {};

TEST_P(ModelProducts, EqualTheFormulaInDoublePrecision) {
  Dtype const dtype = GetParam();
  auto const q = memory::make_stream_queue("compute");
  for (Shape const& s : model_shapes()) {
    for (int form = 0; form < 3; ++form) {  // forward, gradient of the input, of the weights
      bool const ta = form == 2, tb = form == 1;
      Values const a(*q, dtype, s.m * s.k, 1), b(*q, dtype, s.k * s.n, 2);
      Values c(*q, Dtype::fp32, s.m * s.n, 3);
      Gemm how;
      how.transpose_a = ta;
      how.transpose_b = tb;
      gemm(*q, how, c.view({s.m, s.n}), ta ? a.view({s.k, s.m}) : a.view({s.m, s.k}),
           tb ? b.view({s.n, s.k}) : b.view({s.k, s.n}));
      c.read();
      double worst = 0.0;
      for (std::int64_t sample = 0; sample < 200; ++sample) {
        std::int64_t const i = sample * 7919 % s.m, j = (s.n - 1) - sample * 104729 % s.n;
        double sum = 0.0;
        for (std::int64_t l = 0; l < s.k; ++l)
          sum += a[ta ? l * s.m + i : i * s.k + l] * b[tb ? j * s.k + l : l * s.n + j];
        worst = std::max(worst, std::abs(c[i * s.n + j] - sum));
      }
      // products of two uniform numbers: the sum's size is sqrt(k) / 3, its terms are at most 1
      EXPECT_LT(worst, 2e-6 * static_cast<double>(s.k)) << s.name << ", form " << form;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Dtypes, ModelProducts,
                         ::testing::Values(Dtype::bf16, Dtype::fp16, Dtype::fp32),
                         [](auto const& info) { return std::string(name_of(info.param)); });

/// A matrix in fp8 in device memory: what the kernels of a device made of it, read back.
struct Fp8Matrix {
  std::int64_t rows, columns;
  Float8 format;
  Values scale, workspace;
  memory::Buffer codes{"codes", memory::Purpose::workspace, static_cast<std::size_t>(rows* columns),
                       memory::MemorySpace::device};

  /// Quantizes @p in [rows, columns], or with @p transposed its transpose, [columns, rows].
  Fp8Matrix(Queue& q, Values const& in, std::int64_t r, std::int64_t c, Float8 as, bool transposed)
      : rows(r),
        columns(c),
        format(as),
        scale(q, Dtype::fp32, Float8Scale::numel, 1),
        workspace(q, Dtype::fp32, float8_scale_workspace(r * c), 1) {
    Float8Scale const to{scale.view({Float8Scale::numel})};
    auto const from = transposed ? in.view({columns, rows}) : in.view({rows, columns});
    TensorView const view(codes.data(), Dtype::uint8, {rows, columns});
    float8_scale(q, to, format, from, workspace.view({workspace.numel()}));
    float8_cast(q, format, transposed ? Float8Copies{{}, view} : Float8Copies{view, {}}, from, to);
  }
  ConstTensorView view() const { return {codes.data(), Dtype::uint8, {rows, columns}}; }
  Float8Factor factor() const {
    return {format, Float8Scale{scale.view({Float8Scale::numel})}.reciprocal()};
  }
  /// Codes, and the factor that they are multiplied by.
  std::pair<std::vector<std::uint8_t>, double> read(Queue& q) {
    std::vector<std::uint8_t> out(static_cast<std::size_t>(rows * columns));
    memory::copy(q, out.data(), codes.data(), out.size());
    double const factor = scale.read()[Float8Scale::reciprocal_at];
    return {std::move(out), factor};
  }
};

double fp8_value(std::uint8_t code, Float8 format) {
  float8_e4m3 x;
  float8_e5m2 y;
  x.bits = y.bits = code;
  return format == Float8::e4m3 ? static_cast<float>(x) : static_cast<float>(y);
}

/// Scale, cast and product of every form that a linear layer has. The codes are checked against the
/// host's rounding, the products against double precision.
TEST(Fp8ModelShapes, CastsAndProductsEqualTheFormulaInDoublePrecision) {
  if (is_real()) {
    auto const device = memory::describe_device(memory::Runtime::device());
    if (device.major * 10 + device.minor < 89)
      GTEST_SKIP() << device.name << " has no fp8 products";
  }
  auto const q = memory::make_stream_queue("compute");
  reset_used_routes();
  for (Shape s : model_shapes()) {
    if (s.n % float8_multiple != 0 || s.m < float8_multiple) continue;  // no layer of a block
    s.m -= s.m % float8_multiple;
    for (int form = 0; form < 3; ++form) {  // forward, gradient of the input, of the weights
      Values const from_a(*q, Dtype::bf16, s.m * s.k, 1), from_b(*q, Dtype::bf16, s.k * s.n, 2);
      Fp8Matrix a(*q, from_a, s.m, s.k, form == 1 ? Float8::e5m2 : Float8::e4m3, form == 2),
          b(*q, from_b, s.n, s.k, form == 2 ? Float8::e5m2 : Float8::e4m3, form != 1);
      Values c(*q, Dtype::fp32, s.m * s.n, 3);
      gemm(*q, {.transpose_b = true, .fp8_a = a.factor(), .fp8_b = b.factor()}, c.view({s.m, s.n}),
           a.view(), b.view());
      c.read();
      auto const [codes_a, factor_a] = a.read(*q);
      auto const [codes_b, factor_b] = b.read(*q);
      for (std::int64_t e = 0; e < s.m * s.k; e += 101) {
        std::int64_t const at = form == 2 ? e % s.k * s.m + e / s.k : e;
        auto const x = static_cast<float>(from_a[at] / factor_a);
        ASSERT_EQ(codes_a[static_cast<std::size_t>(e)],
                  form == 1 ? float8_e5m2::round(x) : float8_e4m3::round(x));
      }
      // Hopper's fp8 products keep about 14 bits of a sum between additions to fp32 (DeepSeek-V3
      // technical report, section 3.3.2).
      double worst = 0.0, allowed = 0.0;
      for (std::int64_t sample = 0; sample < 200; ++sample) {
        std::int64_t const i = sample * 7919 % s.m, j = (s.n - 1) - sample * 104729 % s.n;
        double sum = 0.0, magnitude = 0.0;
        for (std::int64_t l = 0; l < s.k; ++l) {
          double const product =
              fp8_value(codes_a[static_cast<std::size_t>(i * s.k + l)], a.format) *
              fp8_value(codes_b[static_cast<std::size_t>(j * s.k + l)], b.format);
          sum += product;
          magnitude += std::abs(product);
        }
        worst = std::max(worst, std::abs(c[i * s.n + j] - sum * factor_a * factor_b));
        allowed = std::max(allowed, 0x1p-12 * magnitude * factor_a * factor_b);
      }
      std::printf("%s, form %d: largest error %.2e, allowed %.2e\n", s.name, form, worst, allowed);
      EXPECT_LT(worst, allowed) << s.name << ", form " << form;
    }
  }
  std::printf("%s\n", used_routes_text().c_str());
}

struct Attention {
  Dtype dtype;
  int heads, kv_heads, head_dim;
  float dropout;
  bool documents = false;
};

/// Documents of 10 tokens in the first row, of 400 in the second.
std::vector<std::int32_t> starts_of_documents(std::int64_t length) {
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < 2 * length; ++i) {
    auto const t = static_cast<std::int32_t>(i % length);
    out.push_back(t - t % (i < length ? 10 : 400));
  }
  return out;
}

/// Output and gradients of one pass; fused rows of q, k and v as in GPT-2.
struct Pass {
  std::vector<float> out, gradients;
  std::string used;
  std::vector<float> dout, value, dvalue;
};

Pass attend(Attention const& a, DeviceAttention by) {
  set_device_settings({.attention = by});
  reset_used_routes();
  auto const q = memory::make_stream_queue("compute");
  std::int64_t const batch = 2, length = is_real() ? 1024 : 40;
  std::int64_t const row = std::int64_t{a.heads + 2 * a.kv_heads} * a.head_dim,
                     width = std::int64_t{a.heads} * a.head_dim, rows = batch * length;
  Values const fused(*q, a.dtype, rows * row, 5), dout(*q, a.dtype, rows * width, 6);
  Values out(*q, a.dtype, rows * width, 7), gradients(*q, a.dtype, rows * row, 8);
  Values const lse(*q, Dtype::fp32, batch * a.heads * length, 9);
  AttentionConfig config;
  config.dtype = a.dtype;
  config.shape = {batch,      length,     a.heads,
                  a.kv_heads, a.head_dim, 1.0f / std::sqrt(static_cast<float>(a.head_dim)),
                  {}};
  config.drop = {a.dropout, 11, 12, 0};
  auto const at = [&](Values const& values, std::int64_t column) {
    return static_cast<std::byte*>(values.data()) +
           static_cast<std::size_t>(column) * size_of(a.dtype);
  };
  std::int64_t const key = width, value = width + std::int64_t{a.kv_heads} * a.head_dim;
  AttentionInput in{{at(fused, 0), row}, {at(fused, key), row}, {at(fused, value), row}};
  auto const starts = starts_of_documents(length);
  std::size_t const start_bytes = starts.size() * sizeof starts[0];
  memory::Buffer const documents("documents", memory::Purpose::workspace, start_bytes,
                                 memory::MemorySpace::device);
  memory::copy(*q, documents.data(), starts.data(), start_bytes);
  if (a.documents) in.documents = documents.view(Dtype::int32, {batch, length});
  TensorView const lse_view(lse.data(), Dtype::fp32, {batch, a.heads, length});
  attention(*q, config, {out.view({rows * width}), lse_view}, in);
  Values const workspace(*q, Dtype::fp32,
                         std::max<std::int64_t>(attention_backward_workspace(*q, config.shape), 1),
                         10);
  attention_backward(
      *q, config, {{at(gradients, 0), row}, {at(gradients, key), row}, {at(gradients, value), row}},
      in, {dout.view({rows * width}), out.view({rows * width}), lse_view},
      workspace.view({workspace.numel()}));
  Pass pass{out.read(), gradients.read(), used_routes_text(), dout.host(), {}, {}};
  auto const& inputs = fused.host();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (static_cast<std::int64_t>(i) % row >= value) {
      pass.value.push_back(inputs[i]);
      pass.dvalue.push_back(pass.gradients[i]);
    }
  set_device_settings({});
  return pass;
}

/// Largest difference over the largest value.
double difference(std::vector<float> const& a, std::vector<float> const& b) {
  double worst = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, static_cast<double>(std::abs(a[i] - b[i])));
    largest = std::max(largest, static_cast<double>(std::abs(b[i])));
  }
  return worst / largest;
}

class ModelAttention : public ::testing::TestWithParam<Attention> {};

/// Sum of products of two tensors of a pass.
double dot(std::vector<float> const& a, std::vector<float> const& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

/// Both passes drop the same weights: the output is linear in the values, so dout . out is
/// dvalue . value, but for rounding.
void expect_one_mask(Pass const& pass) {
  double const forward = dot(pass.dout, pass.out), backward = dot(pass.dvalue, pass.value),
               size = std::sqrt(dot(pass.dout, pass.dout) * dot(pass.out, pass.out) /
                                static_cast<double>(pass.out.size()));
  std::printf("%s: dout . out is %.6g, dvalue . value %.6g\n", pass.used.c_str(), forward,
              backward);
  EXPECT_LT(std::abs(forward - backward), 0.05 * size);
}

/// cuDNN's masks are other than the portable kernel's; a run has checked them before it uses them
/// (kernels/detail/mask_check.hpp).
void check_own_masks(Pass const& pass, Pass const& again, Pass const& portable) {
  EXPECT_EQ(pass.out, again.out);
  EXPECT_EQ(pass.gradients, again.gradients);
  EXPECT_NE(pass.out, portable.out);
  for (auto const part : {&Pass::out, &Pass::gradients})
    EXPECT_NEAR(dot(pass.*part, pass.*part), dot(portable.*part, portable.*part),
                0.1 * dot(portable.*part, portable.*part));
}

TEST_P(ModelAttention, IsThatOfThePortableKernel) {
  auto const chosen = attend(GetParam(), DeviceAttention::automatic),
             portable = attend(GetParam(), DeviceAttention::portable);
  expect_one_mask(chosen);
  if (chosen.used.find("its own dropout masks") != std::string::npos)
    return check_own_masks(chosen, attend(GetParam(), DeviceAttention::automatic), portable);
  double const forward = difference(chosen.out, portable.out),
               backward = difference(chosen.gradients, portable.gradients);
  std::printf("%s: out differs by %.1e, gradients by %.1e of the largest\n", chosen.used.c_str(),
              forward, backward);
  double const tolerance = GetParam().dtype == Dtype::fp32   ? 1e-5
                           : GetParam().dtype == Dtype::fp16 ? 4e-3
                                                             : 3e-2;
  EXPECT_LT(forward, tolerance);
  EXPECT_LT(backward, tolerance);
}
INSTANTIATE_TEST_SUITE_P(Shapes, ModelAttention,
                         ::testing::Values(Attention{Dtype::bf16, 12, 12, 64, 0.0f},
                                           Attention{Dtype::bf16, 12, 12, 64, 0.1f},
                                           Attention{Dtype::bf16, 8, 2, 128, 0.0f},
                                           Attention{Dtype::bf16, 4, 1, 256, 0.0f},
                                           Attention{Dtype::fp16, 12, 12, 64, 0.0f},
                                           Attention{Dtype::bf16, 12, 12, 64, 0.0f, true},
                                           Attention{Dtype::fp16, 8, 2, 128, 0.0f, true},
                                           Attention{Dtype::fp32, 12, 12, 64, 0.0f},
                                           Attention{Dtype::fp32, 12, 12, 64, 0.1f}),
                         [](auto const& info) {
                           auto const& a = info.param;
                           return concat(name_of(a.dtype), "_", a.heads, "_", a.kv_heads, "_",
                                         a.head_dim, a.dropout > 0.0f ? "_dropout" : "",
                                         a.documents ? "_documents" : "");
                         });

}  // namespace
}  // namespace tessera::kernels
