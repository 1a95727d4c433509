#include "tessera/data/sampling/batch_loader.hpp"

#include <algorithm>
#include <utility>

#include "tessera/core/process.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::data {
namespace {

/// Appends an example to a row that begins at @p row_begin of the batch.
void append_example(LoadedBatch& batch, std::span<std::int32_t const> tokens,
                    std::size_t row_begin) {
  std::size_t start = batch.ids.size() - row_begin;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    bool const begins = i == 0 || (tokens[i] & begins_document) != 0;
    if (begins) start = batch.ids.size() - row_begin;
    std::int32_t const id = tokens[i] & token_id_bits;
    batch.ids.push_back(id);
    batch.labels.push_back(begins || (tokens[i] & not_predicted) != 0 ? -1 : id);
    batch.documents.push_back(static_cast<std::int32_t>(start));
  }
}

/// The padding of a row is a document of its own.
void pad_row(LoadedBatch& batch, std::size_t row_begin) {
  std::size_t const end = row_begin + static_cast<std::size_t>(batch.sequence);
  auto const start = static_cast<std::int32_t>(batch.ids.size() - row_begin);
  batch.ids.resize(end, 0);
  batch.labels.resize(end, -1);
  batch.documents.resize(end, start);
}

void read_examples(TokenSequences const& sequences, LoadedBatch& batch) {
  RowLayout const& layout = sequences.layout();
  std::int64_t longest = 0;
  std::vector<std::span<std::int32_t const>> examples;
  for (std::int64_t const sample : batch.indices)
    for (std::int64_t i = 0; i < layout.per_sample; ++i)
      examples.push_back(sequences[sample * layout.per_sample + i]);
  for (auto const& example : examples) {
    longest = std::max(longest, std::ssize(example));
    batch.tokens += std::ssize(example);
  }
  batch.rows = layout.flat ? 1 : std::ssize(examples);
  batch.sequence =
      ceil_divide(layout.flat ? batch.tokens : longest, layout.multiple_of) * layout.multiple_of;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    std::size_t const row_begin = layout.flat ? 0 : i * static_cast<std::size_t>(batch.sequence);
    append_example(batch, examples[i], row_begin);
    if (!layout.flat || i + 1 == examples.size()) pad_row(batch, row_begin);
  }
}

}  // namespace

LoadedBatch read_batch(TokenSequences const& sequences, std::vector<std::int64_t> samples) {
  LoadedBatch batch;
  batch.samples = std::ssize(samples);
  batch.indices = std::move(samples);
  if (batch.samples == 0) return batch;
  if (sequences.holds_examples()) {
    read_examples(sequences, batch);
    return batch;
  }
  batch.rows = batch.samples;
  batch.sequence = sequences.length();
  batch.tokens = batch.rows * batch.sequence;
  batch.ids.reserve(static_cast<std::size_t>(batch.tokens));
  for (std::int64_t const sample : batch.indices) {
    auto const sequence = sequences[sample];
    batch.ids.insert(batch.ids.end(), sequence.begin(), sequence.end());
  }
  return batch;
}

BatchLoader::BatchLoader(TokenSequences sequences, Sampler const& sampler, Rank rank,
                         LoaderOptions options)
    : sequences_(std::move(sequences)), sampler_(sampler), rank_(rank) {
  if (options.workers < 1) return;
  std::int64_t const micro_batches = options.workers * options.prefetch_factor;
  std::int64_t const per_step = sampler.config().accumulation_steps;
  steps_ahead_ = std::max<std::int64_t>(1, ceil_divide(micro_batches, per_step));
  for (int i = 0; i < options.workers; ++i)
    workers_.emplace_back([this](std::stop_token const& stop) { work(stop); });
}

BatchLoader::~BatchLoader() = default;  // stops the workers and waits for them

std::vector<MicroBatch> BatchLoader::plan_of(std::int64_t step, Rank rank) {
  std::lock_guard const lock(planning_);
  return sampler_.micro_batches(step, rank);
}

LoadedBatch BatchLoader::first_of(std::int64_t step, Rank rank) {
  return read_batch(sequences_, std::move(plan_of(step, rank).front()));
}

std::vector<LoadedBatch> BatchLoader::read(std::int64_t step) {
  std::vector<LoadedBatch> out;
  for (auto& samples : plan_of(step, rank_))
    out.push_back(read_batch(sequences_, std::move(samples)));
  return out;
}

/// Requires that the mutex is held.
void BatchLoader::request_after(std::int64_t step) {
  std::erase_if(
      jobs_, [&](auto const& job) { return job.first <= step || job.first > step + steps_ahead_; });
  std::int64_t const last = std::min(step + steps_ahead_, sampler_.total_steps() - 1);
  for (std::int64_t next = step + 1; next <= last; ++next)
    if (!jobs_.contains(next)) jobs_.emplace(next, std::make_shared<Job>());
}

std::vector<LoadedBatch> BatchLoader::load(std::int64_t step) {
  if (workers_.empty()) return read(step);
  std::unique_lock lock(mutex_);
  auto const found = jobs_.find(step);
  auto const job = found == jobs_.end() ? nullptr : found->second;
  bool const mine = !job || !job->started;
  if (job) job->started = true;
  request_after(step);
  changed_.notify_all();
  if (!mine) {
    changed_.wait(lock, [&] { return job->done; });
    if (job->error) std::rethrow_exception(job->error);
    return std::move(job->batches);
  }
  lock.unlock();
  return read(step);
}

void BatchLoader::work(std::stop_token const& stop) {
  use_allowed_cores();
  std::unique_lock lock(mutex_);
  while (true) {
    auto next = jobs_.end();
    changed_.wait(lock, stop, [&] {
      next = std::ranges::find_if(jobs_, [](auto const& job) { return !job.second->started; });
      return next != jobs_.end();
    });
    if (stop.stop_requested()) return;
    std::int64_t const step = next->first;
    auto const job = next->second;
    job->started = true;
    lock.unlock();
    try {
      job->batches = read(step);
    } catch (...) {
      job->error = std::current_exception();
    }
    lock.lock();
    job->done = true;
    changed_.notify_all();
  }
}

}  // namespace tessera::data
