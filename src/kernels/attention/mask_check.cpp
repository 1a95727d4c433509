#include "attention/mask_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/random.hpp"

namespace tessera::kernels::detail {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Rounded to the dtype.
float rounded(Dtype dtype, float value) {
  if (dtype == Dtype::bf16) return static_cast<float>(bfloat16(value));
  if (dtype == Dtype::fp16) return static_cast<float>(float16(value));
  return value;
}

/// Index of element (b, t, h, c) in rows of @p heads heads.
struct Rows {
  std::int64_t sequence, heads, head_dim;
  std::size_t operator()(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t c) const {
    return at(((b * sequence + t) * heads + h) * head_dim + c);
  }
};

AttentionSample empty_sample(AttentionConfig const& config) {
  auto const& s = config.shape;
  AttentionSample out;
  out.config = config;
  auto const queries = at(s.batch * s.sequence * s.heads * s.head_dim),
             keys = at(s.batch * s.sequence * s.kv_heads * s.head_dim);
  for (auto* part : {&out.query, &out.dout, &out.out, &out.dquery}) part->assign(queries, 0.0f);
  for (auto* part : {&out.key, &out.value, &out.dkey, &out.dvalue}) part->assign(keys, 0.0f);
  out.lse.assign(at(s.batch * s.heads * s.sequence), 0.0f);
  return out;
}

/// Which probabilities both passes have kept, at chosen chunks of head_dim positions.
class Masks {
 public:
  Masks(AttentionConfig const& config, std::vector<std::int64_t> chunks)
      : config_(config),
        s_(config_.shape),
        chunks_(std::move(chunks)),
        width_(std::ssize(chunks_) * s_.head_dim),
        group_(s_.heads / s_.kv_heads),
        by_key_(at(s_.batch * s_.heads * s_.sequence * width_)),
        by_query_(at(s_.batch * s_.kv_heads * s_.sequence * width_)) {}

  /// Reads them. Returns what is wrong.
  std::string read(ComputeSample const& compute) {
    for (std::size_t slot = 0; slot < chunks_.size(); ++slot) {
      AttentionSample sample = probe(chunks_[slot]);
      if (auto const failed = compute(sample); !failed.empty()) return failed;
      if (auto wrong = read_forward(sample, slot); !wrong.empty()) return wrong;
      if (auto wrong = read_backward(sample, slot); !wrong.empty()) return wrong;
    }
    return "";
  }
  /// The passes agree wherever a query and a key are both in the chunks.
  std::string compare_passes() const {
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t kv = 0; kv < s_.kv_heads; ++kv)
        for (std::int64_t row = 0; row < width_; ++row)
          for (std::int64_t column = 0; column < width_; ++column) {
            std::int64_t const t = position(row), k = position(column);
            if (t >= s_.sequence || k > t) continue;
            int kept = 0;
            for (std::int64_t h = kv * group_; h < (kv + 1) * group_; ++h)
              kept += by_key_[key_index(b, h, t, column)];
            if (kept != by_query_[query_index(b, kv, row, k)])
              return concat("its backward pass drops other weights than its forward pass (query ",
                            t, ", key ", k, ")");
          }
    return "";
  }
  /// @p column counts in the chunks; with all of them it is the key.
  bool kept(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t column) const {
    return by_key_[key_index(b, h, t, column)] != 0;
  }
  bool operator==(Masks const& other) const { return by_key_ == other.by_key_; }

