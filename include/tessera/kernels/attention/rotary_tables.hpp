#pragma once
/// Frequencies and tables of rotary position embeddings, computed on the host.
///
/// Each step is rounded to fp32, in the order of transformers' modeling_rope_utils.py: at position
/// 8192 a rounding of an angle is worth 2e-4, so exact angles would give other logits.

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/core/dtype.hpp"

namespace tessera::kernels {

/// The `rope_type` of a Hugging Face configuration.
enum class RotaryScaling {
  none,      ///< "default"
  linear,    ///< positions divided by `factor`
  dynamic,   ///< NTK: a larger base once the sequence exceeds max_positions
  yarn,      ///< Peng et al., arXiv 2309.00071
  llama3,    ///< Llama 3.1: low frequencies divided by `factor`, with a smooth transition
  longrope,  ///< a factor per frequency: Ding et al., arXiv 2402.13753
};

/// The rotary position embeddings of a model, as config.json describes them.
struct RotaryOptions {
  RotaryScaling scaling = RotaryScaling::none;
  int rotary_dim = 0;  ///< even
  double theta = 10000.0;
  double factor = 1.0;
  std::int64_t max_positions = 0;  ///< max_position_embeddings; dynamic
  std::int64_t original_max_positions =
      0;  ///< original_max_position_embeddings; yarn, llama3, longrope. Where the configuration has
          ///< none: max_position_embeddings
  double low_freq_factor = 1.0;   ///< llama3
  double high_freq_factor = 4.0;  ///< llama3
  double beta_fast = 32.0;        ///< yarn
  double beta_slow = 1.0;         ///< yarn
  /// yarn, longrope: the factor of cosines and sines; from `factor`, mscale and mscale_all_dim
  /// where absent.
  std::optional<double> attention_factor{};
  double mscale = 0.0;          ///< yarn; 0: absent
  double mscale_all_dim = 0.0;  ///< yarn; 0: absent
  bool truncate = true;         ///< yarn: the correction range in full dimensions
  /// longrope: divisors of the frequencies, [rotary_dim / 2]; the second beyond
  /// original_max_positions.
  std::vector<double> short_factor{}, long_factor{};
};

/// Angles per position, of each pair of elements of a head.
struct RotaryFrequencies {
  std::vector<float> inverse;      ///< [rotary_dim / 2], angle per position
  float attention_scaling = 1.0f;  ///< factor of cosines and sines
};
/// @p sequence: positions of the longest sequence, for dynamic scaling and longrope; 0:
/// max_positions, and for longrope original_max_positions.
/// @throws ConfigError for a rotary_dim that is odd or not positive and for values that have no
/// meaning, naming the key of the configuration
RotaryFrequencies rotary_frequencies(RotaryOptions const& options, std::int64_t sequence = 0);

/// A range of positions and the dtype of the heads that the tables rotate.
struct RotaryTableShape {
  std::int64_t first = 0;
  std::int64_t positions = 0;
  Dtype rounded_to = Dtype::fp32;  ///< transformers rounds cosines and sines to this dtype
};
/// cos, sin [positions, rotary_dim / 2] of positions first, first + 1, ...
void rotary_tables(RotaryFrequencies const& frequencies, RotaryTableShape const& shape, float* cos,
                   float* sin);

}  // namespace tessera::kernels
