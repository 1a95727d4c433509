#pragma once
/// How model code gets its weights and returns its gradients, without knowing the ZeRO stage.
///
/// A model is a list of units (embedding, each transformer block, head). A unit's parameters are in
/// one flat, padded buffer. The model acquires a unit's weights for a scope and writes the unit's
/// gradients into a buffer of the provider. The provider all-gathers, releases and reduce-scatters
/// at the ends of those scopes.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tessera/memory/queue.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::memory {

/// Index in the model's list of units: 0 is the embedding.
enum class UnitIndex : int {};

constexpr UnitIndex first_unit{0};
constexpr std::size_t position(UnitIndex unit) { return static_cast<std::size_t>(unit); }
constexpr UnitIndex& operator++(UnitIndex& unit) {
  return unit = UnitIndex(static_cast<int>(unit) + 1);
}
inline std::ostream& operator<<(std::ostream& out, UnitIndex unit) {
  return out << static_cast<int>(unit);
}

/// Initial values of a parameter when training from scratch.
struct Initializer {
  /// Distribution of the values.
  enum class Kind { zeros, ones, normal, uniform };
  Kind kind = Kind::zeros;
  double stddev = 0.0;         ///< standard deviation of `normal`, mean 0
  double bound = 0.0;          ///< bound of `uniform`, in [-bound, bound)
  std::int64_t zero_row = -1;  ///< row that starts at zero, as nn.Embedding's padding_idx; -1: none
};

/// A parameter of a model.
struct ParameterSpec {
  std::string name;  ///< Hugging Face name, e.g. "transformer.h.0.attn.c_attn.weight"
  std::vector<std::int64_t> shape;  ///< at most 4 dimensions
  Initializer init;
  bool decays = true;  ///< weight decay applies (false: biases and norms, see transformers'
                       ///< get_decay_parameter_names)
  std::vector<std::string>
      aliases;               ///< further names of the same tensor (tied head: "lm_head.weight")
  bool trains = true;        ///< false: frozen, without gradient, master weights and states
  bool is_adapter = false;   ///< part of an adapter, not of the model that it adapts
  bool in_products = false;  ///< an operand of matrix products, or their bias

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (auto d : shape) n *= d;
    return n;
  }
};

/// A unit of a model: the parameters that are gathered and released together.
struct UnitSpec {
  std::string name;                       ///< "embedding", "block.0", ..., "head"
  std::vector<ParameterSpec> parameters;  ///< in the order of the flat buffer
};

/// What the units are acquired for.
enum class Pass { training, evaluation };

/// Weights of one unit for a scope. Move-only; the destructor releases them.
class WeightLease {
 public:
  WeightLease() = default;
  /// @param copies of the parameters, in the dtype of products; or none
  /// @param versions of the parameters; none: they may change at any time
  WeightLease(std::vector<ConstTensorView> parameters, std::function<void()> release,
              std::vector<ConstTensorView> copies = {}, std::vector<std::uint64_t> versions = {})
      : parameters_(std::move(parameters)),
        copies_(std::move(copies)),
        versions_(std::move(versions)),
        release_(std::move(release)) {}
  WeightLease(WeightLease&& other) noexcept { swap(other); }
  WeightLease& operator=(WeightLease&& other) noexcept {
    WeightLease(std::move(other)).swap(*this);
    return *this;
  }
  ~WeightLease() {
    if (release_) release_();
  }
  /// Parameter @p i of the unit's specification, with its true shape.
  ConstTensorView operator[](std::size_t i) const { return parameters_[i]; }
  std::size_t size() const { return parameters_.size(); }
  /// The copy of parameter @p i in the dtype of products; empty: there is none.
  ConstTensorView copy(std::size_t i) const {
    return i < copies_.size() ? copies_[i] : ConstTensorView{};
  }
  /// A parameter has the same values while it has the same version. Versions are not used again in
  /// a process. 0: it may change at any time.
  std::uint64_t version(std::size_t i) const { return i < versions_.size() ? versions_[i] : 0; }

 private:
  void swap(WeightLease& other) noexcept {
    parameters_.swap(other.parameters_);
    copies_.swap(other.copies_);
    versions_.swap(other.versions_);
    release_.swap(other.release_);
  }
  std::vector<ConstTensorView> parameters_, copies_;
  std::vector<std::uint64_t> versions_;
  std::function<void()> release_;
};

/// Gradient buffers of one unit for a scope.
class GradientLease {
 public:
  /// @param mode add: the buffers hold gradients already
  GradientLease(std::vector<TensorView> parameters, WriteMode mode)
      : parameters_(std::move(parameters)), mode_(mode) {}
  /// Returns the gradient of parameter @p i of the unit's specification; empty for a frozen one.
  TensorView operator[](std::size_t i) const { return parameters_[i]; }
  WriteMode mode() const { return mode_; }
  bool accumulate() const { return mode_ == WriteMode::add; }

 private:
  std::vector<TensorView> parameters_;
  WriteMode mode_;
};

/// What a pass without gradients needs: evaluation, generation.
class WeightProvider {
 public:
  virtual ~WeightProvider() = default;

  /// Sets the prefetch order: the units that will be acquired, in this order. Called at the start
  /// of a forward and backward pass, or of an evaluation.
  virtual void begin_pass(Pass pass, std::vector<UnitIndex> acquisitions) = 0;

  /// Weights of @p unit for work enqueued on @p compute from now on.
  /// @pre called in the order that begin_pass() has set
  virtual WeightLease acquire(UnitIndex unit, Queue& compute) = 0;
};

/// What a training pass needs. The base is virtual, so that a class which has weights for inference
/// can also take gradients.
class ParamProvider : public virtual WeightProvider {
 public:
  /// Gradient buffer of @p unit. A unit may be asked for several times per micro-step (a tied
  /// embedding gets contributions from the head and from itself): from the second time on the lease
  /// is in mode add. Each contribution writes all parameters of the unit. In a unit with
  /// tied parameters (those with aliases) it may write the tied ones only: the provider zeroes the
  /// others beforehand, so that the mode holds for every parameter of the lease. Frozen parameters
  /// have no gradient; a contribution to them only is left out.
  virtual GradientLease gradient(UnitIndex unit, Queue& compute) = 0;

  /// All contributions of this micro-step to @p unit are enqueued on @p compute; its reduction may
  /// start after them.
  virtual void gradient_complete(UnitIndex unit, Queue& compute) = 0;
};

}  // namespace tessera::memory
