/// The kernels of Llama-like decoders against memory in the same process; one JSON line a metric.
///
///   OMP_NUM_THREADS=2 build/host/bin/bench.decoder [rows = 8192] [width = 4096] [rounds = 7]
///
/// Buffers of rows x width elements; heads of 128. value = (bytes the kernel must move / its time)
/// / the rate of the best plain loop over as many buffers (stream.hpp). The kernels store through
/// the caches, because the next one reads what they write: those that write another buffer than
/// they read also load its lines, and reach about 2/3 with 2 buffers. The attention of a new
/// position reads a cache of rows x width keys and as many values.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "interleaved.hpp"
#include "stream.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/kernels/attention/attention_decode.hpp"
#include "tessera/kernels/attention/rotary.hpp"
#include "tessera/kernels/attention/rotary_tables.hpp"
#include "tessera/kernels/elementwise/activation.hpp"
#include "tessera/kernels/norm/rms_norm.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/runtime.hpp"

namespace {

using namespace tessera;
using bench::Metric;
using bench::Streams;
using bench::sweep_of;
using memory::TensorView;

constexpr int head_dim = 128;

/// Buffers of one dtype and the kernels on them.
class Kernels {
 public:
  Kernels(memory::Queue& q, Dtype dtype, std::int64_t rows, std::int64_t width)
      : q_(q), dtype_(dtype), rows_(rows), width_(width / head_dim * head_dim) {
    for (TensorView* x : {&a_, &b_, &c_, &d_, &e_}) *x = matrix(dtype_, rows_, width_);
    gamma_ = matrix(dtype_, 1, width_).flat();
    dgamma_ = matrix(Dtype::fp32, 1, width_).flat();
    rstd_ = matrix(Dtype::fp32, rows_, 1).flat();
    workspace_ = matrix(Dtype::fp32, 1,
                        std::max(kernels::rms_norm_backward_workspace(q, rows_, width_),
                                 kernels::attention_decode_workspace(q, decode())))
                     .flat();
    lengths_ = matrix(Dtype::int32, 1, 1).flat();
    *lengths_.as<std::int32_t>() = static_cast<std::int32_t>(rows_);
    kernels::RotaryOptions options;
    options.rotary_dim = head_dim;
    cos_ = matrix(Dtype::fp32, rows_, head_dim / 2);
    sin_ = matrix(Dtype::fp32, rows_, head_dim / 2);
    kernels::rotary_tables(kernels::rotary_frequencies(options), {0, rows_, dtype_},
                           cos_.as<float>(), sin_.as<float>());
  }

