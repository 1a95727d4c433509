#pragma once
/// Scales of weights that multiply in fp8. They are computed once per version of the weights: the
/// products of later passes and micro-steps do not look for the largest value again.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "layers/pass.hpp"
#include "tessera/kernels/gemm/float8.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::model::detail {

/// Enqueues the scale of the values that @p in has here and now.
void compute_float8_scale(PassContext const& pass, kernels::Float8Scale const& scale, Float8 format,
                          ConstTensorView in);
/// Returns that scale in the arena.
kernels::Float8Scale float8_scale(PassContext const& pass, Float8 format, ConstTensorView in);

/// A weight, and which values it has.
struct VersionedWeight {
  std::string const& name;  ///< unique in the model
  ConstTensorView values;
  std::uint64_t version = 0;  ///< see memory::WeightLease::version()
};

class Float8Scales {
 public:
  /// The scale of @p weight in e4m3 for later work of the queue. It is computed where there is none
  /// of this version, in a buffer that stays at its address.
  kernels::Float8Scale of(PassContext const& pass, VersionedWeight const& weight);
  /// All that of() has asked for since the last call is enqueued. To be called after work that
  /// Queue::run_as_graph() may begin twice.
  void commit();

 private:
  struct Entry {
    memory::Buffer buffer;
    std::uint64_t version = 0, enqueued = 0;  ///< the second one until commit()
  };
  std::map<std::string, Entry> entries_;
  std::vector<Entry*> pending_;
};

}  // namespace tessera::model::detail
