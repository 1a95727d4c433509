#pragma once
/// Tokenizes batches of records on several threads and gives them back in their order.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/data/tokenizer/tokenizer.hpp"

namespace tessera::data::detail {

/// The ids of a batch; record i ends at ends[i].
struct EncodedBatch {
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> ends;
  std::vector<std::pair<std::size_t, std::string>> broken{};  ///< records with the reason
};

EncodedBatch encode_batch(Tokenizer const& tokenizer, std::vector<std::string> const& records);

/// Used from one thread, which takes part in the work. Further threads start when batches wait, and
/// read the tokenizer's files again, because a Tokenizer belongs to one thread.
class BatchEncoder {
 public:
  /// How a batch is encoded; the threads share it.
  using Encode =
      std::function<EncodedBatch(Tokenizer const&, std::vector<std::string> const& records)>;
  /// @p threads including the calling one
  BatchEncoder(Tokenizer const& tokenizer, int threads, Encode encode = encode_batch);
  ~BatchEncoder();
  BatchEncoder(BatchEncoder const&) = delete;
  BatchEncoder& operator=(BatchEncoder const&) = delete;

  void push(std::vector<std::string> records);
  /// Batches that have been pushed and not popped.
  std::size_t size() const { return order_.size(); }
  /// Enough batches wait to keep all threads busy.
  bool full() const { return size() >= 2 * static_cast<std::size_t>(threads_); }
  /// The oldest batch; there must be one. Rethrows what its encoding threw.
  EncodedBatch pop();

 private:
  struct Job {
    std::vector<std::string> records;
    EncodedBatch result;
    std::exception_ptr error;
    bool started = false, done = false;
  };
  std::shared_ptr<Job> next_job();
  void run(Job& job, Tokenizer const& tokenizer);
  void work();

  Tokenizer const& tokenizer_;
  Encode encode_;
  int threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> order_;  ///< oldest first; only the calling thread changes it
  std::deque<std::shared_ptr<Job>> waiting_;
  bool closed_ = false;
  std::vector<std::jthread> workers_;
};

}  // namespace tessera::data::detail
