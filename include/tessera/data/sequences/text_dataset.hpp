#pragma once
/// Training text as packed sequences of token ids, as Hugging Face's run_clm.py makes them, in a
/// file that the ranks of a node share.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/data/text/text_files.hpp"
#include "tessera/data/tokenizer/tokenizer.hpp"

namespace tessera::data {

/// Which records of a file are used: all, the first `percent` percent, or the rest after these.
/// Without a validation file run_clm validates on the first validation_split_percentage (5) and
/// trains on the rest, even if it does not evaluate.
struct RecordPart {
  /// All records, the first `percent` percent, or the rest after these.
  enum class Kind { all, first, rest };
  Kind kind = Kind::all;
  int percent = 0;  ///< 0 to 100
};

/// Number of records in the first `percent` percent of `records`: rounded to nearest, halves to
/// even, as datasets' "train[:5%]".
std::int64_t split_boundary(std::int64_t records, int percent);

/// How examples share rows: one per row, or as TRL's pack_dataset packs every 1,000 of them.
enum class Packing { none, bfd, bfd_split, wrapped };
/// Records that a named template turns into a prompt and a completion.
enum class RecordTemplate { none, alpaca };

/// Records as examples of supervised fine-tuning, prepared as TRL's SFTTrainer does: each keeps its
/// length and says of which tokens a loss is computed.
struct ExampleOptions {
  std::int64_t max_length = 1024;  ///< tokens of an example or of a packed row; 0: no limit
  std::optional<bool> completion_only_loss;  ///< none: where there is a prompt and a completion
  bool assistant_only_loss = false;
  Packing packing = Packing::none;
  std::string text_field = "text";
  RecordTemplate record_template = RecordTemplate::none;
  /// Records are preferences, as TRL's DPOTrainer reads them: each becomes two sequences, the
  /// prompt with the chosen and with the rejected completion.
  bool preferences = false;
  std::string eos_token;                      ///< empty: the tokenizer's
  std::filesystem::path tokenizer_directory;  ///< where its chat template is
  std::filesystem::path chat_template;        ///< a file or directory in its place; empty: none
};

/// What sequences are made from, and how.
///
/// .txt: a record is a line with its end; "\r\n" and "\r" are read as "\n", no other character ends
/// a line, blank lines are records. .json, .jsonl: a record is the member "text" (else the first
/// member of the first record) of each object, written one after the other or in one array. .csv:
/// the column text, else the first. All files of a data set have the same member or column. Each
/// may be compressed (.gz, .zst after the name). Bytes that are not UTF-8 become U+FFFD, with a
/// warning.
///
/// Sequence packing as in run_clm's group_texts: records are tokenized one by one; every 1,000 of
/// them are concatenated and cut into sequences of block_size tokens, and the remainder is dropped.
///
/// .bin: the token ids of llm.c or Megatron, concatenated and cut; a part is one of the sequences.
struct SequenceRequest {
  /// A file, or files and patterns separated by commas (text_files.hpp), as one data set.
  std::filesystem::path text;
  RecordPart part;
  LineBreaks line_breaks = LineBreaks::keep;  ///< keep_linebreaks; .txt only
  std::int64_t block_size = 0;                ///< tokens per sequence, as run_clm calls it
  std::filesystem::path cache_folder;
  BrokenRecords broken_records = BrokenRecords::stop;
  int threads = 1;  ///< that tokenize; the sequences do not depend on it
  /// Weights such as "0.7,0.3": each part of `text` between commas is a data set of its own, of
  /// which the part is taken, and the sequences are mixed by these weights. An epoch has every
  /// sequence at least once; those of sets smaller than their share are repeated. Empty: one data
  /// set.
  std::string mixture;
  bool append_eos = false;  ///< the tokenizer's eos_token after each record of a text
  /// Files for validation and test read the training text's column, as in run_clm.py; without a
  /// name the files decide themselves.
  TextColumn column = {};
  std::optional<ExampleOptions> examples;  ///< none: text, cut into sequences of block_size
};

/// Flags of a token in sequences of examples, above its id: no loss is computed of it; it begins a
/// document, which attends to no other and whose positions count from 0.
inline constexpr std::int32_t not_predicted = 1 << 30, begins_document = 1 << 29,
                              token_id_bits = begins_document - 1;

/// How samples of several lengths become the rows of a micro-batch.
struct RowLayout {
  bool flat = false;             ///< one row with all samples, each a document: no padding
  std::int64_t multiple_of = 1;  ///< rows are padded to a multiple of it
  std::int64_t per_sample = 1;   ///< consecutive sequences that are a sample, each with its row
  bool operator==(RowLayout const&) const = default;
};

/// Sequences of token ids, memory-mapped read-only from their file, or from memory. Copies share
/// them. Those of plain text have one length; those of examples have their own and hold flags.
class TokenSequences {
 public:
  TokenSequences() = default;
  /// Splits tokens in memory into ids.size() / length sequences; a remainder is dropped. Every rank
  /// needs the same.
  TokenSequences(std::vector<std::int32_t> ids, std::int64_t length);

