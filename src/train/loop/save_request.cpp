#include "tessera/train/loop/save_request.hpp"

#include "tessera/train/loop/model_export.hpp"
#include "tessera/train/report/library_versions.hpp"
#include "tessera/train/setup/training_setup.hpp"

namespace tessera::train {

checkpoint::SaveRequest save_request(JobContext const& job, TrainingRun const& run,
                                     std::int64_t step, SaveContent content) {
  auto const& arguments = job.arguments;
  checkpoint::SaveRequest request{
      .directory = arguments.output_dir / "checkpoints",
      .step = step,
      .tokens = run.state.tokens,
      .samples = run.state.samples,
      .zero_stage = static_cast<int>(run.config.stage),
      .run_id = run.state.run_id,
      .plan = run.engine->plan(),
      .units = run.trained.units,
      .keep = static_cast<int>(arguments.save_total_limit.value_or(0)),
      .protected_step = arguments.load_best_model_at_end ? run.state.best.saved_step : -1,
      .skipped_in_a_row = run.state.skipped_in_a_row,
      .model_config = {},
      .resolved_config = {},
      .trainer_state = {},
      .versions = {}};
  int const per_file = arguments.checkpoint_ranks_per_file.count;
  int const writers = request.plan.ranks();
  auto hosts = job.session.hosts();
  hosts.resize(static_cast<std::size_t>(writers));
  request.file_starts = per_file == 0 ? checkpoint::starts_by_host(hosts)
                                      : checkpoint::starts_by_count(writers, per_file);
  if (arguments.save_only_model || run.config.gather_16bit_weights) {
    auto& files = request.model_files.emplace();
    files.dtype = run.config.dtype;
    files.only_model = arguments.save_only_model && content == SaveContent::regular;
    if (job.is_root()) files.extra_files = model_companions(run);
  }
  if (!job.is_root()) return request;
  request.model_config = run.model->config();
  request.resolved_config = resolved_config(job, run);
  request.trainer_state =
      trainer_state({arguments,
                     run.config,
                     *run.sampler,
                     run.schedule,
                     run.state,
                     {run.engine->optimizer_steps(), run.engine->scaler_state()},
                     run.data.identity},
                    step);
  request.versions = library_versions();
  request.frozen = run.frozen;
  return request;
}

}  // namespace tessera::train
