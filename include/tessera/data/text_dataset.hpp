#pragma once
/// Training text as blocks of token ids, with the semantics of Hugging Face's run_clm.py, kept in a
/// file that the ranks of a node share.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tessera/data/tokenizer.hpp"

namespace tessera::data {

enum class LineBreaks { keep, drop };

/// Which of a file's records: all of them, the first `percent` percent, or the rest after these.
/// Without a validation file run_clm trains on the rest and validates on the first
/// validation_split_percentage (5), also when it does not evaluate.
struct RecordPart {
  enum class Kind { all, first, rest };
  Kind kind = Kind::all;
  int percent = 0;  ///< 0 to 100
};

/// Number of records in the first `percent` percent of `records`: rounded to nearest, halves to
/// even, as datasets' "train[:5%]".
std::int64_t split_boundary(std::int64_t records, int percent);

/// What blocks are made of.
///
/// .txt: a record is a line with its end; "\r\n" and "\r" are read as "\n", no other character ends
/// a line, blank lines are records. .json, .jsonl: a record is the member "text" (else the first
/// member) of each object, written one after the other or in one array. Either may be
/// gzip-compressed (.gz after its name). Bytes that are not UTF-8 become U+FFFD, with a warning.
///
/// Records are tokenised one by one; each 1,000 of them are joined and cut into blocks, and what
/// does not fill a block is dropped.
struct BlockRequest {
  std::filesystem::path text;
  RecordPart part;
  LineBreaks line_breaks = LineBreaks::keep;  ///< keep_linebreaks; .txt only
  std::int64_t block_size = 0;                ///< tokens of a block
  std::filesystem::path cache_folder;
};

/// Blocks of token ids, mapped read-only from their file. Copies share the mapping.
class TokenBlocks {
 public:
  std::int64_t count() const { return count_; }
  std::int64_t block_size() const { return block_size_; }
  /// Block i, block_size() ids.
  std::span<std::int32_t const> block(std::int64_t i) const {
    return {ids_ + i * block_size_, static_cast<std::size_t>(block_size_)};
  }
  /// Uses the first n blocks only (max_train_samples, max_eval_samples); no effect if there are no
  /// more than n.
  void keep_first(std::int64_t n) { count_ = n < count_ ? n : count_; }

  /// Records and tokens read to make the blocks, dropped ones included.
  std::int64_t records() const { return records_; }
  std::int64_t tokens() const { return tokens_; }
  /// The largest id in the blocks.
  std::int32_t max_id() const { return max_id_; }
  /// XXH3 of text, tokenizer and request: ranks whose values agree see the same blocks.
  std::uint64_t fingerprint() const { return fingerprint_; }
  std::filesystem::path const& file() const { return file_; }

 private:
  friend class BlockFile;
  std::shared_ptr<void const> mapping_;
  std::int32_t const* ids_ = nullptr;
  std::int64_t count_ = 0, block_size_ = 0, records_ = 0, tokens_ = 0;
  std::int32_t max_id_ = -1;
  std::uint64_t fingerprint_ = 0;
  std::filesystem::path file_;
};

/// Where the blocks of this request are kept: cache_folder/blocks_<hash of request and
/// tokenizer>.tsrb
std::filesystem::path cache_file(BlockRequest const& request, Tokenizer const& tokenizer);

/// Opens the blocks if their file is whole and made from this text, this tokenizer and this
/// request; else makes it. For one rank of a node; several at once do no harm (each writes a file
/// of its own and renames it). Reads the text as a stream.
/// @throws IoError, ConfigError for a kind of file that is not read, DataError if the text has not
/// one full block.
TokenBlocks build_or_open_blocks(BlockRequest const& request, Tokenizer const& tokenizer);

/// Opens what another rank has built; call it after that rank is done. @throws IoError if the file
/// is not there, DataError if it is damaged or something else.
TokenBlocks open_blocks(BlockRequest const& request, Tokenizer const& tokenizer);

/// Opens what another process of this node has built and checked, from a descriptor of its file
/// (owned from here on): no look at the file system.
TokenBlocks open_blocks(int descriptor, std::filesystem::path const& file);

/// @throws DataError if a block holds an id that a model with this many embeddings does not have.
void check_vocabulary(TokenBlocks const& blocks, Tokenizer const& tokenizer,
                      std::int64_t model_vocabulary_size);

/// The block size run_clm takes, and what it warns of (empty: nothing).
/// Asked for: min(asked, tokenizer's model_max_length). Else the model_max_length, or min(1024,
/// model_positions) where that is larger than the model's positions.
struct BlockSizeChoice {
  std::int64_t block_size;
  std::string warning;
};
BlockSizeChoice choose_block_size(std::optional<std::int64_t> asked, std::int64_t model_max_length,
                                  std::int64_t model_positions = 1024);

}  // namespace tessera::data
