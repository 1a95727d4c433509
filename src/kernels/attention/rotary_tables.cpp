#include "tessera/kernels/attention/rotary_tables.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tessera/core/error.hpp"

namespace tessera::kernels {
namespace {

/// base^(2i / dim) of each pair.
std::vector<float> wavelengths(RotaryOptions const& o, double base) {
  std::vector<float> out(static_cast<std::size_t>(o.rotary_dim / 2));
  for (std::size_t i = 0; i < out.size(); ++i) {
    float const exponent = static_cast<float>(2 * i) / static_cast<float>(o.rotary_dim);
    out[i] = static_cast<float>(
        std::pow(static_cast<double>(static_cast<float>(base)), static_cast<double>(exponent)));
  }
  return out;
}

std::vector<float> plain(RotaryOptions const& o, double base) {
  std::vector<float> out = wavelengths(o, base);
  for (float& x : out) x = 1.0f / x;
  return out;
}

/// NTK-aware scaling: the base grows with the sequence.
std::vector<float> dynamic(RotaryOptions const& o, std::int64_t sequence) {
  double const length = static_cast<double>(std::max(sequence, o.max_positions)),
               dim = static_cast<double>(o.rotary_dim);
  double const growth = o.factor * length / static_cast<double>(o.max_positions) - (o.factor - 1.0);
  return plain(o, o.theta * std::pow(growth, dim / (dim - 2.0)));
}

/// Long wavelengths are divided by the factor, short ones kept, those between interpolated.
std::vector<float> llama3(RotaryOptions const& o) {
  auto const length = static_cast<double>(o.original_max_positions);
  auto const longest = static_cast<float>(length / o.low_freq_factor),
             shortest = static_cast<float>(length / o.high_freq_factor);
  auto const factor = static_cast<float>(o.factor), low = static_cast<float>(o.low_freq_factor),
             range = static_cast<float>(o.high_freq_factor - o.low_freq_factor);
  std::vector<float> out = plain(o, o.theta);
  for (float& x : out) {
    float const wavelength = static_cast<float>(2.0 * std::numbers::pi) / x;
    if (wavelength > longest) {
      x = x / factor;
    } else if (!(wavelength < shortest)) {
      float const smooth = (static_cast<float>(length) / wavelength - low) / range;
      x = (1.0f - smooth) * x / factor + smooth * x;
    }
  }
  return out;
}

/// The dimension that turns `rotations` times over the original context.
double correction_dim(RotaryOptions const& o, double rotations) {
  auto const length = static_cast<double>(o.original_max_positions);
  return static_cast<double>(o.rotary_dim) *
         std::log(length / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(o.theta));
}

std::vector<float> yarn(RotaryOptions const& o) {
  double low = correction_dim(o, o.beta_fast), high = correction_dim(o, o.beta_slow);
  if (o.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(o.rotary_dim - 1));
  if (low == high) high += 0.001;
  std::vector<float> out = wavelengths(o, o.theta);
  for (std::size_t i = 0; i < out.size(); ++i) {
    float const ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    float const keep = 1.0f - ramp, extrapolated = 1.0f / out[i],
                interpolated = 1.0f / (static_cast<float>(o.factor) * out[i]);
    out[i] = interpolated * (1.0f - keep) + extrapolated * keep;
  }
  return out;
}

double yarn_scaling(RotaryOptions const& o) {
  auto const of = [&](double mscale) {
    return o.factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(o.factor) + 1.0;
  };
  if (o.attention_factor) return *o.attention_factor;
  if (o.mscale != 0.0 && o.mscale_all_dim != 0.0) return of(o.mscale) / of(o.mscale_all_dim);
  return of(1.0);
}

std::vector<float> longrope(RotaryOptions const& o, std::int64_t sequence) {
  auto const& factors = sequence > o.original_max_positions ? o.long_factor : o.short_factor;
  std::vector<float> out = wavelengths(o, o.theta);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = 1.0f / (static_cast<float>(factors[i]) * out[i]);
  return out;
}

double longrope_scaling(RotaryOptions const& o) {
  if (o.attention_factor) return *o.attention_factor;
  if (o.factor <= 1.0) return 1.0;
  return std::sqrt(1.0 +
                   std::log(o.factor) / std::log(static_cast<double>(o.original_max_positions)));
}

void check_longrope(RotaryOptions const& o) {
  if (o.scaling != RotaryScaling::longrope) return;
  auto const needed = static_cast<std::size_t>(o.rotary_dim / 2);
  for (auto const& [name, factors] :
       {std::pair("short_factor", &o.short_factor), {"long_factor", &o.long_factor}}) {
    TESSERA_VALIDATE(factors->size() == needed, ConfigError, name, " of rope_scaling has ",
                     factors->size(), " values; it needs ", needed,
                     ", one for every two rotated elements of a head");
    for (double const factor : *factors)
      TESSERA_VALIDATE(factor > 0.0, ConfigError, name, " of rope_scaling has the value ", factor,
                       "; all must be positive");
  }
}

void check(RotaryOptions const& o) {
  check_longrope(o);
  TESSERA_VALIDATE(o.rotary_dim > 0 && o.rotary_dim % 2 == 0, ConfigError, "rotary embeddings of ",
                   o.rotary_dim,
                   " elements: the number must be even and positive; see head_dim and "
                   "partial_rotary_factor");
  TESSERA_VALIDATE(o.theta > 1.0, ConfigError, "rope_theta is ", o.theta, "; it must be above 1");
  TESSERA_VALIDATE(o.scaling == RotaryScaling::none || o.factor > 0.0, ConfigError,
                   "factor of rope_scaling is ", o.factor, "; it must be positive");
  TESSERA_VALIDATE(o.scaling != RotaryScaling::dynamic || (o.max_positions > 0 && o.rotary_dim > 2),
                   ConfigError, "rope_scaling \"dynamic\" with max_position_embeddings ",
                   o.max_positions, " and ", o.rotary_dim,
                   " rotated elements: the first must be positive, the second above 2");
  bool const needs_original = o.scaling == RotaryScaling::yarn ||
                              o.scaling == RotaryScaling::llama3 ||
                              o.scaling == RotaryScaling::longrope;
  TESSERA_VALIDATE(!needs_original || o.original_max_positions > 0, ConfigError,
                   "original_max_position_embeddings of rope_scaling is ", o.original_max_positions,
                   "; it must be positive");
  TESSERA_VALIDATE(o.scaling != RotaryScaling::llama3 ||
                       (o.low_freq_factor > 0.0 && o.high_freq_factor > o.low_freq_factor),
                   ConfigError, "rope_scaling \"llama3\" with low_freq_factor ", o.low_freq_factor,
                   " and high_freq_factor ", o.high_freq_factor,
                   ": the first must be positive, the second larger");
}

float rounded(float value, Dtype dtype) {
  if (dtype == Dtype::bf16) return bfloat16(value);
  if (dtype == Dtype::fp16) return float16(value);
  return value;
}

}  // namespace

RotaryFrequencies rotary_frequencies(RotaryOptions const& options, std::int64_t sequence) {
  check(options);
  RotaryFrequencies out;
  switch (options.scaling) {
    case RotaryScaling::none:
      out.inverse = plain(options, options.theta);
      break;
    case RotaryScaling::linear:
      out.inverse = plain(options, options.theta);
      for (float& x : out.inverse) x /= static_cast<float>(options.factor);
      break;
    case RotaryScaling::dynamic:
      out.inverse = dynamic(options, sequence);
      break;
    case RotaryScaling::yarn:
      out.inverse = yarn(options);
      out.attention_scaling = static_cast<float>(yarn_scaling(options));
      break;
    case RotaryScaling::llama3:
      out.inverse = llama3(options);
      break;
    case RotaryScaling::longrope:
      out.inverse = longrope(options, sequence);
      out.attention_scaling = static_cast<float>(longrope_scaling(options));
      break;
  }
  return out;
}

void rotary_tables(RotaryFrequencies const& frequencies, RotaryTableShape const& shape, float* cos,
                   float* sin) {
  std::size_t at = 0;
  for (std::int64_t p = shape.first; p < shape.first + shape.positions; ++p) {
    for (float const inverse : frequencies.inverse) {
      auto const angle = static_cast<double>(static_cast<float>(p) * inverse);
      cos[at] = rounded(static_cast<float>(std::cos(angle)) * frequencies.attention_scaling,
                        shape.rounded_to);
      sin[at] = rounded(static_cast<float>(std::sin(angle)) * frequencies.attention_scaling,
                        shape.rounded_to);
      ++at;
    }
  }
}

}  // namespace tessera::kernels