  std::vector<Metric> metrics() {
    std::string const suffix = "_" + std::string(name_of(dtype_));
    double const each = static_cast<double>(rows_ * width_) * static_cast<double>(size_of(dtype_));
    kernels::RmsNormWeights const norm{gamma_};
    kernels::GatedShape const gated{dtype_, rows_, width_};
    auto const row = [this](TensorView x) { return kernels::RowsView{x.data(), width_}; };
    auto const from = [this](TensorView x) { return kernels::ConstRowsView{x.data(), width_}; };
    auto const heads = [this](TensorView x) { return kernels::HeadsView{x.data(), width_}; };
    int const count = static_cast<int>(width_ / head_dim);
    kernels::Rotation const rotation{
        {dtype_, 1, rows_, count, head_dim, head_dim}, {cos_, sin_}, {}};
    kernels::HeadNormShape const head_norm{dtype_, rows_, 1, width_};
    std::vector<Metric> out{
        {"rms_norm",
         {sweep_of<bench::copy>()},
         [=, this] {
           kernels::rms_norm(q_, norm, {d_, rstd_}, a_);
         }},
        {"rms_norm_in_place",
         {sweep_of<bench::read_modify_write>()},
         [=, this] {
           kernels::rms_norm_heads(q_, norm, head_norm, {heads(d_), rstd_}, heads(d_));
         }},
        {"residual_rms_norm",
         {sweep_of<Streams{.read4 = 2, .written4 = 2}>()},
         [=, this] {
           kernels::residual_rms_norm(q_, norm, c_, {d_, rstd_}, {a_, b_, {}});
         }},
        {"rms_norm_backward",
         {sweep_of<bench::triad>()},
         [=, this] {
           kernels::rms_norm_backward(q_, norm, {{d_}, {dgamma_}}, {b_, a_, rstd_}, workspace_);
         }},
        {"rotate_heads_in_place",
         {sweep_of<bench::read_modify_write>()},
         [=, this] {
           kernels::rotate_heads(q_, rotation, heads(d_), heads(d_),
                                 kernels::RotaryDirection::forward);
         }},
        {"swiglu",
         {sweep_of<bench::triad>()},
         [=, this] {
           kernels::gated_activate(q_, kernels::Activation::silu, gated, row(d_),
                                   {from(a_), from(b_)});
         }},
        {"swiglu_backward_in_place",
         {sweep_of<Streams{.updated4 = 2, .read4 = 1}>()},
         [=, this] {
           kernels::gated_activate_backward(q_, kernels::Activation::silu, gated,
                                            {row(d_), row(e_)}, from(c_), {from(d_), from(e_)});
         }},
        {"geglu",
         {sweep_of<bench::triad>()},
         [=, this] {
           kernels::gated_activate(q_, kernels::Activation::gelu, gated, row(d_),
                                   {from(a_), from(b_)});
         }},
        {"attention_decode_mha",
         {sweep_of<Streams{.read4 = 2}>()},
         [=, this] { run_decode(count); }},
        {"attention_decode_gqa4", {sweep_of<Streams{.read4 = 2}>()}, [=, this] {
           run_decode(4 * count);
         }}};
    for (auto& metric : out) {
      metric.name += suffix;
      metric.bytes = metric.bytes_per_element() / 4.0 * each;
    }
    return out;
  }

 private:
  TensorView matrix(Dtype dtype, std::int64_t rows, std::int64_t columns) {
    owned_.emplace_back(
        "benchmark array", memory::Purpose::workspace,
        static_cast<std::size_t>(std::max<std::int64_t>(rows * columns, 1)) * size_of(dtype));
    TensorView const view(owned_.back().data(), dtype, {rows, columns});
    if (dtype != Dtype::int32) kernels::fill(q_, view, 0.25f);
    return view;
  }
  kernels::DecodeShape decode() const {
    int const heads = static_cast<int>(width_ / head_dim);
    return {dtype_, 1, 1, 4 * heads, heads, head_dim, 0.1f, {}, rows_};
  }
  /// Queries of @p heads heads from the first rows of a; keys in b, values in c.
  void run_decode(int heads) {
    kernels::DecodeShape shape = decode();
    shape.heads = heads;
    std::int64_t const row = std::int64_t{heads} * head_dim;
    kernels::attention_decode(
        q_, shape, {d_.data(), dtype_, {row}},
        {{a_.data(), row}, {b_.data(), 0, width_, 0}, {c_.data(), 0, width_, 0}, lengths_},
        workspace_);
  }

  memory::Queue& q_;
  Dtype dtype_;
  std::int64_t rows_, width_;
  std::vector<memory::Buffer> owned_;
  TensorView a_, b_, c_, d_, e_, gamma_, dgamma_, rstd_, workspace_, lengths_, cos_, sin_;
};

}  // namespace

int main(int argc, char** argv) {
  auto const argument = [&](int i, std::int64_t otherwise) {
    return i < argc ? static_cast<std::int64_t>(std::atof(argv[i])) : otherwise;
  };
  std::int64_t const rows = argument(1, 8192), width = argument(2, 4096);
  memory::Runtime const runtime{{}};
  auto const q = memory::make_inline_queue("compute");
  Kernels fp32(*q, Dtype::fp32, rows, width), bf16(*q, Dtype::bf16, rows, width);
  std::int64_t const n = std::max<std::int64_t>(rows * width / bench::tile, 1) * bench::tile;
  std::vector<Metric> metrics = fp32.metrics();
  for (auto const& metric : bf16.metrics()) metrics.push_back(metric);
  bench::report(n, metrics, static_cast<int>(argument(3, 7)), {{"rows", rows}, {"width", width}});
  return 0;
}
