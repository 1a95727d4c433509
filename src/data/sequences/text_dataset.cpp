#include "tessera/data/sequences/text_dataset.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "sequences/example_rows.hpp"
#include "sequences/mixture.hpp"
#include "sequences/sequence_file.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "tessera/data/text/text_files.hpp"
#include "text/record_files.hpp"
#include "tokenizer/batch_encoder.hpp"
#include "tokenizer/hash.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t grouped_records =
    1000;  // datasets' map(batched=True) passes this many to group_texts

void check(SequenceRequest const& request, Tokenizer const& tokenizer) {
  TESSERA_VALIDATE(request.examples || request.block_size >= 2, ConfigError, "block_size is ",
                   request.block_size,
                   "; it must be at least 2, one token to predict from and one to predict");
  TESSERA_VALIDATE(request.part.percent >= 0 && request.part.percent <= 100, ConfigError,
                   "validation_split_percentage is ", request.part.percent,
                   "; it must be from 0 to 100");
  TESSERA_VALIDATE(!request.append_eos || tokenizer.eos_id() >= 0, ConfigError,
                   "append_eos: the tokenizer names no eos_token; add it to tokenizer_config.json, "
                   "or leave append_eos out");
}

/// Everything that determines the ids, except the text's bytes.
std::string describe(SequenceRequest const& r, Tokenizer const& tokenizer) {
  return concat("blocks ", SequenceFile::version, ' ', tokenizer.fingerprint(), ' ', r.block_size,
                ' ', static_cast<int>(r.part.kind), ' ', r.part.percent, ' ',
                static_cast<int>(r.line_breaks), ' ', r.text.extension().string(),
                r.broken_records == BrokenRecords::skip ? " skip" : "", r.append_eos ? " eos" : "",
                r.mixture.empty() ? "" : " mixture ", r.mixture,
                r.column.name.empty() || r.column.name == "text" ? "" : " column ",
                r.column.name == "text" ? "" : r.column.name,
                r.examples ? detail::describe(*r.examples) : "");
}

using Files = std::vector<fs::path>;

/// Hashes the bytes of one file, or the extensions and bytes of several files.
std::uint64_t hash_of(Files const& files) {
  if (files.size() == 1) return detail::xxh3_of_file(files.front());
  std::string sums;
  for (auto const& file : files)
    sums += concat(file.extension().string(), ' ', detail::xxh3_of_file(file), ' ');
  return detail::xxh3(sums);
}

std::uint64_t request_key(SequenceRequest const& request, Tokenizer const& tokenizer) {
  return detail::xxh3(concat(describe(request, tokenizer), ' ',
                             fs::absolute(request.text).lexically_normal().string()));
}

std::uint64_t fingerprint_of(SequenceRequest const& request, Tokenizer const& tokenizer,
                             std::uint64_t text_hash) {
  return detail::xxh3(concat(describe(request, tokenizer), ' ', text_hash));
}

/// Records or sequences [begin, end) of the files.
struct Range {
  std::int64_t begin, end;
};

Range range_of(RecordPart const& part, std::int64_t count) {
  std::int64_t const boundary = split_boundary(count, part.percent);
  return part.kind == RecordPart::Kind::all     ? Range{0, count}
         : part.kind == RecordPart::Kind::first ? Range{0, boundary}
                                                : Range{boundary, count};
}

detail::RecordFiles open_files(SequenceRequest const& request, Files const& files) {
  TextColumn column = request.column;
  column.complete_records = request.examples.has_value();
  return {files, column.complete_records ? LineBreaks::drop : request.line_breaks,
          request.broken_records, column};
}

Range find_range(SequenceRequest const& request, Files const& files) {
  if (request.part.kind == RecordPart::Kind::all)
    return {0, std::numeric_limits<std::int64_t>::max()};
  auto reader = open_files(request, files);
  std::string record;
  std::int64_t records = 0;
  while (reader.next(record)) ++records;
  return range_of(request.part, records);
}

/// Logs every ten seconds how far a text has been tokenized.
class ProgressLog {
 public:
  ProgressLog(std::string name, std::int64_t total_bytes)
      : name_(std::move(name)), total_bytes_(total_bytes) {}

