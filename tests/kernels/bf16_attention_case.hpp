#pragma once
/// Attention of bf16 operands whose errors in PyTorch tests/oracles/bf16_attention.py recorded.

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "reference.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/kernels/attention/attention.hpp"

namespace tessera::kernels::test {

/// Query, key, value and dout [T, heads, head_dim], their numbers as in the oracle.
class Bf16AttentionCase {
 public:
  explicit Bf16AttentionCase(ConfigTree const& stored)
      : heads_(stored.at("heads").as_int()),
        length_(stored.at("length").as_int()),
        head_dim_(stored.at("head_dim").as_int()),
        errors_(stored.at("errors")) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      operands_.push_back(Array(Dtype::bf16, {length_, heads_, head_dim_}));
      for (std::int64_t k = 0; k < operands_[i].numel(); ++k)
        operands_[i].set(k, number((i << 24) + static_cast<std::uint32_t>(k)));
    }
    gradients_ = {operands_[0], operands_[1], operands_[2]};
  }

  static std::vector<Bf16AttentionCase> all() {
    std::vector<Bf16AttentionCase> out;
    auto const stored =
        ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/bf16_attention.json");
    for (auto const& c : stored.at("cases").as_array()) out.emplace_back(c);
    return out;
  }

  std::string name() const {
    return concat(length_, " positions, ", heads_, " heads of ", head_dim_);
  }
  double error_of_torch(char const* result) const { return errors_.at(result).as_double(); }

  void forward(Queue& q) { attention(q, config(), {out_.view(), lse_.view()}, in()); }
  void backward(Queue& q) {
    Array workspace(Dtype::fp32, {attention_backward_workspace(q, config().shape)});
    std::int64_t const row = heads_ * head_dim_;
    attention_backward(
        q, config(),
        {{gradients_[0].data(), row}, {gradients_[1].data(), row}, {gradients_[2].data(), row}},
        in(), {operands_[3].view(), out_.view(), lse_.view()}, workspace.view());
  }
  Reals out() const { return out_.values(); }
  /// 0: of the query, 1: key, 2: value.
  Reals gradient(int i) const { return gradients_[static_cast<std::size_t>(i)].values(); }

  struct Reference {
    Reals out;
    std::array<Reals, 3> gradient;
  };
  /// The formulas in double, a query at a time.
  Reference reference() const {
    Reals const q = operands_[0].values(), k = operands_[1].values(), v = operands_[2].values(),
                dout = operands_[3].values();
    Reals const none(q.size());
    Reference r{none, {none, none, none}};
    for (std::int64_t h = 0; h < heads_; ++h)
      for (std::int64_t t = 0; t < length_; ++t) {
        Reals p(static_cast<std::size_t>(t) + 1), dp(p.size());
        double sum = 0, delta = 0;
        for (std::int64_t s = 0; s <= t; ++s) {
          double dot = 0;
          for (std::int64_t c = 0; c < head_dim_; ++c) dot += q[at(t, h, c)] * k[at(s, h, c)];
          sum += p[static_cast<std::size_t>(s)] = std::exp(dot * scale());
        }
        for (std::int64_t s = 0; s <= t; ++s) {
          double &x = p[static_cast<std::size_t>(s)], &dx = dp[static_cast<std::size_t>(s)];
          x /= sum;
          for (std::int64_t c = 0; c < head_dim_; ++c) {
            r.out[at(t, h, c)] += x * v[at(s, h, c)];
            r.gradient[2][at(s, h, c)] += x * dout[at(t, h, c)];
            dx += dout[at(t, h, c)] * v[at(s, h, c)];
          }
          delta += x * dx;
        }
        for (std::int64_t s = 0; s <= t; ++s) {
          auto const i = static_cast<std::size_t>(s);
          double const ds = p[i] * (dp[i] - delta) * scale();
          for (std::int64_t c = 0; c < head_dim_; ++c) {
            r.gradient[0][at(t, h, c)] += ds * k[at(s, h, c)];
            r.gradient[1][at(s, h, c)] += ds * q[at(t, h, c)];
          }
        }
      }
    return r;
  }

  /// The root of the mean square of differences over that of the values.
  static double error(Reals const& got, Reals const& want) {
    double difference = 0, values = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      difference += (got[i] - want[i]) * (got[i] - want[i]);
      values += want[i] * want[i];
    }
    return std::sqrt(difference / values);
  }

 private:
  static double number(std::uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    return (static_cast<double>((x ^ (x >> 16)) >> 24) - 128) / 64;
  }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(head_dim_)); }
  std::size_t at(std::int64_t t, std::int64_t h, std::int64_t c) const {
    return static_cast<std::size_t>((t * heads_ + h) * head_dim_ + c);
  }
  AttentionConfig config() const {
    int const heads = static_cast<int>(heads_);
    return {Dtype::bf16,
            {1, length_, heads, heads, static_cast<int>(head_dim_), static_cast<float>(scale())},
            {}};
  }
  AttentionInput in() const {
    std::int64_t const row = heads_ * head_dim_;
    return {{operands_[0].data(), row}, {operands_[1].data(), row}, {operands_[2].data(), row}};
  }

  std::int64_t heads_, length_, head_dim_;
  ConfigTree errors_;
  std::vector<Array> operands_, gradients_;
  Array out_{Dtype::bf16, {1, length_, heads_*head_dim_}}, lse_{Dtype::fp32, {1, heads_, length_}};
};

}  // namespace tessera::kernels::test
