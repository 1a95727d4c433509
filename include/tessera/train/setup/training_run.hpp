#pragma once
/// The parts of a run, as the setup made them.

#include <memory>
#include <optional>
#include <string>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/compose/mesh.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/data/sampling/sampler.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/model/decoder/causal_lm.hpp"
#include "tessera/optim/schedule.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/train/report/status_file.hpp"
#include "tessera/train/setup/model_source.hpp"
#include "tessera/train/setup/training_data.hpp"
#include "tessera/train/step/model_context.hpp"
#include "tessera/train/step/training_state.hpp"
#include "tessera/zero/engine/engine.hpp"
#include "tessera/zero/layout/parameter_subset.hpp"

namespace tessera::train {

class RunLock;

/// What the program gives a job; all of it outlives the run.
struct JobContext {
  config::TrainingArguments const& arguments;
  topology::MpiSession const& session;
  comm::Collectives& comm;
  StatusFile& status;

  bool is_root() const { return comm.rank() == 0; }
};

/// Owned parts; those below use those above.
struct TrainingRun {
  std::unique_ptr<RunLock> lock;  ///< lock of the output directory, on rank 0
  ModelSource source;
  config::ResolvedConfig config;
  std::unique_ptr<comm::Mesh> mesh;  ///< mesh of all ranks
  std::unique_ptr<memory::Queue> compute;
  std::unique_ptr<model::CausalLm> model;
  /// Trained part of the model: the parameters of the engine's plan
  zero::ParameterSubset trained;
  ConfigTree frozen;  ///< as checkpoint::Manifest::frozen
  TrainingData data;
  std::unique_ptr<zero::Weights> weights;
  zero::Engine* engine = nullptr;        ///< with --do_train the object of `weights`; else null
  std::optional<data::Sampler> sampler;  ///< with --do_train
  optim::Schedule schedule;              ///< with --do_train
  TrainingState state;
  std::int64_t resumed_step = -1;  ///< step of the checkpoint that was restored; -1: none
  std::int64_t saved_step = -1;    ///< step of the newest checkpoint on disk; -1: none
  std::string own_checkpoint;      ///< its name, if it is of this run directory; rank 0
  bool starts_over = false;        ///< --overwrite_output_dir without a checkpoint to resume from

  ModelContext model_context() const { return {*model, *weights, *compute, *mesh}; }
};

}  // namespace tessera::train
