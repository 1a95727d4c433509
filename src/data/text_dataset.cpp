#include "tessera/data/text_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "detail/hash.hpp"
#include "detail/record_reader.hpp"
#include "detail/sequence_file.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t records_per_batch =
    1000;  // datasets' map(batched=True) passes this many to group_texts

void check(SequenceRequest const& request) {
  TESSERA_VALIDATE(request.block_size >= 2, ConfigError, "block_size is ", request.block_size,
                   "; it must be at least 2, one token to predict from and one to predict");
  TESSERA_VALIDATE(request.part.percent >= 0 && request.part.percent <= 100, ConfigError,
                   "validation_split_percentage is ", request.part.percent,
                   "; it must be from 0 to 100");
}

/// Everything that determines the ids, except the text's bytes.
std::string describe(SequenceRequest const& r, Tokenizer const& tokenizer) {
  return concat("blocks ", SequenceFile::version, ' ', tokenizer.fingerprint(), ' ', r.block_size,
                ' ', static_cast<int>(r.part.kind), ' ', r.part.percent, ' ',
                static_cast<int>(r.line_breaks), ' ', r.text.extension().string());
}

std::uint64_t request_key(SequenceRequest const& request, Tokenizer const& tokenizer) {
  return detail::xxh3(concat(describe(request, tokenizer), ' ',
                             fs::absolute(request.text).lexically_normal().string()));
}

std::uint64_t fingerprint_of(SequenceRequest const& request, Tokenizer const& tokenizer,
                             std::uint64_t text_hash) {
  return detail::xxh3(concat(describe(request, tokenizer), ' ', text_hash));
}

/// Records [begin, end) of the file.
struct RecordRange {
  std::int64_t begin, end;
};

RecordRange find_range(SequenceRequest const& request) {
  constexpr std::int64_t no_end = std::numeric_limits<std::int64_t>::max();
  if (request.part.kind == RecordPart::Kind::all) return {0, no_end};
  auto const reader = detail::open_records(request.text, request.line_breaks);
  std::string record;
  std::int64_t records = 0;
  while (reader->next(record)) ++records;
  std::int64_t const boundary = split_boundary(records, request.part.percent);
  return request.part.kind == RecordPart::Kind::first ? RecordRange{0, boundary}
                                                      : RecordRange{boundary, no_end};
}

/// Sequence packing: concatenates batches of records and cuts them into sequences.
class SequencePacker {
 public:
  SequencePacker(Tokenizer const& tokenizer, SequenceWriter& out, std::int64_t length)
      : tokenizer_(tokenizer), out_(out), length_(static_cast<std::size_t>(length)) {}

  void add(std::string const& record) {
    tokenizer_.encode(record, batch_);
    if (++records_ % records_per_batch == 0) end_batch();
  }
  void end_batch() {
    tokens_ += static_cast<std::int64_t>(batch_.size());
    largest_batch_ = std::max(largest_batch_, batch_.size());
    out_.append(std::span(batch_).first(batch_.size() / length_ * length_));
    batch_.clear();
  }
  std::int64_t records() const { return records_; }
  std::int64_t tokens() const { return tokens_; }
  std::size_t largest_batch() const { return largest_batch_; }

 private:
  Tokenizer const& tokenizer_;
  SequenceWriter& out_;
  std::size_t length_, largest_batch_ = 0;
  std::vector<std::int32_t> batch_;
  std::int64_t records_ = 0, tokens_ = 0;
};

std::string name_of(RecordPart const& part) {
  if (part.kind == RecordPart::Kind::all ||
      (part.kind == RecordPart::Kind::rest && part.percent == 0))
    return "";
  return concat(part.kind == RecordPart::Kind::first ? " (the first " : " (all but the first ",
                part.percent, " % of the records)");
}

void build(SequenceRequest const& request, Tokenizer const& tokenizer, std::uint64_t fingerprint) {
  RecordRange const range = find_range(request);
  SequenceWriter out(cache_file(request, tokenizer), request.block_size);
  SequencePacker packer(tokenizer, out, request.block_size);
  auto const reader = detail::open_records(request.text, request.line_breaks);
  std::string record;
  for (std::int64_t i = 0; i < range.end && reader->next(record); ++i)
    if (i >= range.begin) packer.add(record);
  packer.end_batch();
  std::string const name = request.text.string() + name_of(request.part);
  std::size_t const longest = packer.largest_batch();
  TESSERA_VALIDATE(out.count() > 0, DataError, name, " has ", counted(packer.records(), "record"),
                   " with ", counted(packer.tokens(), "token"),
                   ", which do not fill one sequence of ", request.block_size, " (every ",
                   records_per_batch, " records are packed separately); give more text",
                   longest >= 2 ? concat(", or a block_size of at most ", longest) : std::string());
  if (reader->replacements() > 0)
    log::warning(concat(request.text.string(), " is not valid UTF-8 in ",
                        counted(reader->replacements(), "place"), "; each is replaced by U+FFFD"));
  out.commit(packer.records(), packer.tokens(), request_key(request, tokenizer), fingerprint);
  log::info(concat("tokenized ", name, ": ", counted(packer.records(), "record"), ", ",
                   counted(packer.tokens(), "token"), ", ", counted(out.count(), "sequence"),
                   " of ", request.block_size));
}

}  // namespace