 private:
  std::int64_t position(std::int64_t column) const {
    return chunks_[at(column / s_.head_dim)] * s_.head_dim + column % s_.head_dim;
  }
  std::size_t key_index(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t column) const {
    return at(((b * s_.heads + h) * s_.sequence + t) * width_ + column);
  }
  std::size_t query_index(std::int64_t b, std::int64_t kv, std::int64_t row, std::int64_t k) const {
    return at(((b * s_.kv_heads + kv) * width_ + row) * s_.sequence + k);
  }
  /// Value s and output gradient t of the chunk are 1 in their own column.
  AttentionSample probe(std::int64_t chunk) const {
    AttentionSample out = empty_sample(config_);
    Rows const values{s_.sequence, s_.kv_heads, s_.head_dim},
        outputs{s_.sequence, s_.heads, s_.head_dim};
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t c = 0; c < s_.head_dim; ++c) {
        std::int64_t const t = chunk * s_.head_dim + c;
        if (t >= s_.sequence) break;
        for (std::int64_t kv = 0; kv < s_.kv_heads; ++kv) out.value[values(b, t, kv, c)] = 1.0f;
        for (std::int64_t h = 0; h < s_.heads; ++h) out.dout[outputs(b, t, h, c)] = 1.0f;
      }
    return out;
  }
  /// @p value over that of one kept probability of query t: an integer of up to group_.
  std::string count_of(float value, std::int64_t t, int most, std::uint8_t& count) const {
    float const one = 1.0f / ((1.0f - config_.drop.p) * static_cast<float>(t + 1)),
                quotient = value / one, nearest = std::round(quotient);
    if (!(std::abs(quotient - nearest) < 0.1f) || nearest < 0.0f ||
        nearest > static_cast<float>(most))
      return concat("a weight of query ", t, " becomes ", value, ", neither 0 nor ", one);
    count = static_cast<std::uint8_t>(nearest);
    return "";
  }
  std::string read_forward(AttentionSample const& sample, std::size_t slot) {
    Rows const outputs{s_.sequence, s_.heads, s_.head_dim};
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t h = 0; h < s_.heads; ++h)
        for (std::int64_t t = 0; t < s_.sequence; ++t)
          for (std::int64_t c = 0; c < s_.head_dim; ++c) {
            if (chunks_[slot] * s_.head_dim + c > t) break;
            std::int64_t const column = static_cast<std::int64_t>(slot) * s_.head_dim + c;
            auto wrong = count_of(sample.out[outputs(b, t, h, c)], t, 1,
                                  by_key_[key_index(b, h, t, column)]);
            if (!wrong.empty()) return wrong;
          }
    return "";
  }
  std::string read_backward(AttentionSample const& sample, std::size_t slot) {
    Rows const values{s_.sequence, s_.kv_heads, s_.head_dim};
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t kv = 0; kv < s_.kv_heads; ++kv)
        for (std::int64_t c = 0; c < s_.head_dim; ++c) {
          std::int64_t const t = chunks_[slot] * s_.head_dim + c;
          if (t >= s_.sequence) break;
          std::int64_t const row = static_cast<std::int64_t>(slot) * s_.head_dim + c;
          for (std::int64_t k = 0; k <= t; ++k) {
            auto wrong = count_of(sample.dvalue[values(b, k, kv, c)], t, static_cast<int>(group_),
                                  by_query_[query_index(b, kv, row, k)]);
            if (!wrong.empty()) return "in its backward pass " + wrong;
          }
        }
    return "";
  }

  AttentionConfig config_;
  AttentionShape const& s_;
  std::vector<std::int64_t> chunks_;
  std::int64_t width_, group_;
  std::vector<std::uint8_t> by_key_;    ///< [B, heads, T, chunks * head_dim], of the forward pass
  std::vector<std::uint8_t> by_query_;  ///< [B, kv_heads, chunks * head_dim, T], backward, summed
};

/// The correlation of pairs of dropped weights.
class Pairs {
 public:
  void add(bool kept_one, bool kept_other) {
    ++count_;
    dropped_ += !kept_one;
    dropped_other_ += !kept_other;
    both_ += !kept_one && !kept_other;
  }
  double dropped() const { return count_ == 0 ? 0.0 : dropped_ / count_; }
  double count() const { return count_; }
  /// Beyond what chance gives in one of a billion.
  bool related() const {
    if (count_ == 0) return false;
    double const a = dropped_ / count_, b = dropped_other_ / count_,
                 variance = std::sqrt(a * (1 - a) * b * (1 - b));
    return variance > 0 &&
           std::abs(both_ / count_ - a * b) / variance > 0.05 + 6 / std::sqrt(count_);
  }

 private:
  double count_ = 0, dropped_ = 0, dropped_other_ = 0, both_ = 0;
};

/// Two masks of the same shape, or two places of one: f(b, h, t, s, add) for all weights.
template <class Visit>
Pairs over_weights(AttentionShape const& s, Visit const& visit) {
  Pairs out;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t t = 0; t < s.sequence; ++t)
        for (std::int64_t k = 0; k <= t; ++k) visit(out, b, h, t, k);
  return out;
}