  void update(std::int64_t bytes, std::int64_t tokens) {
    auto const now = Clock::now();
    if (now - last_ < std::chrono::seconds(10)) return;
    last_ = now;
    double const seconds = std::chrono::duration<double>(now - begin_).count();
    log::info(
        concat("tokenizing ", name_, ": ", 100 * bytes / std::max<std::int64_t>(total_bytes_, 1),
               " % of ", human_bytes(total_bytes_), ", ", with_commas(tokens), " tokens, ",
               with_commas(std::llround(static_cast<double>(tokens) / seconds)), " per second"));
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string name_;
  std::int64_t total_bytes_;
  Clock::time_point begin_ = Clock::now(), last_ = begin_;
};

/// Sequence packing: cuts each batch of records into sequences.
class SequencePacker {
 public:
  SequencePacker(SequenceWriter& out, std::int64_t length, std::optional<std::int32_t> eos)
      : out_(out), length_(static_cast<std::size_t>(length)), eos_(eos) {}

  void add(detail::EncodedBatch batch) {
    if (eos_) append_eos(batch);
    records_ += static_cast<std::int64_t>(batch.ends.size());
    tokens_ += static_cast<std::int64_t>(batch.ids.size());
    largest_batch_ = std::max(largest_batch_, batch.ids.size());
    out_.append(std::span(batch.ids).first(batch.ids.size() / length_ * length_));
  }
  std::int64_t records() const { return records_; }
  std::int64_t tokens() const { return tokens_; }
  std::size_t largest_batch() const { return largest_batch_; }

 private:
  void append_eos(detail::EncodedBatch& batch) const {
    std::vector<std::int32_t> ids;
    std::size_t begin = 0;
    for (std::size_t const end : batch.ends) {
      ids.insert(ids.end(), batch.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                 batch.ids.begin() + static_cast<std::ptrdiff_t>(end));
      ids.push_back(*eos_);
      begin = end;
    }
    batch.ids = std::move(ids);
  }

