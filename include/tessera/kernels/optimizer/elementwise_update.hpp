#pragma once
/// The fused element-wise updates of a rank's partition, one per optimizer, with their states in
/// fp32 or in 8 bits.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::kernels {

/// A run of the partition with one set of rates.
struct UpdateSegment {
  static constexpr std::size_t max_states = 4;
  void* master = nullptr;                     ///< weights of master_dtype, updated
  std::array<void*, max_states> states = {};  ///< updated; the order is the optimizer's
  void const* gradient = nullptr;
  void* weights_out = nullptr;  ///< 16-bit weights written from the updated master; null when the
                                ///< master is the weight
  std::int64_t numel = 0;
  double learning_rate = 0.0;
  double weight_decay = 0.0;
};

/// One step for all segments. The gradient of an element is gradient * gradient_factor: unscale and
/// clip in one. An element's result depends on its own values only, not on its place in a
/// segment. The step may be destroyed after the call.
struct ElementwiseUpdate {
  std::vector<UpdateSegment> segments;
  Dtype gradient_dtype = Dtype::fp32;
  Dtype weights_dtype = Dtype::fp32;  ///< dtype of weights_out
  /// Values of 16 bits become fp32, are updated and are rounded to nearest.
  Dtype master_dtype = Dtype::fp32, state_dtype = Dtype::fp32;
  double gradient_factor = 1.0;
  /// In memory of the queue's space (memory::memory_space_of), read when the kernels run and then
  /// used instead of gradient_factor, with the same bits; it stays there until they have run.
  GradientControl const* control = nullptr;
};

// States in 8 bits, as bitsandbytes keeps them: dynamic quantization of chunks of 256 elements.  A
// chunk has one fp32 number, its largest magnitude (absmax), and one code of 8 bits per element. A
// code is an index into a map of 256 numbers from -0.993 or 0 to 1; the element is map[code] *
// absmax. Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022.

/// Elements that share an absmax. A chunk does not reach over the end of a parameter.
inline constexpr std::int64_t quantization_chunk = 256;

/// bitsandbytes' create_dynamic_map(signed). The signed map has no -1.
enum class DynamicMap { signed_values, unsigned_values };

/// The numbers of the map, ascending, bit by bit those of bitsandbytes.
std::span<float const, 256> numbers_of(DynamicMap map);

/// Codes of one state with an absmax for each chunk of them.
struct QuantizedValues {
  std::uint8_t* codes = nullptr;
  float* absmax = nullptr;
};

/// Converts quantized values in host memory to fp32 on the host.
void dequantize(QuantizedValues from, DynamicMap map, std::span<float> out);
/// The nearest codes for the absmax that @p out has; of dequantized numbers those that they came
/// from, or others with the same values.
void quantize(std::span<float const> values, DynamicMap map, QuantizedValues out);

/// A run of one parameter that begins with one of its chunks. `states` is not used.
struct QuantizedSegment : UpdateSegment {
  std::array<QuantizedValues, 2> quantized = {};
};

/// States exp_avg (m) and exp_avg_sq (v):
///   m <- beta1 m + (1-beta1) g;  v <- beta2 v + (1-beta2) g^2
///   decoupled: p <- p - lr * weight_decay * p, then p <- p - lr * (m / (1-beta1^t)) / (sqrt(v /
///   (1-beta2^t)) + epsilon) (adam_l2: g += weight_decay * p first, no decoupled decay;
///   bias_correction false: the divisors are 1)
/// in the order of operations of torch.optim.AdamW, in fp32; coefficients such as 1 - beta1 are
/// computed in double and rounded once. Source  Loshchilov & Hutter, "Decoupled Weight Decay
/// Regularization", ICLR 2019, Alg. 2.  Traffic 16 B read + 12 B written (+2).
struct AdamWStep : ElementwiseUpdate {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double bias_correction1 = 1.0,
         bias_correction2 = 1.0;  ///< 1 - beta^t, computed in double by the caller
  bool adam_l2 = false;
};
void adamw(Queue& q, AdamWStep const& step);
/// AdamW with m (signed map) and v (unsigned map) in 8 bits. @p step has no segments. Traffic
/// 10 B read + 6 B written (+2).
void adamw_8bit(Queue& q, AdamWStep const& step, std::vector<QuantizedSegment> const& segments);

/// States exp_avg (m) and exp_inf (u):  g = gradient + weight_decay * p;  m <- m + (1-beta1) (g -
/// m)
///   u <- max(beta2 u, |g| + epsilon);  p <- p - lr / (1-beta1^t) * m / u
/// in the order of operations of torch.optim.Adamax, in fp32. Source: Kingma & Ba, "Adam", ICLR
/// 2015, Alg. 2.
struct AdamaxStep : ElementwiseUpdate {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double bias_correction1 = 1.0;  ///< 1 - beta1^t
};
void adamax(Queue& q, AdamaxStep const& step);

enum class Decay { l2, decoupled };