std::string check_statistics(AttentionConfig const& config, Masks const& m) {
  auto const& s = config.shape;
  auto const all = over_weights(s, [&](Pairs& pairs, auto b, auto h, auto t, auto k) {
    pairs.add(m.kept(b, h, t, k), m.kept(b, h, t, k));
  });
  double const p = config.drop.p;
  // generators may round p to eight bits
  if (std::abs(all.dropped() - p) > 0.005 + 6 * std::sqrt(p * (1 - p) / all.count()))
    return concat("it drops ", all.dropped(), " of the weights");
  auto const check = [&](char const* what, auto const& other) -> std::string {
    auto const pairs =
        over_weights(s, [&](Pairs& to, auto b, auto h, auto t, auto k) { other(to, b, h, t, k); });
    return pairs.related() ? concat(what, " have related masks") : "";
  };
  for (auto const &wrong : {check("queries next to each other",
                                  [&](Pairs&to, auto b, auto h, auto t, auto k) {
                                    if (k < t) to.add(m.kept(b, h, t, k), m.kept(b, h, t - 1, k));
                                  }),
                            check("keys next to each other",
                                  [&](Pairs&to, auto b, auto h, auto t, auto k) {
                                    if (k > 0) to.add(m.kept(b, h, t, k), m.kept(b, h, t, k - 1));
                                  }),
                            check("sequences of a batch",
                                  [&](Pairs&to, auto b, auto h, auto t, auto k) {
                                    if (b > 0) to.add(m.kept(b, h, t, k), m.kept(b - 1, h, t, k));
                                  }),
                            check("heads", [&](Pairs&to, auto b, auto h, auto t, auto k) {
                              if (h > 0) to.add(m.kept(b, h, t, k), m.kept(b, h - 1, t, k));
                            })})
    if (!wrong.empty()) return wrong;
  return "";
}

/// The formulas of attention() and attention_backward() for one query, in double precision.
class QueryReference {
 public:
  QueryReference(AttentionSample const& sample, Masks const& masks)
      : in_(sample), s_(in_.config.shape), masks_(masks) {}

  /// Adds to @p sums what query t of a head gives.
  void add(AttentionSample& sums, std::int64_t b, std::int64_t h, std::int64_t t) {
    std::int64_t const kv = h / (s_.heads / s_.kv_heads), d = s_.head_dim;
    double const keep = 1.0 / (1.0 - in_.config.drop.p), scale = s_.scale;
    weights_.assign(at(t + 1), 0.0);
    double const log_sum = softmax(b, h, kv, t);
    sums.lse[at((b * s_.heads + h) * s_.sequence + t)] = static_cast<float>(log_sum);
    double delta = 0;
    slopes_.assign(at(t + 1), 0.0);
    for (std::int64_t k = 0; k <= t; ++k) {
      double const factor = masks_.kept(b, h, t, k) ? keep : 0.0, weight = weights_[at(k)] * factor;
      double dweight = 0;
      for (std::int64_t c = 0; c < d; ++c) {
        double const value = in_.value[keys_(b, k, kv, c)], dout = in_.dout[queries_(b, t, h, c)];
        sums.out[queries_(b, t, h, c)] += static_cast<float>(weight * value);
        sums.dvalue[keys_(b, k, kv, c)] += static_cast<float>(weight * dout);
        dweight += value * dout;
      }
      slopes_[at(k)] = dweight * factor;
      delta += dweight * weight;
    }
    for (std::int64_t k = 0; k <= t; ++k) {
      double const slope = scale * weights_[at(k)] * (slopes_[at(k)] - delta);
      for (std::int64_t c = 0; c < d; ++c) {
        sums.dquery[queries_(b, t, h, c)] +=
            static_cast<float>(slope * in_.key[keys_(b, k, kv, c)]);
        sums.dkey[keys_(b, k, kv, c)] +=
            static_cast<float>(slope * in_.query[queries_(b, t, h, c)]);
      }
    }
  }

 private:
  /// Probabilities of query t to weights_; returns the log-sum-exp.
  double softmax(std::int64_t b, std::int64_t h, std::int64_t kv, std::int64_t t) {
    double most = -1e300, sum = 0;
    for (std::int64_t k = 0; k <= t; ++k) {
      double dot = 0;
      for (std::int64_t c = 0; c < s_.head_dim; ++c)
        dot += double{in_.query[queries_(b, t, h, c)]} * in_.key[keys_(b, k, kv, c)];
      weights_[at(k)] = dot * s_.scale;
      most = std::max(most, weights_[at(k)]);
    }
    for (auto& weight : weights_) sum += weight = std::exp(weight - most);
    for (auto& weight : weights_) weight /= sum;
    return most + std::log(sum);
  }

  AttentionSample const& in_;
  AttentionShape const& s_;
  Masks const& masks_;
  Rows queries_{s_.sequence, s_.heads, s_.head_dim}, keys_{s_.sequence, s_.kv_heads, s_.head_dim};
  std::vector<double> weights_, slopes_;
};