std::int64_t split_boundary(std::int64_t records, int percent) {
  return static_cast<std::int64_t>(
      std::nearbyint(static_cast<double>(percent) * static_cast<double>(records) / 100.0));
}

fs::path cache_file(SequenceRequest const& request, Tokenizer const& tokenizer) {
  char name[64];
  std::snprintf(name, sizeof name, "blocks_%016llx.tsrb",
                static_cast<unsigned long long>(request_key(request, tokenizer)));
  return request.cache_folder / name;
}

TokenSequences::TokenSequences(std::vector<std::int32_t> ids, std::int64_t length)
    : length_(length), tokens_(std::ssize(ids)) {
  TESSERA_VALIDATE(length >= 2 && tokens_ >= length, DataError, tokens_,
                   " tokens do not make a sequence of ", length,
                   "; a sequence needs at least 2 tokens");
  count_ = tokens_ / length;
  max_id_ = *std::max_element(ids.begin(), ids.end());
  auto const owner = std::make_shared<std::vector<std::int32_t> const>(std::move(ids));
  ids_ = owner->data();
  mapping_ = owner;
}

TokenSequences build_or_open_sequences(SequenceRequest const& request, Tokenizer const& tokenizer) {
  check(request);
  std::uint64_t const text_hash = detail::xxh3_of_file(request.text),
                      fingerprint = fingerprint_of(request, tokenizer, text_hash),
                      key = request_key(request, tokenizer);
  fs::path const file = cache_file(request, tokenizer);
  TokenSequences sequences;
  if (fs::exists(file)) {
    try {
      sequences = SequenceFile::open(file, key, SequenceFile::Check::ids_too);
      sequences.text_hash_ = text_hash;
      if (sequences.fingerprint() == fingerprint) return sequences;
      log::info(concat(request.text.string(), " has changed; tokenizing it again"));
    } catch (DataError const& e) {
      log::warning(concat(e.what(), "; tokenizing the text again"));
    }
  }
  build(request, tokenizer, fingerprint);
  sequences = SequenceFile::open(file, key, SequenceFile::Check::header);
  sequences.text_hash_ = text_hash;
  return sequences;
}

TokenSequences open_sequences(SequenceRequest const& request, Tokenizer const& tokenizer) {
  check(request);
  return SequenceFile::open(cache_file(request, tokenizer), request_key(request, tokenizer),
                            SequenceFile::Check::header);
}

TokenSequences open_sequences(int descriptor, fs::path const& file) {
  return SequenceFile::open(descriptor, file);
}

void check_vocabulary(TokenSequences const& sequences, Tokenizer const& tokenizer,
                      std::int64_t model_vocabulary_size) {
  TESSERA_VALIDATE(sequences.max_id() < model_vocabulary_size, DataError, "the text has the token ",
                   sequences.max_id(), " ('", tokenizer.decode(std::vector{sequences.max_id()}),
                   "') and the model has embeddings for ids below ", model_vocabulary_size,
                   "; the tokenizer has ", tokenizer.vocabulary_size(),
                   " tokens. Use the model's own tokenizer, or a vocab_size of at least ",
                   tokenizer.max_id() + 1);
}

BlockSizeChoice choose_block_size(std::optional<std::int64_t> asked, std::int64_t model_max_length,
                                  std::int64_t model_positions) {
  if (asked) {
    TESSERA_VALIDATE(*asked >= 2, ConfigError, "block_size is ", *asked, "; it must be at least 2");
    if (*asked <= model_max_length) return {*asked, ""};
    return {model_max_length,
            concat("block_size ", *asked,
                   " is larger than the tokenizer's model_max_length; using block_size=",
                   model_max_length)};
  }
  if (model_max_length <= model_positions) return {model_max_length, ""};
  std::int64_t const size =
      model_positions > 0 ? std::min<std::int64_t>(1024, model_positions) : 1024;
  return {size,
          concat("the tokenizer's model_max_length (", model_max_length,
                 ") is larger than the model's ", model_positions,
                 " positions; using block_size=", size, ". Choose another with --block_size")};
}

}  // namespace tessera::data
