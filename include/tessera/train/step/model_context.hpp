#pragma once
/// The objects that every pass of the model needs, owned by the run.

#include "tessera/comm/base/collectives.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/model/decoder/causal_lm.hpp"

namespace tessera::train {

struct ModelContext {
  model::CausalLm& model;
  memory::ParamProvider& weights;
  memory::Queue& compute;
  comm::Collectives& comm;

  bool is_root() const { return comm.rank() == 0; }
};

}  // namespace tessera::train