double norm(std::vector<float> const& values) {
  double sum = 0;
  for (float const value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

std::string check_values(AttentionConfig const& config, Masks const& masks,
                         ComputeSample const& compute) {
  AttentionSample sample = empty_sample(config);
  std::uint64_t stream = 0;
  for (auto* part : {&sample.query, &sample.key, &sample.value, &sample.dout}) {
    Philox const random{1, ++stream};
    for (std::size_t i = 0; i < part->size(); ++i)
      (*part)[i] = rounded(config.dtype, 4.0f * random.uniform(i) - 2.0f);
  }
  AttentionSample expected = empty_sample(config);
  QueryReference reference(sample, masks);
  auto const& s = config.shape;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t t = 0; t < s.sequence; ++t) reference.add(expected, b, h, t);
  if (auto const failed = compute(sample); !failed.empty()) return failed;
  double const tolerance = config.dtype == Dtype::fp32   ? 1e-4
                           : config.dtype == Dtype::fp16 ? 5e-3
                                                         : 2e-2;
  struct Part {
    char const* name;
    std::vector<float> const &got, &wanted;
  };
  for (Part const& part : {Part{"output", sample.out, expected.out},
                           {"log-sum-exp", sample.lse, expected.lse},
                           {"gradient of the queries", sample.dquery, expected.dquery},
                           {"gradient of the keys", sample.dkey, expected.dkey},
                           {"gradient of the values", sample.dvalue, expected.dvalue}}) {
    std::vector<float> difference(part.got);
    for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= part.wanted[i];
    double const relative = norm(difference) / std::max(norm(part.wanted), 1e-30);
    if (!(relative < tolerance))
      return concat("with the masks that it uses its ", part.name, " differs by ", relative,
                    " of the norm from the formula");
  }
  return "";
}

/// All chunks of head_dim positions of a sequence.
std::vector<std::int64_t> all_chunks(AttentionShape const& s) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i * s.head_dim < s.sequence; ++i) out.push_back(i);
  return out;
}

AttentionConfig sample_of(AttentionConfig config, std::int64_t batch, int kv_heads,
                          std::int64_t sequence) {
  auto& s = config.shape;
  int const group = std::min(s.heads / s.kv_heads, 4);
  s.batch = batch;
  s.kv_heads = std::min(s.kv_heads, kv_heads);
  s.heads = s.kv_heads * group;
  s.sequence = sequence;
  return config;
}

/// All checks of a sample whose masks are read completely.
std::string check_short_sample(AttentionConfig const& config, ComputeSample const& compute) {
  auto const chunks = all_chunks(config.shape);
  Masks masks(config, chunks);
  if (auto wrong = masks.read(compute); !wrong.empty()) return wrong;
  if (auto wrong = masks.compare_passes(); !wrong.empty()) return wrong;
  if (auto wrong = check_statistics(config, masks); !wrong.empty()) return wrong;
  Masks again(config, chunks);
  if (auto wrong = again.read(compute); !wrong.empty()) return wrong;
  if (!(masks == again)) return "the same call does not give the same masks";
  auto const& s = config.shape;
  for (bool const layer : {true, false}) {
    AttentionConfig next = config;
    if (layer)
      next.drop.stream += 16;
    else
      next.drop.first_element += static_cast<std::uint64_t>(s.heads * s.sequence * s.sequence);
    Masks other(next, chunks);
    if (auto wrong = other.read(compute); !wrong.empty()) return wrong;
    auto const pairs = over_weights(s, [&](Pairs& to, auto b, auto h, auto t, auto k) {
      to.add(masks.kept(b, h, t, k), other.kept(b, h, t, k));
    });
    if (pairs.related()) return concat(layer ? "layers" : "micro-batches", " have related masks");
  }
  return check_values(config, masks, compute);
}

}  // namespace

std::string check_masks(AttentionConfig const& config, ComputeSample const& compute) {
  std::int64_t const sequence = config.shape.sequence,
                     short_sequence = sequence <= 320 ? sequence : 256 + sequence % 64;
  if (auto wrong = check_short_sample(sample_of(config, 2, 2, short_sequence), compute);
      !wrong.empty())
    return wrong;
  if (short_sequence == sequence) return "";
  AttentionConfig const full = sample_of(config, 1, 1, sequence);
  std::int64_t const last = (sequence - 1) / full.shape.head_dim;
  Masks masks(full, {0, last / 2, last});
  auto wrong = masks.read(compute);
  return wrong.empty() ? masks.compare_passes() : wrong;
}

}  // namespace tessera::kernels::detail
