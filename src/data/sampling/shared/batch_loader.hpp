#pragma once
/// Loads the micro-batches of a rank, ahead of their use.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tessera/data/sampling/sampler.hpp"
#include "tessera/data/sequences/text_dataset.hpp"

namespace tessera::data {

struct LoaderOptions {
  int workers = 0;                   ///< threads; 0: the calling thread loads (no prefetch)
  std::int64_t prefetch_factor = 2;  ///< micro-batches per worker that are loaded ahead
};

/// The token ids of a micro-batch: rows x sequence.
struct LoadedBatch {
  std::int64_t samples = 0;
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> indices;  ///< indices of the samples in the data set
  std::int64_t rows = 0, sequence = 0;
  /// Examples have these, like `ids`: labels with -1 where no loss is computed, and where in its
  /// row each token's document begins. Else empty.
  std::vector<std::int32_t> labels{}, documents{};
  std::int64_t tokens = 0;  ///< ids without padding
};

/// Reads these samples. Examples are padded to the longest of them and to the multiple of the
/// sequences' RowLayout, or follow each other in one row.
LoadedBatch read_batch(TokenSequences const& sequences, std::vector<std::int64_t> samples);

/// Workers plan the epochs and copy the sequences out of their memory-mapped file. The samples
/// of a step depend on the step only, so that the position after a resume is exact.
class BatchLoader {
 public:
  BatchLoader(TokenSequences sequences, Sampler const& sampler, Rank rank, LoaderOptions options);
  ~BatchLoader();
  BatchLoader(BatchLoader const&) = delete;
  BatchLoader& operator=(BatchLoader const&) = delete;

  /// The micro-batches of optimizer step @p step, counted from 0, then begins to load those of the
  /// following steps. Call it from one thread.
  std::vector<LoadedBatch> load(std::int64_t step);
  /// The first micro-batch of any rank in step @p step.
  LoadedBatch first_of(std::int64_t step, Rank rank);
  SamplerConfig const& sampler_config() const { return sampler_.config(); }
  /// Steps that are loaded ahead: enough micro-batches for all workers, at least one step.
  std::int64_t steps_ahead() const { return steps_ahead_; }

 private:
  struct Job {
    std::vector<LoadedBatch> batches;
    std::exception_ptr error;
    bool started = false, done = false;
  };
  std::vector<MicroBatch> plan_of(std::int64_t step, Rank rank);
  std::vector<LoadedBatch> read(std::int64_t step);
  void request_after(std::int64_t step);
  void work(std::stop_token const& stop);

  TokenSequences sequences_;
  Sampler sampler_;
  std::mutex planning_;  ///< guard of sampler_
  Rank rank_;
  std::int64_t steps_ahead_ = 0;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::int64_t, std::shared_ptr<Job>> jobs_;  ///< by step
  std::vector<std::jthread> workers_;                  ///< last: they use the other members
};

}  // namespace tessera::data
