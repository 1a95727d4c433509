#include "tokenizer/batch_encoder.hpp"

#include <algorithm>
#include <optional>

#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"

namespace tessera::data::detail {

EncodedBatch encode_batch(Tokenizer const& tokenizer, std::vector<std::string> const& records) {
  EncodedBatch out;
  out.ends.reserve(records.size());
  for (auto const& record : records) {
    tokenizer.encode(record, out.ids);
    out.ends.push_back(out.ids.size());
  }
  return out;
}

BatchEncoder::BatchEncoder(Tokenizer const& tokenizer, int threads, Encode encode)
    : tokenizer_(tokenizer), encode_(std::move(encode)), threads_(std::max(threads, 1)) {}

BatchEncoder::~BatchEncoder() {
  {
    std::lock_guard const lock(mutex_);
    closed_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
}

void BatchEncoder::push(std::vector<std::string> records) {
  auto job = std::make_shared<Job>();
  job->records = std::move(records);
  bool more_work = false;
  {
    std::lock_guard const lock(mutex_);
    waiting_.push_back(job);
    more_work = waiting_.size() > 1;
  }
  order_.push_back(std::move(job));
  if (more_work && workers_.size() + 1 < static_cast<std::size_t>(threads_))
    workers_.emplace_back([this] { work(); });
  changed_.notify_all();
}

/// Requires that the mutex is held.
std::shared_ptr<BatchEncoder::Job> BatchEncoder::next_job() {
  if (waiting_.empty()) return nullptr;
  auto job = std::move(waiting_.front());
  waiting_.pop_front();
  job->started = true;
  return job;
}

void BatchEncoder::run(Job& job, Tokenizer const& tokenizer) {
  EncodedBatch result;
  std::exception_ptr error;
  try {
    result = encode_(tokenizer, job.records);
  } catch (...) {
    error = std::current_exception();
  }
  std::lock_guard const lock(mutex_);
  job.result = std::move(result);
  job.error = error;
  job.done = true;
}

void BatchEncoder::work() {
  use_allowed_cores();
  std::optional<Tokenizer> tokenizer;
  try {
    tokenizer.emplace(tokenizer_.files().front());
    if (tokenizer->fingerprint() != tokenizer_.fingerprint()) return;
  } catch (Error const&) {
    return;  // the files have changed or are gone: the other threads do the work
  }
  while (true) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
      if (closed_) return;
      job = next_job();
    }
    run(*job, *tokenizer);
    changed_.notify_all();
  }
}

EncodedBatch BatchEncoder::pop() {
  TESSERA_EXPECT(!order_.empty());
  auto const oldest = std::move(order_.front());
  order_.pop_front();
  while (true) {
    std::shared_ptr<Job> mine;
    {
      std::unique_lock lock(mutex_);
      if (oldest->done) break;
      if (oldest->started) {
        changed_.wait(lock, [&] { return oldest->done || !waiting_.empty(); });
        if (oldest->done) break;
      }
      mine = next_job();
    }
    if (mine) run(*mine, tokenizer_);
  }
  if (oldest->error) std::rethrow_exception(oldest->error);
  return std::move(oldest->result);
}

}  // namespace tessera::data::detail
