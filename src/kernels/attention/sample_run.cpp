#include "attention/sample_run.hpp"

#include <bit>
#include <chrono>
#include <exception>

#include "launch/element_types.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::kernels::detail {
namespace {

using memory::Buffer;

/// Rows of all heads of a position, [B * T, width] elements of the sample's dtype: on the host and
/// in the queue's memory.
template <class T>
class FusedRows {
 public:
  FusedRows(Queue& q, std::int64_t rows, std::int64_t width)
      : queue_(q),
        rows_(rows),
        width_(width),
        host_(static_cast<std::size_t>(rows * width)),
        buffer_("attention sample", memory::Purpose::workspace, bytes(), memory_space_of(q)) {}

  /// Columns [begin, begin + part.size() / rows) of all rows.
  void set(std::int64_t begin, std::vector<float> const& part) {
    visit(begin, part.size(), [&](std::size_t i, T& value) { value = T(part[i]); });
  }
  void get(std::int64_t begin, std::vector<float>& part) {
    visit(begin, part.size(),
          [&](std::size_t i, T& value) { part[i] = static_cast<float>(value); });
  }
  void upload() { memory::copy(queue_, buffer_.data(), host_.data(), bytes()); }
  void download() { memory::copy(queue_, host_.data(), buffer_.data(), bytes()); }
  HeadsView heads(std::int64_t begin) const {
    return {static_cast<T*>(buffer_.data()) + begin, width_};
  }
  TensorView view(Dtype dtype) const { return buffer_.view(dtype, {rows_, width_}); }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(rows_ * width_) * sizeof(T); }
  template <class Visit>
  void visit(std::int64_t begin, std::size_t size, Visit const& call) {
    auto const columns = static_cast<std::int64_t>(size) / rows_;
    for (std::int64_t row = 0; row < rows_; ++row)
      for (std::int64_t c = 0; c < columns; ++c)
        call(static_cast<std::size_t>(row * columns + c),
             host_[static_cast<std::size_t>(row * width_ + begin + c)]);
  }

  Queue& queue_;
  std::int64_t rows_, width_;
  std::vector<T> host_;
  Buffer buffer_;
};

template <class T>
std::string compute(Queue& q, AttentionCalls const& calls, AttentionSample& sample) {
  auto const& config = sample.config;
  auto const& s = config.shape;
  std::int64_t const rows = s.batch * s.sequence, width = std::int64_t{s.heads} * s.head_dim,
                     key = width, value = key + std::int64_t{s.kv_heads} * s.head_dim,
                     fused = value + std::int64_t{s.kv_heads} * s.head_dim;
  FusedRows<T> qkv(q, rows, fused), dqkv(q, rows, fused), out(q, rows, width), dout(q, rows, width);
  FusedRows<float> lse(q, s.batch * s.heads, s.sequence);
  qkv.set(0, sample.query);
  qkv.set(key, sample.key);
  qkv.set(value, sample.value);
  dout.set(0, sample.dout);
  qkv.upload();
  dout.upload();
  AttentionInput const in{qkv.heads(0), qkv.heads(key), qkv.heads(value)};
  TensorView const sums = lse.view(Dtype::fp32);
  bool const done = calls.forward(q, config, {out.view(config.dtype), sums}, in) &&
                    calls.backward(q, config, {dqkv.heads(0), dqkv.heads(key), dqkv.heads(value)},
                                   in, {dout.view(config.dtype), out.view(config.dtype), sums});
  out.download();
  dqkv.download();
  lse.download();
  q.record().wait("the check of attention's dropout", std::chrono::minutes(1));
  if (!done) return no_plan;
  out.get(0, sample.out);
  lse.get(0, sample.lse);
  dqkv.get(0, sample.dquery);
  dqkv.get(key, sample.dkey);
  dqkv.get(value, sample.dvalue);
  return "";
}

}  // namespace

std::string compute_sample(Queue& q, AttentionCalls const& calls, AttentionSample& sample) {
  auto const stream = q.kind() == memory::QueueKind::stream
                          ? memory::make_stream_queue("attention sample")
                          : nullptr;
  std::string out;
  with_type(sample.config.dtype, "attention", [&](auto tag) {
    out = compute<typename decltype(tag)::type>(stream ? *stream : q, calls, sample);
  });
  return out;
}

std::string MaskFindings::refusal(AttentionConfig const& config, bool deterministic,
                                  std::function<std::string()> const& check) {
  auto const& s = config.shape;
  Class const key{s.sequence,
                  s.heads,
                  s.kv_heads,
                  s.head_dim,
                  static_cast<std::int64_t>(config.dtype),
                  static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(config.drop.p)),
                  deterministic};
  std::lock_guard const lock(mutex_);
  if (auto const found = found_.find(key); found != found_.end()) return found->second;
  std::string answer;
  try {
    answer = check();
  } catch (OutOfMemoryError const&) {
    throw;  // says nothing about the library
  } catch (std::exception const& error) {
    answer = error.what();
  }
  return found_[key] = answer;
}

}  // namespace tessera::kernels::detail