  SequenceWriter& out_;
  std::size_t length_, largest_batch_ = 0;
  std::optional<std::int32_t> eos_;
  std::int64_t records_ = 0, tokens_ = 0;
};

std::string name_of(RecordPart const& part) {
  if (part.kind == RecordPart::Kind::all ||
      (part.kind == RecordPart::Kind::rest && part.percent == 0))
    return "";
  return concat(part.kind == RecordPart::Kind::first ? " (the first " : " (all but the first ",
                part.percent, " % of the records)");
}

/// Tokenizes the records of the range in batches.
void pack_records(SequenceRequest const& request, Files const& files, Tokenizer const& tokenizer,
                  SequencePacker& packer) {
  Range const range = find_range(request, files);
  auto reader = open_files(request, files);
  detail::BatchEncoder encoder(tokenizer, request.threads);
  ProgressLog progress(request.text.string(), reader.total_bytes());
  auto const finish_one = [&] {
    packer.add(encoder.pop());
    progress.update(reader.position(), packer.tokens());
  };
  std::vector<std::string> batch;
  std::string record;
  for (std::int64_t i = 0; i < range.end && reader.next(record); ++i) {
    if (i < range.begin) continue;
    batch.push_back(record);
    if (static_cast<std::int64_t>(batch.size()) < grouped_records) continue;
    encoder.push(std::exchange(batch, {}));
    if (encoder.full()) finish_one();
  }
  if (!batch.empty()) encoder.push(std::move(batch));
  while (encoder.size() > 0) finish_one();
}

using Counts = detail::ExampleCounts;

/// Examples keep their lengths, or share rows.
Counts build_from_examples(SequenceRequest const& request, Files const& files,
                           Tokenizer const& tokenizer, SequenceWriter& out) {
  Range const range = find_range(request, files);
  auto reader = open_files(request, files);
  ProgressLog progress(request.text.string(), reader.total_bytes());
  detail::ExampleRows rows(*request.examples, tokenizer, request.threads, out);
  Counts const counts = rows.write(reader, range.begin, range.end, [&](std::int64_t tokens) {
    progress.update(reader.position(), tokens);
  });
  TESSERA_VALIDATE(out.count() > 0, DataError, request.text.string(), name_of(request.part),
                   " has ", counted(counts.records, "record"),
                   ", of which none has a token in the loss; see --max_length");
  return counts;
}

Counts build_from_text(SequenceRequest const& request, Files const& files,
                       Tokenizer const& tokenizer, SequenceWriter& out) {
  SequencePacker packer(
      out, request.block_size,
      request.append_eos ? std::optional(tokenizer.eos_id()) : std::optional<std::int32_t>());
  pack_records(request, files, tokenizer, packer);
  std::size_t const longest = packer.largest_batch();
  TESSERA_VALIDATE(out.count() > 0, DataError, request.text.string(), name_of(request.part),
                   " has ", counted(packer.records(), "record"), " with ",
                   counted(packer.tokens(), "token"), ", which do not fill one sequence of ",
                   request.block_size, " (every ", grouped_records,
                   " records are packed separately); give more text",
                   longest >= 2 ? concat(", or a block_size of at most ", longest) : std::string());
  return {packer.records(), packer.tokens()};
}

std::vector<detail::TokenFile> open_token_files(Files const& files) {
  std::vector<detail::TokenFile> out;
  for (auto const& file : files) {
    TESSERA_VALIDATE(detail::is_token_file(file), ConfigError, "cannot read ", file.string(),
                     " together with ", files.front().string(),
                     ": one is a text and the other holds token ids; tokenize the text with "
                     "tessera tokenize --output");
    out.emplace_back(file);
  }
  return out;
}

/// Appends @p left ids from position @p skip of the concatenated files on, in complete sequences.
void copy_ids(std::vector<detail::TokenFile> const& sources, std::int64_t skip, std::int64_t left,
              std::int64_t length, SequenceWriter& out) {
  std::vector<std::int32_t> ids;  // between two files less than one sequence
  for (auto const& source : sources) {
    std::int64_t at = std::min(skip, source.tokens());
    skip -= at;
    while (left > 0 && at < source.tokens()) {
      std::int64_t const count = std::min({left, source.tokens() - at, 1000 * length});
      std::size_t const before = ids.size();
      ids.resize(before + static_cast<std::size_t>(count));
      source.read(at, std::span(ids).subspan(before));
      at += count;
      left -= count;
      auto const complete = static_cast<std::int64_t>(ids.size()) / length * length;
      out.append(std::span(ids).first(static_cast<std::size_t>(complete)));
      ids.erase(ids.begin(), ids.begin() + complete);
    }
  }
}

/// Concatenates the ids of all files and cuts them.
Counts build_from_ids(SequenceRequest const& request, Files const& files, SequenceWriter& out) {
  TESSERA_VALIDATE(!request.append_eos, ConfigError, "append_eos: ", request.text.string(),
                   " holds token ids already; append it with tessera tokenize --append_eos");
  auto const sources = open_token_files(files);
  Counts counts{0, 0};
  for (auto const& source : sources) {
    counts.records += source.documents();
    counts.tokens += source.tokens();
  }
  std::int64_t const length = request.block_size;
  Range const range = range_of(request.part, counts.tokens / length);
  TESSERA_VALIDATE(range.end > range.begin, DataError, request.text.string(), name_of(request.part),
                   " has ", counted(counts.tokens, "token"), ", which do not fill one sequence of ",
                   length, "; give more tokens or a smaller block_size");
  copy_ids(sources, range.begin * length, (range.end - range.begin) * length, length, out);
  return counts;
}

void build(SequenceRequest const& request, Files const& files, Tokenizer const& tokenizer,
           std::uint64_t fingerprint) {
  SequenceWriter out(cache_file(request, tokenizer), request.block_size);
  bool const of_ids = detail::is_token_file(files.front());
  TESSERA_VALIDATE(!request.examples || !of_ids, ConfigError, request.text.string(),
                   " holds token ids; --task sft reads records, from which it makes the mask of "
                   "the loss");
  Counts const counts = request.examples ? build_from_examples(request, files, tokenizer, out)
                        : of_ids         ? build_from_ids(request, files, out)
                                         : build_from_text(request, files, tokenizer, out);
  out.commit(counts.records, counts.tokens, request_key(request, tokenizer), fingerprint);
  log::info(concat(of_ids ? "read " : "tokenized ", request.text.string(), name_of(request.part),
                   ": ", counted(counts.records, of_ids ? "document" : "record"), ", ",
                   counted(counts.tokens, "token"), ", ", counted(out.count(), "sequence"), " of ",
                   request.examples ? "up to " : "", out.length()));
}

}  // namespace

std::int64_t split_boundary(std::int64_t records, int percent) {
  return static_cast<std::int64_t>(
      std::nearbyint(static_cast<double>(percent) * static_cast<double>(records) / 100.0));
}

