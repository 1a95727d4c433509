#include "tessera/train/setup/reference_model.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/core/text.hpp"
#include "tessera/data/sampling/batch_loader.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/train/setup/engine_config.hpp"
#include "tessera/train/step/preference.hpp"
#include "tessera/train/step/training_step.hpp"

namespace tessera::train {

ReferenceModel::ReferenceModel(JobContext const& job, TrainingRun& run) : run_(run) {
  auto const& a = job.arguments;
  bool const named = !a.ref_model_name_or_path.empty();
  bool const has_start =
      run.source.lora ? reference_is_part_of_model(a, run.source.lora)
                      : !named && a.precompute_ref_log_probs && run.resumed_step < 0 && a.do_train;
  std::string text = "the model before the training, with weights of its own";
  if (has_start) {
    use_adapters_ = !run.source.lora;
    text = use_adapters_ ? "the model before the training" : "the model without its adapters";
  } else {
    make_weights(job, run);
    use_adapters_ = !run.source.lora || !run.source.adapter_directory.empty();
    if (named) text = a.ref_model_name_or_path.string();
  }
  if (!job.is_root()) return;
  std::string const memory =
      weights_ ? concat(": ", human_bytes(static_cast<std::int64_t>(weights_->memory().weights)),
                        " of weights per rank")
               : "";
  log::info(concat("reference model: ", text, memory,
                   a.precompute_ref_log_probs ? ", until its log-probabilities are known" : ""));
}

void ReferenceModel::make_weights(JobContext const& job, TrainingRun& run) {
  auto const& a = job.arguments;
  ModelSource source = run.source;
  if (!a.ref_model_name_or_path.empty()) {
    auto arguments = a;
    arguments.model_name_or_path = a.ref_model_name_or_path;
    arguments.tokenizer_name = run.source.tokenizer_directory;
    arguments.config_name.clear();
    arguments.config_overrides.clear();
    arguments.adapter.clear();
    arguments.use_peft_lora = false;
    source = find_model(arguments, job.comm);
    model_ = model::make_model(source.config, model_options(run.config));
    TESSERA_VALIDATE(model_->vocabulary_size() == run.model->vocabulary_size(), ConfigError,
                     "the reference model ", a.ref_model_name_or_path.string(), " has ",
                     model_->vocabulary_size(), " tokens and the model ",
                     run.model->vocabulary_size(), "; both must have the same tokenizer");
  }
  auto const& units = (model_ ? *model_ : *run.model).units();
  weights_ = zero::make_weights(reference_config(run.config), units, *run.mesh, *run.compute);
  weights_->initialize(
      initial_weights(source, units, static_cast<std::uint64_t>(a.seed), job.session, job.comm));
}

std::vector<double> ReferenceModel::log_probabilities(model::Batch batch) const {
  RowLogProbabilities rows(batch.rows);
  batch.row_loss = &rows;
  batch.use_adapters = use_adapters_;
  batch.metrics = nullptr;
  batch.hits = nullptr;
  memory::WeightProvider& weights = weights_ ? *weights_ : *run_.weights;
  (void)(model_ ? *model_ : *run_.model).evaluate(batch, weights, *run_.compute).value();
  return rows.sums;
}

std::vector<double> ReferenceModel::log_probabilities(data::TokenSequences const& sequences,
                                                      std::int64_t samples) const {
  std::int64_t const count = sequences.count(), rows = sequences.layout().per_sample,
                     step = samples * run_.mesh->data_size();
  std::vector<double> out(static_cast<std::size_t>(count * rows));
  std::int64_t begin = samples * run_.mesh->data_coordinate();
  for (std::int64_t pass = 0; pass < ceil_divide(count, step); ++pass, begin += step) {
    std::vector<std::int64_t> indices(
        static_cast<std::size_t>(std::clamp<std::int64_t>(count - begin, 0, samples)));
    bool const idle = indices.empty();  // takes part in the collectives
    if (idle)
      indices.push_back(0);
    else
      std::iota(indices.begin(), indices.end(), begin);
    auto const loaded = data::read_batch(sequences, std::move(indices));
    auto const values = log_probabilities(batch_of(loaded));
    if (!idle) std::ranges::copy(values, out.begin() + begin * rows);
  }
  comm::all_reduce_values(run_.model_context().data_ranks(), out, comm::ReduceOp::sum);
  return out;
}

}  // namespace tessera::train
