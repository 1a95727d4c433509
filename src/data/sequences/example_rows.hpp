#pragma once
/// Writes the examples of a data set as sequences with flags, packed or one per row.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sequences/examples.hpp"
#include "sequences/sequence_file.hpp"
#include "text/record_files.hpp"

namespace tessera::data::detail {

/// Everything in the options and in the chat template that changes tokens.
std::string describe(ExampleOptions const& options);

struct ExampleCounts {
  std::int64_t records = 0, tokens = 0;
};

class ExampleRows {
 public:
  ExampleRows(ExampleOptions const& options, Tokenizer const& tokenizer, int threads,
              SequenceWriter& out)
      : options_(options), tokenizer_(tokenizer), threads_(threads), out_(out) {}

  /// Writes the records [begin, end) of @p files. Broken ones end the run or are left out, as the
  /// files say.
  /// @param progress  called with the number of tokens so far
  ExampleCounts write(RecordFiles& files, std::int64_t begin, std::int64_t end,
                      std::function<void(std::int64_t tokens)> const& progress);

 private:
  void add(EncodedBatch const& batch, std::vector<std::string> const& places, RecordFiles& files);
  void pack();

  ExampleOptions options_;
  Tokenizer const& tokenizer_;
  int threads_;
  SequenceWriter& out_;
  std::vector<std::vector<std::int32_t>> waiting_;  ///< examples that are packed together
  std::int64_t tokens_ = 0, without_loss_ = 0;
};

}  // namespace tessera::data::detail
