#include "tessera/data/sampling/batch_loader.hpp"

#include <algorithm>
#include <utility>

#include "tessera/core/process.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::data {

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

std::vector<LoadedBatch> BatchLoader::read(std::int64_t step) {
  std::vector<MicroBatch> plan;
  {
    std::lock_guard const lock(planning_);
    plan = sampler_.micro_batches(step, rank_);
  }
  std::vector<LoadedBatch> out;
  for (auto const& samples : plan) {
    LoadedBatch batch{static_cast<std::int64_t>(samples.size()), {}, samples};
    batch.ids.reserve(samples.size() * static_cast<std::size_t>(sequences_.length()));
    for (std::int64_t const sample : samples) {
      auto const sequence = sequences_[sample];
      batch.ids.insert(batch.ids.end(), sequence.begin(), sequence.end());
    }
    out.push_back(std::move(batch));
  }
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
