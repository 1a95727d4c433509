#pragma once
/// Whether a run computes on GPUs, and on which one this rank does.

#include "tessera/comm/collectives.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace tessera::train {

/// Ordinal of this rank's device among those that the process sees, or -1: all ranks compute on the
/// host. With --device auto that is said in one line when this build has CUDA. Collective.
/// @throws ConfigError on every rank when --device cuda is given and a rank has no device
int choose_device(config::TrainingArguments const& arguments, topology::MpiSession const& session,
                  comm::Collectives& comm);

}  // namespace tessera::train