/// States exp_avg (m) and exp_avg_sq (v), updated as in AdamWStep, then
///   p <- p - lr * (gradient_share * g + momentum_share * m) / (root_factor * sqrt(v) + offset)
/// NAdam: gradient_share = (1 - mu_t) / (1 - prod mu), momentum_share = mu_(t+1) / (1 - prod mu *
/// mu_(t+1)), root_factor = 1 / sqrt(1 - beta2^t), offset = epsilon. RAdam: gradient_share = 0,
/// momentum_share = r_t / (1 - beta1^t), offset = epsilon * root_factor; before the variance is
/// tractable root_factor = 0, offset = 1. Equal to torch.optim up to single roundings, in fp32.
/// Sources: Dozat, "Incorporating Nesterov Momentum into Adam", 2016; Liu et al., "On the Variance
/// of the Adaptive Learning Rate and Beyond", ICLR 2020.
struct AdamVariantStep : ElementwiseUpdate {
  double beta1 = 0.9, beta2 = 0.999;
  double gradient_share = 0.0, momentum_share = 1.0;
  double root_factor = 1.0, offset = 1e-8;
  Decay decay = Decay::l2;
};
void adam_variant(Queue& q, AdamVariantStep const& step);

/// State exp_avg (m):
///   p <- p - lr * weight_decay * p;  p <- p - lr * sign(beta1 m + (1-beta1) g)
///   m <- beta2 m + (1-beta2) g
/// in fp32, with sign(0) = 0. Source: Chen et al., "Symbolic Discovery of Optimization Algorithms",
/// NeurIPS 2023, Program 1.  Traffic 12 B read + 8 B written (+2).
struct LionStep : ElementwiseUpdate {
  double beta1 = 0.9, beta2 = 0.999;
};
void lion(Queue& q, LionStep const& step);
/// Lion with its state in 8 bits (signed map). @p step has no segments.
void lion_8bit(Queue& q, LionStep const& step, std::vector<QuantizedSegment> const& segments);

enum class Momentum { none, classical, nesterov };

/// State momentum_buffer (b), with momentum only:  g = gradient + weight_decay * p, then
///   none:       p <- p - lr * g
///   classical:  b <- momentum * b + (1 - dampening) * g;  p <- p - lr * b
///   nesterov:   b as above;                               p <- p - lr * (g + momentum * b)
/// in the order of operations of torch.optim.SGD, in fp32. The first step sets b = g, without
/// dampening. Source: Sutskever et al., "On the importance of initialization and momentum in deep
/// learning", ICML 2013.
struct SgdStep : ElementwiseUpdate {
  Momentum momentum_form = Momentum::none;
  double momentum = 0.0, dampening = 0.0;
  bool first = false;  ///< step 1, whose momentum buffer is zero
};
void sgd(Queue& q, SgdStep const& step);

/// State sum (s):  g = gradient + weight_decay * p;  s <- s + g^2;  p <- p - lr * g / (sqrt(s) +
/// epsilon) in the order of operations of torch.optim.Adagrad, in fp32, with lr = learning rate /
/// rate_divisor. Source: Duchi, Hazan & Singer, "Adaptive Subgradient Methods", JMLR 2011.
/// Traffic 12 B read + 8 B written (+2).
struct AdagradStep : ElementwiseUpdate {
  double epsilon = 1e-10;
  double initial_sum = 0.0;   ///< added to s: initial_accumulator_value in step 1, else 0
  double rate_divisor = 1.0;  ///< divisor of the learning rate: 1 + (t-1) lr_decay
};
void adagrad(Queue& q, AdagradStep const& step);

/// States square_avg (s), then momentum_buffer (b) with momentum, then grad_avg (a) when centered:
///   g = gradient + weight_decay * p;  s <- alpha s + (1-alpha) g^2
///   centered: a <- a + (1-alpha) (g - a);  d = sqrt(s - a^2) + epsilon;  else d = sqrt(s) +
///   epsilon momentum: b <- momentum b + g / d;  p <- p - lr * b;  else p <- p - lr * g / d
/// in the order of operations of torch.optim.RMSprop, in fp32. Source: Hinton, Coursera lecture
/// 6e, 2012; Graves, arXiv:1308.0850 (centered).
struct RmsPropStep : ElementwiseUpdate {
  double alpha = 0.99, epsilon = 1e-8;
  double momentum = 0.0;  ///< 0: no momentum buffer
  bool centered = false;
};
void rmsprop(Queue& q, RmsPropStep const& step);
/// Without momentum and centering, with square_avg in 8 bits (signed map, as in bitsandbytes).
/// @p step has no segments.
void rmsprop_8bit(Queue& q, RmsPropStep const& step, std::vector<QuantizedSegment> const& segments);

/// The fused parts of a step of 1-bit Adam that exchanges signs, before and after the exchange.
struct OneBitAdamStep : ElementwiseUpdate {
  double beta1 = 0.9, epsilon = 1e-8;
};
/// States exp_avg (m) and worker_error (e):  m <- m + (1-beta1) (g - m);  e <- e + m.
/// Traffic 12 B read + 8 B written.
void one_bit_momentum(Queue& q, OneBitAdamStep const& step);
/// States exp_avg (m) and exp_avg_sq (v, unchanged), the gradient is the exchanged momentum x, to
/// which the gradient factor does not apply:  m <- x;  p <- p - lr * weight_decay * p;  p <- p - lr
/// * m / (sqrt(v) + epsilon). Source: Tang et al., "1-bit Adam", ICML'21, algorithm 1, with
/// DeepSpeed's decay. Traffic 16 B read + 12 B written (+2).
void one_bit_adam(Queue& q, OneBitAdamStep const& step);

}  // namespace tessera::kernels
