#pragma once
/// The pass context: what a forward or backward pass over one micro-batch gives to every layer.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/core/recompute.hpp"
#include "tessera/kernels/attention/rotary.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::model::detail {

using kernels::Dropout;
using memory::Arena;
using memory::ConstTensorView;
using memory::GradientLease;
using memory::Initializer;
using memory::ParameterSpec;
using memory::Queue;
using memory::TensorView;
using memory::UnitIndex;
using memory::UnitSpec;
using memory::WeightLease;

/// The sites where a model applies dropout. Site, layer and step name a stream of random numbers.
enum class DropoutSite : std::uint64_t {
  embedding,
  attention_weights,
  attention_output,
  mlp_output,
  embedding_noise,
  first_adapter  ///< and the following: of the linear layers of a block
};

/// Returns the place of the random numbers of a pass over rows that begin at row @p first_row of
/// the global batch of @p step. Sites use the bits below it.
inline kernels::DropoutPlace dropout_place(std::uint64_t step, std::uint64_t first_row) {
  return {step << 24, first_row};
}

/// The key/value cache of a pass, and where the new positions are.
struct CachedRows {
  TensorView keys, values;    ///< [layers * rows, kv_heads, capacity, head_dim]
  ConstTensorView first;      ///< [rows] int32: position of each row's first new token
  ConstTensorView lengths;    ///< [rows] int32: positions of each row, the new ones included
  ConstTensorView positions;  ///< [rows, sequence] int32, of the new tokens
  std::int64_t longest = 0;   ///< no row is longer
  bool begins = false;        ///< all rows begin here: new positions see only each other
};

/// Buffers that all blocks use one after the other for activations that backward computes again;
/// empty: each block keeps its own.
struct SharedActivations {
  TensorView normed;     ///< [R, width], what attention or the perceptron gets from a norm
  TensorView activated;  ///< [R, inner], what the perceptron's last layer gets
};

/// The sum at the end of a block, which the norm of the next block computes with its own result.
struct PendingSum {
  TensorView sum;  ///< input of the next block, holds the branch; empty: nothing is pending
  ConstTensorView residual;
  Dropout drop;

  void compute(Queue& q) {
    if (!sum.empty()) kernels::residual_add(q, sum, residual, sum, drop);
    sum = {};
  }
};

class Float8Scales;
class HostCheckpoints;

struct PassContext {
  Queue& compute;
  Arena& arena;  ///< keeps activations that backward needs; a layer rolls back its temporaries
  Dtype dtype;   ///< dtype of matrix products and the activations between them
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  bool dropout_on = false;
  bool adapters_on = true;
  bool fp8 = false;  ///< linear layers multiply in fp8
  Recompute recompute = Recompute::none;
  std::uint64_t dropout_seed = 0;
  std::uint64_t step = 0;
  kernels::DropoutPlace const* dropout_place = nullptr;  ///< staged with the tokens
  /// Tables of the positions of a row, where a model rotates heads
  kernels::RotaryTables rotary{};
  CachedRows const* cache = nullptr;  ///< cache of generation
  ConstTensorView documents{};        ///< [B, T] int32, see kernels::AttentionInput; or empty
  ConstTensorView position_ids{};     ///< [B, T] int32; empty: each row counts from 0
  /// Dtype of weights, gradients, norms and the residual stream; under autocast it is wider than
  /// `dtype`.
  Dtype stream_dtype = dtype;
  SharedActivations shared{};  ///< shared activations of light recomputation
  /// Null: blocks compute the sum at their end themselves.
  PendingSum* pending = nullptr;
  /// Checkpoints of recomputation, where they leave the device
  HostCheckpoints* checkpoints = nullptr;
  /// Scales of weights in fp8 that are kept from pass to pass; null: each product computes its own.
  Float8Scales* float8_scales = nullptr;

  std::int64_t positions() const { return batch * sequence; }

  /// Names the kernels of one part of layer @p layer, for Queue::run_as_graph().
  std::string shape(char const* part, std::size_t layer) const {
    return concat(part, " of layer ", layer, ", ", batch, " x ", sequence,
                  dropout_on ? ", dropout" : "", adapters_on ? "" : ", without adapters",
                  recompute == Recompute::none ? "" : ", recomputing ",
                  recompute == Recompute::none ? "" : name_of(recompute),
                  documents.empty() ? "" : ", documents");
  }

