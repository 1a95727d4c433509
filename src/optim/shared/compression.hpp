#pragma once
/// Optimizers that exchange signs instead of gradients after their warm-up (OneBitAdam,
/// OneBitLamb): an interface that such an Optimizer implements too.

#include <cstdint>

#include "tessera/optim/matrix_optimizer.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::optim {

/// How the ranks communicate in a step.
struct StepCommunication {
  bool reduces_gradients = true;  ///< false: the update needs a compressed all-reduce
  char const* phase = "";         ///< for log and status: "warm-up", "compressed"
};

/// A step that does not reduce gradients: the engine calls advance() for each unit, sums the worker
/// errors over the ranks by a compressed all-reduce, and calls complete() with the result. Other
/// steps are those of Optimizer::update(). The host knows that the step is not skipped.
class Compression {
 public:
  virtual ~Compression() = default;
  virtual StepCommunication communication(std::int64_t step) const = 0;
  /// Elements that share a scale.
  enum class Scales { per_parameter, per_unit };
  virtual Scales scales() const { return Scales::per_parameter; }
  /// Enqueues what precedes the exchange, and adds the values to exchange to the state
  /// "worker_error".
  virtual void advance(memory::Queue& queue, Segments const& segments,
                       StepControl const& control) const = 0;
  /// Enqueues the rest of the update. The gradients are not used any more.
  /// @param exchanged the compressed mean over the ranks
  virtual void complete(memory::Queue& queue, Segments const& segments, StepControl const& control,
                        Directions const& exchanged) const = 0;
};

/// The states of such an optimizer that hold what compression has lost. They are the last
/// element-wise ones.
inline constexpr char const* worker_error_name = "worker_error";
inline constexpr char const* server_error_name = "server_error";

/// Null for other optimizers.
inline Compression const* compression_of(Optimizer const& optimizer) {
  return dynamic_cast<Compression const*>(&optimizer);
}

}  // namespace tessera::optim
