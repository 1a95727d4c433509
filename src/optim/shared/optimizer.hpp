#pragma once
/// The update of parameters from gradients, and the table of all optimizers.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/optim/optimizer_spec.hpp"

namespace tessera::optim {

/// A run of one parameter's elements in a segment. Rules that need a complete tensor (norms of
/// Lamb, factors of Adafactor, matrices of Muon) find its shape and the run's position here.
struct ParameterRun {
  std::vector<std::int64_t> shape;    ///< shape of the complete parameter
  std::int64_t parameter_numel = 0;   ///< size of the complete parameter
  std::int64_t parameter_offset = 0;  ///< first element of the run in the parameter
  std::int64_t segment_offset = 0;    ///< first element of the run in the segment
  std::int64_t numel = 0;
  std::string name = {};  ///< name of the parameter
  bool operator==(ParameterRun const&) const = default;
};

/// Consecutive elements of one parameter group in the region that this rank updates. Elements
/// between two runs are padding: their values and gradients are zero and must stay zero.
struct Segment {
  void* master = nullptr;     ///< weights of master_dtype, updated
  std::vector<void*> states;  ///< parallel to OptimizerSpec::states, at the segment's first
                              ///< element or its code; null for states that are not element-wise
  void const* gradient = nullptr;
  void* weights_out = nullptr;  ///< 16-bit weights written from the updated master; null when the
                                ///< master is the weight
  std::int64_t numel = 0;
  std::size_t group = 0;  ///< index in OptimizerSpec::groups
  std::vector<ParameterRun> parameters = {};
  /// States of each of `parameters`, parallel to OptimizerSpec::states: the parameter's first value
  /// of the states of which every rank holds all values; the run's first value of states per chunk;
  /// the run's first fp32 value of states in codes if the parameter keeps fp32 states; else null.
  std::vector<std::vector<void*>> parameter_states = {};
};

struct Segments {
  std::vector<Segment> list;
  Dtype gradient_dtype = Dtype::fp32;
  Dtype weights_dtype = Dtype::fp32;  ///< dtype of weights_out
  Dtype master_dtype = Dtype::fp32;   ///< 16 bits: of element-wise optimizers only
};

/// A step as the engine decided it.
struct StepControl {
  std::int64_t step = 1;  ///< 1, 2, ...; skipped steps do not count
  double learning_rate = 0.0;
  /// Factor of the gradients and the skip flag, in the memory space of the queue: kernels read it
  /// when they run.
  kernels::GradientControl const* gradients = nullptr;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual OptimizerSpec const& spec() const = 0;
  /// Enqueues the update of @p segments. On a skipped step it changes nothing. The arguments may be
  /// destroyed after the call; the memory they point to must outlive the kernels.
  virtual void update(memory::Queue& queue, Segments const& segments,
                      StepControl const& control) const = 0;
};

/// Whether the update of an element needs its own values only, so that master weights and states
/// may have 16 bits.
bool is_elementwise(OptimizerSpec const& spec);
/// Whether it exchanges signs instead of gradients in some steps, see compression.hpp.
bool is_compressing(OptimizerSpec const& spec);

/// A hyperparameter of an algorithm: its default and the values that it accepts.
struct HyperparameterRule {
  enum class Range { any, flag, not_negative, positive, unit };  ///< unit: [0, 1)
  char const* name;
  double value;  ///< default
  Range range;
  char const* meaning;      ///< one line, for the reference pages
  bool is_derived = false;  ///< from other keys, without a key or argument of its own
};

/// What configurations need to know of an optimizer.
struct OptimizerInfo {
  char const* algorithm;                        ///< DeepSpeed's optimizer.type
  std::vector<std::string> hugging_face_names;  ///< names of --optim
  std::vector<HyperparameterRule> hyperparameters;
  std::vector<std::string> states = {};    ///< names of all states that it may keep
  double default_rate = 1e-3;              ///< DeepSpeed's, where the optimizer section has no lr
  char const* not_in_deepspeed = nullptr;  ///< why optimizer.type refuses the name
};

/// Every optimizer that make_spec() knows.
std::vector<OptimizerInfo> optimizers();
/// @throws ConfigError listing the known ones
OptimizerInfo optimizer_info(std::string const& algorithm);

/// @throws ConfigError as make_spec(); InternalError when the states are not those of the algorithm
std::unique_ptr<Optimizer> make_optimizer(OptimizerSpec const& spec);

}  // namespace tessera::optim
