#pragma once
/// Writes texts as files of token ids, as Megatron's preprocess_data.py does.

#include <cstdint>
#include <filesystem>
#include <functional>

#include "tessera/data/sequences/text_dataset.hpp"
#include "tessera/data/tokenizer/tokenizer.hpp"

namespace tessera::data {

struct TokenizeRequest {
  std::filesystem::path text;    ///< files as in SequenceRequest
  std::filesystem::path output;  ///< FILE.bin; the index is FILE.idx next to it
  LineBreaks line_breaks = LineBreaks::keep;
  BrokenRecords broken_records = BrokenRecords::stop;
  bool append_eos = false;  ///< the end-of-text token after each record (--append-eod)
  int threads = 1;
};

struct TokenizeProgress {
  std::int64_t bytes = 0, total_bytes = 0;  ///< bytes of the files, as stored
  std::int64_t records = 0, tokens = 0;
};

/// Each record is a document. Ids are uint16 where all fit, else int32. Reads the text as a stream;
/// the files get their names when they are complete.
/// @param report called after each thousand records
/// @throws IoError, DataError, ConfigError as build_or_open_sequences()
TokenizeProgress tokenize_files(TokenizeRequest const& request, Tokenizer const& tokenizer,
                                std::function<void(TokenizeProgress const&)> const& report);

}  // namespace tessera::data
