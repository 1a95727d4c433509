#include "tessera/train/report/run_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tessera/core/clock.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "tessera/train/report/metrics_file.hpp"
#include "tessera/train/report/used_paths.hpp"
#include "tessera/train/step/stragglers.hpp"

namespace tessera::train {
namespace {

/// Names and values; none where there are no pairs.
std::vector<std::pair<std::string, double>> named(std::optional<PreferenceMetrics> const& of) {
  std::vector<std::pair<std::string, double>> out;
  if (!of) return out;
  for (std::size_t i = 0; i < of->values.size(); ++i)
    out.emplace_back(PreferenceMetrics::names[i], of->values[i]);
  return out;
}

/// The members of a split's results, named as Trainer names them.
ConfigTree results_of(std::string const& split, EvaluationResult const& result) {
  ConfigTree out;
  out.set(split + "_loss", result.loss)
      .set(split + "_runtime", result.seconds)
      .set(split + "_samples", result.samples);
  if (result.accuracy) out.set(split + "_accuracy", *result.accuracy);
  if (result.entropy)
    out.set(split + "_mean_token_accuracy", result.accuracy.value_or(0.0))
        .set(split + "_entropy", *result.entropy);
  for (auto const& [name, value] : named(result.preferences)) out.set(split + "_" + name, value);
  out.set(split + "_samples_per_second", static_cast<double>(result.samples) / result.seconds)
      .set(split + "_steps_per_second", static_cast<double>(result.passes) / result.seconds);
  return out;
}

std::string text_of(PreferenceMetrics const& metrics) {
  std::vector<std::string> out;
  for (auto const& [name, value] : named(metrics))
    out.push_back(fmt::format("{} {:.4f}", name, value));
  return join(out);
}

std::string quality_text(EvaluationResult const& result) {
  if (result.preferences) return text_of(*result.preferences);
  return concat("perplexity ", fixed_text(result.perplexity, 2),
                result.accuracy ? ", accuracy " + fixed_text(*result.accuracy, 4) : "");
}

double padding_share(std::int64_t tokens, std::int64_t positions) {
  return 1.0 - static_cast<double>(tokens) / static_cast<double>(positions);
}

/// Returns the bytes by level without those that are always 0.
ConfigTree bytes_by_level(comm::Traffic const& sent) {
  ConfigTree out;
  out.set("intra_node", static_cast<std::int64_t>(sent.intra_node))
      .set("inter_node", static_cast<std::int64_t>(sent.inter_node));
  if (sent.nccl > 0) out.set("nccl", static_cast<std::int64_t>(sent.nccl));
  return out;
}

}  // namespace

RunLog::RunLog(std::filesystem::path output_dir, Role role)
    : output_dir_(std::move(output_dir)), role_(role) {}

void RunLog::open_metrics(std::int64_t first_step, LastEvaluation last) {
  if (role_ == Role::writer) metrics_.emplace(output_dir_, first_step, last);
}

void RunLog::open_monitors(config::Reporting const& reporting, Monitors::Start const& start) {
  if (role_ == Role::writer) monitors_.emplace(reporting, start);
}

void RunLog::begin_training(TrainingOptions const& options) {
  options_ = options;
  progress_.emplace(role_ == Role::writer ? Progress::Output::log : Progress::Output::none,
                    options.total_steps);
  line_started_ = Clock::now();
  attempt_ = {};
  attempt_.started = line_started_;
}

bool RunLog::line_is_due(std::int64_t step) const {
  if (options_.steps_per_print > 0 && step % options_.steps_per_print == 0) return true;
  if (options_.strategy == config::Interval::no) return false;
  if (options_.strategy == config::Interval::epoch)
    return step % options_.steps_per_epoch == 0 || step == options_.total_steps;
  return attempt_.steps == 1 || step % options_.logging_steps == 0 ||
         step == options_.total_steps || Clock::now() - line_started_ >= options_.longest_silence;
}

void RunLog::write_metrics(StepRecord const& record, double tokens_per_second) {
  if (!metrics_) return;
  auto const& outcome = record.outcome;
  ConfigTree tree;
  tree.set("step", record.step)
      .set("epoch", record.epoch)
      .set("loss", outcome.loss)
      .set("grad_norm", outcome.update.grad_norm);
  tree.set("learning_rate", outcome.learning_rate)
      .set("loss_scale", outcome.update.loss_scale)
      .set("skipped", outcome.update.skipped);
  tree.set("seconds", outcome.seconds)
      .set("data_seconds", outcome.data_seconds)
      .set("tokens_per_second", tokens_per_second)
      .set("tokens", record.tokens);
  if (outcome.sent.total() > 0) tree.set("sent_bytes", bytes_by_level(outcome.sent));
  if (outcome.graphs.total() > 0) tree.set("device_graphs", graph_status(outcome.graphs));
  if (auto const& t = outcome.phases) tree.set("work_seconds", t->work.tree());
  if (!outcome.stragglers.empty()) tree.set("stragglers", tree_of(outcome.stragglers));
  if (options_.counts_input_tokens) tree.set("num_input_tokens_seen", record.tokens);
  if (auto const& e = outcome.examples)
    tree.set("entropy", e->entropy)
        .set("mean_token_accuracy", e->accuracy)
        .set("num_tokens", record.tokens)
        .set("padding", padding_share(e->tokens, e->positions));
  if (outcome.examples)
    for (auto const& [name, value] : named(outcome.examples->preferences)) tree.set(name, value);
  metrics_->write(tree);
}

/// DeepSpeed's values of every step.
void RunLog::write_monitors(StepRecord const& record) {
  if (!monitors_) return;
  auto const& outcome = record.outcome;
  std::vector<Scalar> scalars{{"train_loss", outcome.loss}, {"lr", outcome.learning_rate}};
  if (options_.show_loss_scale) scalars.push_back({"loss_scale", outcome.update.loss_scale});
  if (auto const& t = outcome.phases)
    scalars.insert(scalars.end(), {{"elapsed_time_ms_forward", 1e3 * t->forward},
                                   {"elapsed_time_ms_backward", 1e3 * t->backward},
                                   {"elapsed_time_ms_step", 1e3 * t->step}});
  monitors_->samples(record.samples, scalars);
}

/// The line, and the Trainer's values for TensorBoard.
void RunLog::write_line(StepRecord const& record, double tokens_per_second) {
  auto const& outcome = record.outcome;
  double const loss = losses_since_line_ > 0
                          ? loss_since_line_ / static_cast<double>(losses_since_line_)
                          : outcome.loss;
  progress_->log_line({record.step, loss, outcome.update.grad_norm, outcome.learning_rate,
                       tokens_per_second, outcome.update.loss_scale, options_.show_loss_scale,
                       record.skipped_steps});
  if (auto const& t = outcome.phases)
    info(
        fmt::format("time of step {} (ms): data {:.2f} | forward {:.2f} | backward {:.2f} | "
                    "step {:.2f}: {}",
                    record.step, 1e3 * t->data, 1e3 * t->forward, 1e3 * t->backward, 1e3 * t->step,
                    t->work.text()));
  auto const& examples = examples_since_line_;
  if (outcome.examples)
    info(fmt::format("entropy {:.4f}, mean_token_accuracy {:.4f}, num_tokens {}, {:.1f} % padding",
                     examples.entropy / examples.micro_steps,
                     examples.accuracy / examples.micro_steps, with_commas(record.tokens),
                     100.0 * padding_share(examples.tokens, examples.positions)));
  auto const preferences = examples.preferences_mean();
  if (preferences) info(text_of(*preferences));
  if (!monitors_) return;
  std::vector<Scalar> scalars{{"train/loss", loss},
                              {"train/grad_norm", outcome.update.grad_norm},
                              {"train/learning_rate", outcome.learning_rate},
                              {"train/epoch", record.epoch}};
  if (outcome.examples)
    scalars.insert(scalars.end(),
                   {{"train/entropy", examples.entropy / examples.micro_steps},
                    {"train/mean_token_accuracy", examples.accuracy / examples.micro_steps},
                    {"train/num_tokens", static_cast<double>(record.tokens)}});
  for (auto const& [name, value] : named(preferences)) scalars.push_back({"train/" + name, value});
  if (options_.counts_input_tokens)
    scalars.push_back({"train/num_input_tokens_seen", static_cast<double>(record.tokens)});
  monitors_->steps(record.step, scalars);
}

void RunLog::ExampleSums::add(ExampleMetrics const& of_step) {
  auto const count = static_cast<double>(of_step.predictions.size());
  entropy += of_step.entropy * count;
  accuracy += of_step.accuracy * count;
  micro_steps += count;
  tokens += of_step.tokens;
  positions += of_step.positions;
  if (!of_step.preferences) return;
  if (!preferences) preferences.emplace();
  for (std::size_t i = 0; i < preferences->values.size(); ++i)
    preferences->values[i] += of_step.preferences->values[i] * count;
}

std::optional<PreferenceMetrics> RunLog::ExampleSums::preferences_mean() const {
  auto out = preferences;
  if (out)
    for (double& value : out->values) value /= micro_steps;
  return out;
}

void RunLog::step(StepRecord const& record) {
  auto const& outcome = record.outcome;
  std::int64_t const tokens = outcome.tokens_read(options_.tokens_per_sample);
  tokens_since_line_ += tokens;
  if (std::isfinite(outcome.loss) || !options_.filter_nonfinite) {
    loss_since_line_ += outcome.loss;
    ++losses_since_line_;
  }
  ++steps_since_line_;
  ++attempt_.steps;
  attempt_.skipped += outcome.update.skipped ? 1 : 0;
  attempt_.tokens += tokens;
  if (auto const& e = outcome.examples) examples_since_line_.add(*e);
  attempt_.last_loss = outcome.loss;
  if (std::isfinite(outcome.loss)) {
    attempt_.loss_sum += outcome.loss;
    ++attempt_.finite_losses;
  }
  attempt_.seconds += outcome.seconds;
  double const rate = static_cast<double>(tokens_since_line_) / seconds_since(line_started_);
  write_metrics(record, rate);
  write_monitors(record);
  had_line_ = line_is_due(record.step);
  if (!had_line_) return progress_->update_status_line(record.step);
  write_line(record, rate);
  loss_since_line_ = 0.0;
  steps_since_line_ = losses_since_line_ = tokens_since_line_ = 0;
  examples_since_line_ = {};
}

void RunLog::end_step() {
  if (had_line_) line_started_ = Clock::now();
}

void RunLog::evaluation(std::int64_t step, double epoch, EvaluationResult const& result) {
  if (role_ == Role::silent) return;
  info(fmt::format("evaluation after step {}: eval_loss {}, {} ({} samples, {:.1f} s)", step,
                   fixed_text(result.loss, 4), quality_text(result), result.samples,
                   result.seconds));
  if (metrics_) {
    ConfigTree line;
    line.set("step", step)
        .set("epoch", epoch)
        .set("eval_loss", result.loss)
        .set("perplexity", result.perplexity);
    if (result.accuracy) line.set("eval_accuracy", *result.accuracy);
    if (result.entropy) line.set("eval_entropy", *result.entropy);
    for (auto const& [name, value] : named(result.preferences)) line.set("eval_" + name, value);
    metrics_->write(line);
  }
  if (monitors_) {
    std::vector<Scalar> scalars{{"eval/loss", result.loss},
                                {"eval/perplexity", result.perplexity},
                                {"eval/runtime", result.seconds}};
    if (result.accuracy) scalars.push_back({"eval/accuracy", *result.accuracy});
    if (result.entropy) scalars.push_back({"eval/entropy", *result.entropy});
    for (auto const& [name, value] : named(result.preferences))
      scalars.push_back({"eval/" + name, value});
    monitors_->steps(step, scalars);
  }
  auto results = results_of("eval", result);
  results.set("epoch", epoch).set("perplexity", result.perplexity);
  write_results(output_dir_, "eval", results);
}

void RunLog::samples(std::int64_t step, std::vector<ConfigTree> const& records) {
  if (role_ == Role::silent) return;
  for (std::size_t i = 0; i < records.size(); ++i) {
    auto const &prompt = records[i].at("prompt"), &text = records[i].at("text");
    info(fmt::format("sample after step {}: {} {}", step, prompt.dump(), text.dump()));
    if (monitors_)
      monitors_->text(step, fmt::format("eval/samples/{}", i),
                      prompt.as_string() + text.as_string());
  }
  if (metrics_)
    metrics_->write(
        ConfigTree::object().set("step", step).set("samples", ConfigTree::Array(records)));
}

void RunLog::prediction(EvaluationResult const& result) {
  if (role_ == Role::silent) return;
  info(fmt::format("prediction: predict_loss {}, {} ({} samples, {:.1f} s)",
                   fixed_text(result.loss, 4), quality_text(result), result.samples,
                   result.seconds));
  auto results = results_of("predict", result);
  results.set("predict_perplexity", result.perplexity);
  write_results(output_dir_, "predict", results);
}

void RunLog::checkpoint(std::int64_t step, checkpoint::SavedCheckpoint const& saved,
                        CheckpointKind kind) {
  if (role_ == Role::silent) return;
  if (metrics_)
    metrics_->write(ConfigTree()
                        .set("step", step)
                        .set("checkpoint", saved.directory.filename().string())
                        .set("save_seconds", saved.seconds)
                        .set("save_stall_seconds", saved.stall_seconds)
                        .set("save_bytes", saved.bytes));
  info(fmt::format("saved {}{} ({}, {:.2f} s, blocked training for {:.2f} s)",
                   kind == CheckpointKind::model_only ? "the model only in " : "",
                   saved.directory.string(), human_bytes(saved.bytes), saved.seconds,
                   saved.stall_seconds));
}

void RunLog::training_results(TrainingEnd const& end) {
  if (role_ == Role::silent) return;
  ConfigTree results;
  results.set("epoch", end.epoch).set("train_loss", attempt_.mean_loss());
  results.set("train_runtime", end.seconds).set("train_samples", end.samples);
  results.set("train_samples_per_second",
              static_cast<double>(end.steps * end.train_batch_size) / end.seconds);
  results.set("train_steps_per_second", static_cast<double>(end.steps) / end.seconds);
  write_results(output_dir_, "train", results);
  if (end.skipped_steps > 0)
    warning(fmt::format("{} of {} steps skipped: gradients were not finite", end.skipped_steps,
                        end.total_steps));
}

void RunLog::summary() {
  if (role_ == Role::silent || attempt_.steps == 0) return;
  auto const& a = attempt_;
  info(fmt::format(
      "trained {}{} in {}: {} tokens, {:.0f} tokens/s, loss {} in the last step, {} on average",
      counted(a.steps, "step"), a.skipped > 0 ? fmt::format(" ({} skipped)", a.skipped) : "",
      human_duration(seconds_since(a.started)), with_commas(a.tokens),
      static_cast<double>(a.tokens) / a.seconds, fixed_text(a.last_loss, 4),
      fixed_text(a.mean_loss(), 4)));
  if (auto const files = files_text(); !files.empty())
    info("files in " + output_dir_.string() + ": " + files);
}

/// Checkpoints, and the files of the model and the results.
std::string RunLog::files_text() const {
  namespace fs = std::filesystem;
  std::vector<std::string> out;
  std::error_code ignored;
  std::int64_t checkpoints = 0, model_bytes = 0;
  for (auto const& entry : fs::directory_iterator(output_dir_ / "checkpoints", ignored))
    checkpoints += entry.path().filename().string().starts_with("step_") ? 1 : 0;
  if (checkpoints > 0) out.push_back("checkpoints (" + std::to_string(checkpoints) + ")");
  std::vector<std::string> results;
  for (auto const& entry : fs::directory_iterator(output_dir_, ignored)) {
    auto const name = entry.path().filename().string();
    if (name.ends_with(".safetensors"))
      model_bytes += static_cast<std::int64_t>(entry.file_size(ignored));
    else if (name == "metrics.jsonl" || name.ends_with("_results.json"))
      results.push_back(name);
  }
  if (model_bytes > 0) out.push_back("the model (" + human_bytes(model_bytes) + ")");
  std::sort(results.begin(), results.end());
  out.insert(out.end(), results.begin(), results.end());
  return join(out);
}

void RunLog::end_run() {
  if (monitors_) monitors_->end();
}

void RunLog::clear_status_line() {
  if (progress_) progress_->clear();
}

void RunLog::info(std::string const& message) {
  clear_status_line();
  if (role_ == Role::writer) log::info(message);
}

void RunLog::warning(std::string const& message) {
  clear_status_line();
  if (role_ == Role::writer) log::warning(message);
}

void RunLog::error(std::string const& message) {
  clear_status_line();
  if (role_ == Role::writer) log::error(message);
}

}  // namespace tessera::train