ShownExamples show_examples(SequenceRequest const& request, Tokenizer const& tokenizer, int count,
                            std::string_view begin_mark, std::string_view end_mark) {
  auto reader = open_files(request, find_text_files(parts_of_list(request.text).front()));
  std::vector<std::string> records;
  std::string where;
  for (std::string record; std::ssize(records) < count && reader.next(record);) {
    if (records.empty()) where = reader.where();
    records.push_back(std::move(record));
  }
  TESSERA_VALIDATE(!records.empty(), DataError, request.text.string(), " has no records");
  detail::ExampleEncoder const encoder(*request.examples, records.front(), where, tokenizer);
  auto const batch = encoder.encode(tokenizer, records);
  ShownExamples out{encoder.form(), {}};
  std::size_t begin = 0;
  for (std::size_t const end : batch.ends) {
    std::vector<std::int32_t> tokens(batch.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                     batch.ids.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
    if (tokens.empty()) continue;
    auto text = detail::marked_text(tokenizer, tokens, begin_mark, end_mark);
    out.examples.push_back({std::move(text), std::move(tokens)});
  }
  return out;
}

TextColumn text_column_of(SequenceRequest const& request) {
  Files const files = find_text_files(request.text);
  if (request.examples || detail::is_token_file(files.front())) return {};
  auto reader = open_files(request, files);
  std::string record;
  reader.next(record);
  return reader.column();
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

bool TokenSequences::contains(std::int32_t id) const {
  auto const* const end = ids_ + count_ * length_;
  return std::find(ids_, end, id) != end;
}

/// The file of a request, with what it must have been made from.
struct CachedSequences {
  SequenceRequest const& request;
  Tokenizer const& tokenizer;
  std::uint64_t text_hash, fingerprint;

  template <class Build>
  TokenSequences reuse_or_build(Build const& build_file) const {
    std::uint64_t const key = request_key(request, tokenizer);
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
    build_file();
    sequences = SequenceFile::open(file, key, SequenceFile::Check::header);
    sequences.text_hash_ = text_hash;
    return sequences;
  }
};

namespace {

void write_mixture(SequenceRequest const& request, Tokenizer const& tokenizer,
                   std::vector<TokenSequences> const& sets, std::uint64_t fingerprint) {
  std::vector<std::int64_t> counts;
  std::int64_t records = 0, tokens = 0;
  for (auto const& set : sets) {
    counts.push_back(set.count());
    records += set.records();
    tokens += set.tokens();
  }
  detail::MixtureOrder order(counts, detail::read_weights(request.mixture, sets.size()));
  SequenceWriter out(cache_file(request, tokenizer), request.block_size);
  for (std::int64_t i = 0; i < order.size(); ++i) {
    auto const place = order.next();
    if (request.examples)
      out.append_example(sets[place.set][place.index]);
    else
      out.append(sets[place.set][place.index]);
  }
  out.commit(records, tokens, request_key(request, tokenizer), fingerprint);
  auto const names = parts_of_list(request.text);
  for (std::size_t i = 0; i < sets.size(); ++i)
    log::info(concat("mixture: ", counted(order.dealt()[i], "sequence"), " of ", names[i].string(),
                     ", which has ", with_commas(counts[i])));
}

/// Each data set has its own file of sequences; that of the mixture is made from these.
TokenSequences build_or_open_mixture(SequenceRequest const& request, Tokenizer const& tokenizer) {
  std::vector<TokenSequences> sets;
  auto const names = parts_of_list(request.text);
  detail::read_weights(request.mixture, names.size());  // before minutes of tokenizing
  std::string hashes, fingerprints = describe(request, tokenizer);
  for (auto const& name : names) {
    SequenceRequest one = request;
    one.text = name;
    one.mixture.clear();
    sets.push_back(build_or_open_sequences(one, tokenizer));
    hashes += concat(sets.back().text_hash(), ' ');
    fingerprints += concat(' ', sets.back().fingerprint());
  }
  std::uint64_t const fingerprint = detail::xxh3(fingerprints);
  return CachedSequences{request, tokenizer, detail::xxh3(hashes), fingerprint}.reuse_or_build(
      [&] { write_mixture(request, tokenizer, sets, fingerprint); });
}

}  // namespace

TokenSequences build_or_open_sequences(SequenceRequest const& request, Tokenizer const& tokenizer) {
  check(request, tokenizer);
  if (!request.mixture.empty()) return build_or_open_mixture(request, tokenizer);
  Files const files = find_text_files(request.text);
  std::uint64_t const text_hash = hash_of(files),
                      fingerprint = fingerprint_of(request, tokenizer, text_hash);
  return CachedSequences{request, tokenizer, text_hash, fingerprint}.reuse_or_build(
      [&] { build(request, files, tokenizer, fingerprint); });
}

TokenSequences open_sequences(SequenceRequest const& request, Tokenizer const& tokenizer) {
  check(request, tokenizer);
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