  TensorView allocate(std::int64_t rows, std::int64_t columns) const {
    return arena.allocate(dtype, {rows, columns});
  }
  TensorView allocate_stream(std::int64_t rows, std::int64_t columns) const {
    return arena.allocate(stream_dtype, {rows, columns});
  }
  /// @p view itself, or a copy in @p wanted, which stays in the arena.
  ConstTensorView in_dtype(Dtype wanted, ConstTensorView view) const {
    if (view.empty() || view.dtype() == wanted) return view;
    TensorView const copy = arena.allocate(wanted, {view.numel()});
    kernels::cast(compute, copy, view);
    return view.rank() == 2 ? copy.reshape({view.dim(0), view.dim(1)}) : copy;
  }
  /// @p view, rounded to the dtype of products, in @p wanted: torch.autocast rounds a bias, and
  /// cuBLASLt adds one of the result's dtype in the product.
  ConstTensorView rounded(Dtype wanted, ConstTensorView view) const {
    return in_dtype(wanted, in_dtype(dtype, view));
  }
  /// Parameter @p i, in the dtype of products where the lease has it.
  ConstTensorView copy_or_weight(WeightLease const& weights, std::size_t i) const {
    ConstTensorView const copy = weights.copy(i);
    return copy.empty() || copy.dtype() != dtype ? weights[i] : copy;
  }
  /// Parameter @p i in the dtype of products.
  ConstTensorView operand(WeightLease const& weights, std::size_t i) const {
    return in_dtype(dtype, copy_or_weight(weights, i));
  }
  TensorView allocate_fp32(std::int64_t numel) const {
    return arena.allocate(Dtype::fp32, {numel});
  }

  /// The random numbers of one site. The stream is a function of (step, layer, site); the first
  /// element depends on the row in the global batch. A row's mask is therefore the same for every
  /// split of the batch into ranks and micro-batches. Step and row are in memory, the rest of a
  /// site is the same in all passes.
  Dropout dropout(double p, int layer, DropoutSite site, std::int64_t elements_per_row) const {
    if (!dropout_on || p == 0.0) return {};
    return {.p = static_cast<float>(p),
            .seed = dropout_seed,
            .stream = static_cast<std::uint64_t>(layer) << 4 | static_cast<std::uint64_t>(site),
            .place = dropout_place,
            .elements_per_row = static_cast<std::uint64_t>(elements_per_row)};
  }
};

/// The leases of one unit that a backward pass reads and writes.
struct BackwardLeases {
  WeightLease const& weights;
  GradientLease const& gradients;

  kernels::WriteMode mode() const { return gradients.mode(); }
  /// The gradient of parameter @p i of the unit.
  kernels::GradientTarget gradient(std::size_t i) const { return {gradients[i], mode()}; }
  /// Returns the gradient for kernels that always write one: of a frozen parameter @p numel
  /// elements that nobody reads.
  kernels::GradientTarget gradient_or_unread(PassContext const& pass, std::size_t i,
                                             std::int64_t numel) const {
    if (!gradients[i].empty()) return gradient(i);
    return {pass.arena.allocate(pass.stream_dtype, {numel}), kernels::WriteMode::overwrite};
  }
};

/// Rolls the arena back at the end of a scope.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.rollback(mark_); }
  ArenaScope(ArenaScope const&) = delete;
  ArenaScope& operator=(ArenaScope const&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

/// Appends a parameter to @p unit. @return its position there, by which a layer finds it in leases.
inline std::size_t add_parameter(UnitSpec& unit, std::string name, std::vector<std::int64_t> shape,
                                 Initializer init) {
  ParameterSpec spec;
  spec.name = std::move(name);
  spec.shape = std::move(shape);
  spec.init = init;
  unit.parameters.push_back(std::move(spec));
  return unit.parameters.size() - 1;
}

/// Marks a parameter as an operand of products, so that it may be kept in their dtype as well.
inline std::size_t marked_for_products(UnitSpec& unit, std::size_t at) {
  unit.parameters[at].in_products = true;
  return at;
}

/// Adds a bias or a norm's weight, to which weight decay does not apply.
inline std::size_t add_undecayed_parameter(UnitSpec& unit, std::string name,
                                           std::vector<std::int64_t> shape, Initializer init) {
  std::size_t const at = add_parameter(unit, std::move(name), std::move(shape), init);
  unit.parameters[at].decays = false;
  return at;
}

inline Initializer zeros() { return {Initializer::Kind::zeros, 0.0}; }
inline Initializer ones() { return {Initializer::Kind::ones, 0.0}; }
inline Initializer normal(double stddev) { return {Initializer::Kind::normal, stddev}; }

}  // namespace tessera::model::detail