  std::int64_t count() const { return count_ / layout_.per_sample; }  ///< samples
  std::int64_t length() const { return length_; }  ///< tokens per sequence, at most
  /// The tokens have flags, and the sequences have their own lengths.
  bool holds_examples() const { return offsets_ != nullptr; }
  /// Sequence i: length() ids, or the tokens of an example with their flags.
  std::span<std::int32_t const> operator[](std::int64_t i) const {
    if (!offsets_) return {ids_ + i * length_, static_cast<std::size_t>(length_)};
    return {ids_ + offsets_[i], static_cast<std::size_t>(offsets_[i + 1] - offsets_[i])};
  }
  RowLayout const& layout() const { return layout_; }
  void set_layout(RowLayout layout) { layout_ = layout; }
  /// Keeps only the first n samples (max_train_samples, max_eval_samples); no effect if there are
  /// at most n.
  void keep_first(std::int64_t n) { count_ = n < count() ? n * layout_.per_sample : count_; }

  /// Records and tokens read to make the sequences, including dropped tokens.
  std::int64_t records() const { return records_; }
  std::int64_t tokens() const { return tokens_; }
  /// The largest id in the sequences.
  std::int32_t max_id() const { return max_id_; }
  bool contains(std::int32_t id) const;
  /// XXH3 of text, tokenizer and request: ranks with the same value read the same sequences.
  std::uint64_t fingerprint() const { return fingerprint_; }
  /// XXH3 of the text files' bytes; 0 where another process has read the text.
  std::uint64_t text_hash() const { return text_hash_; }
  std::filesystem::path const& file() const { return file_; }

 private:
  friend class SequenceFile;
  friend struct CachedSequences;
  std::shared_ptr<void const> mapping_;
  std::int32_t const* ids_ = nullptr;
  std::int64_t const* offsets_ = nullptr;  ///< [count + 1] of examples; else null
  RowLayout layout_;
  std::int64_t count_ = 0, length_ = 0, records_ = 0, tokens_ = 0;
  std::int32_t max_id_ = -1;
  std::uint64_t fingerprint_ = 0, text_hash_ = 0;
  std::filesystem::path file_;
};

/// The column that is the text of this request's files, by their first record. Without a name where
/// the files hold token ids.
TextColumn text_column_of(SequenceRequest const& request);

/// The first examples of a data set as they are trained on.
struct ShownExamples {
  /// An example and its tokens.
  struct Example {
    std::string text;                  ///< with the parts of the loss between two marks
    std::vector<std::int32_t> tokens;  ///< with flags
  };
  std::string form;  ///< form of the records: "prompt and completion, loss on the completion"
  std::vector<Example> examples;
};
/// Reads the first records of a request for examples. Leaves out records
/// that cannot be read. @throws as build_or_open_sequences()
ShownExamples show_examples(SequenceRequest const& request, Tokenizer const& tokenizer, int count,
                            std::string_view begin_mark = "[[", std::string_view end_mark = "]]");

/// The file for the sequences of this request: `cache_folder/blocks_HASH.tsrb`, by a hash of
/// request and tokenizer.
std::filesystem::path cache_file(SequenceRequest const& request, Tokenizer const& tokenizer);

/// Opens the file of sequences if it is intact and was made from this text, tokenizer and request;
/// otherwise builds it. One rank per node calls this; concurrent calls are safe, because each
/// writes its own temporary file and renames it. Reads the text as a stream.
/// @throws IoError, ConfigError for an unsupported kind of file, DataError if the text does not
/// fill one sequence.
TokenSequences build_or_open_sequences(SequenceRequest const& request, Tokenizer const& tokenizer);

/// Opens the file that another rank has built; call it after that rank has finished. @throws
/// IoError if the file is missing, DataError if it is damaged or of another request.
TokenSequences open_sequences(SequenceRequest const& request, Tokenizer const& tokenizer);

/// Opens the file that another process of this node has built and checked, from its descriptor
/// (takes ownership): does not access the file system.
TokenSequences open_sequences(int descriptor, std::filesystem::path const& file);

/// @throws DataError if a sequence has an id for which a model of this vocabulary size has no
/// embedding.
void check_vocabulary(TokenSequences const& sequences, Tokenizer const& tokenizer,
                      std::int64_t model_vocabulary_size);

/// The block_size that run_clm uses, and its warning (empty: none). If @p asked is set:
/// min(asked, model_max_length of the tokenizer). Otherwise model_max_length, or min(1024,
/// model_positions) if model_max_length exceeds model_positions.
struct BlockSizeChoice {
  std::int64_t block_size;
  std::string warning;
};
BlockSizeChoice choose_block_size(std::optional<std::int64_t> asked, std::int64_t model_max_length,
                                  std::int64_t model_positions = 1024);

}  // namespace tessera::data
