#include "tessera/train/loop/model_export.hpp"

#include <algorithm>

#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/checkpoint/save/save_model.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/train/loop/save_request.hpp"
#include "tessera/zero/layout/saved_states.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

checkpoint::SaveModelRequest request_of(JobContext const& job, TrainingRun const& run) {
  bool const is_adapter = run.source.lora.has_value();
  checkpoint::SaveModelRequest request{
      .directory = job.arguments.output_dir,
      .plan = run.engine->plan(),
      .units = is_adapter ? run.trained.units : run.model->units()};
  if (run.config.gather_16bit_weights) request.dtype = run.config.dtype;
  if (is_adapter) {
    request.what = checkpoint::WeightsOf::adapter;
    request.model_config = run.frozen.at("adapter_config");
  } else {
    request.model_config = run.model->config();
    request.frozen_plan = &run.engine->frozen_plan();
    request.frozen_shard = [&engine = *run.engine](zero::UnitIndex unit) {
      return engine.frozen_shard(unit);
    };
  }
  if (job.is_root()) request.extra_files = model_companions(run);
  return request;
}

/// ", tokenizer.json, chat_template.jinja"
std::string names_of(std::vector<fs::path> const& files) {
  std::string out;
  for (auto const& file : files) out += ", " + checkpoint::companion_name(file).string();
  return out;
}

}  // namespace

std::vector<fs::path> model_companions(TrainingRun const& run) {
  using checkpoint::Companions;
  auto files = run.data.tokenizer ? run.data.tokenizer->files() : std::vector<fs::path>{};
  auto const add = [&](fs::path const& directory, Companions which) {
    for (auto& file : checkpoint::companion_files(directory, which))
      if (std::ranges::find(files, file.filename(), &fs::path::filename) == files.end())
        files.push_back(std::move(file));
  };
  if (!files.empty()) add(files.front().parent_path(), Companions::tokenizer);
  if (!run.source.weights_directory.empty()) add(run.source.weights_directory, Companions::model);
  return files;
}

void require_room(JobContext const& job, TrainingRun const& run) {
  auto const& arguments = job.arguments;
  std::int64_t const first = run.state.first_step;
  bool const saves =
      arguments.save_strategy != config::Interval::no && first <= run.sampler->total_steps();
  auto const save = save_request(job, run, first, SaveContent::regular);
  checkpoint::require_room(request_of(job, run), saves ? &save : nullptr,
                           checkpoint::layers_of(zero::saved_states(run.engine->config())),
                           job.comm);
}

void export_model(JobContext const& job, TrainingRun const& run, std::int64_t last_saved_step) {
  auto views = run.engine->state();
  auto const weights = std::find_if(views.begin(), views.end(), [](auto const& view) {
    return view.name == optim::master_weights_name;
  });
  try {
    auto const request = request_of(job, run);
    auto const saved = checkpoint::save_model(request, *weights, job.comm);
    if (job.is_root() && !saved.nonfinite.empty())
      log::warning(concat("values of the model in ", request.directory.string(),
                          " are beyond the range of ", name_of(request.dtype), ": ",
                          checkpoint::text_of(saved.nonfinite)));
  } catch (IoError const& e) {
    throw IoError(concat("the trained model could not be written: ", e.what(),
                         "; then run the same command again: it continues ",
                         last_saved_step < 0 ? "from the start, for no checkpoint was saved"
                                             : concat("from step ", last_saved_step)));
  }
  if (job.is_root())
    log::info(concat("wrote the ", run.source.lora ? "adapter" : "model", " to ",
                     job.arguments.output_dir.string(), " (",
                     run.source.lora ? "adapter_config.json" : "config.json", ", safetensors",
                     names_of(model_companions(run)), ")"));
}

}  // namespace tessera::train
