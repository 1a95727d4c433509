#include "sequences/example_rows.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "sequences/packing.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "tokenizer/hash.hpp"

namespace tessera::data::detail {
namespace {

constexpr std::size_t batch_records = 1000;  // datasets' map(batched=True) passes this many

std::vector<PackedRow> rows_of(ExampleOptions const& options,
                               std::vector<std::vector<std::int32_t>> const& examples) {
  std::vector<std::size_t> lengths;
  for (auto const& example : examples) lengths.push_back(example.size());
  auto const row = static_cast<std::size_t>(options.max_length);
  if (options.packing == Packing::wrapped) return pack_wrapped(lengths, row);
  return pack_best_fit(lengths, row,
                       options.packing == Packing::bfd ? Overflow::truncate : Overflow::split);
}

}  // namespace

std::string describe(ExampleOptions const& o) {
  std::string out = concat(" examples 1 ", o.max_length, ' ',
                           o.completion_only_loss ? static_cast<int>(*o.completion_only_loss) : 2,
                           ' ', o.assistant_only_loss, ' ', static_cast<int>(o.packing), ' ',
                           o.text_field, ' ', static_cast<int>(o.record_template), ' ', o.eos_token,
                           o.preferences ? " preferences" : "");
  for (auto const& file :
       {o.tokenizer_directory / "chat_template.jinja",
        o.tokenizer_directory / "tokenizer_config.json", o.chat_template,
        o.chat_template / "chat_template.jinja", o.chat_template / "tokenizer_config.json"})
    if (std::filesystem::is_regular_file(file)) out += concat(' ', xxh3_of_file(file));
  return out;
}

ExampleCounts ExampleRows::write(RecordFiles& files, std::int64_t begin, std::int64_t end,
                                 std::function<void(std::int64_t)> const& progress) {
  std::optional<ExampleEncoder> examples;
  std::optional<BatchEncoder> encoder;
  std::vector<std::string> batch, places;
  std::deque<std::vector<std::string>> places_of_batches;
  auto const push = [&] {
    encoder->push(std::exchange(batch, {}));
    places_of_batches.push_back(std::exchange(places, {}));
  };
  auto const finish_one = [&] {
    add(encoder->pop(), places_of_batches.front(), files);
    places_of_batches.pop_front();
    progress(tokens_);
  };
  std::int64_t records = 0;
  std::string record;
  for (std::int64_t i = 0; i < end && files.next(record); ++i) {
    if (!examples) {
      examples.emplace(options_, record, files.where(), tokenizer_);
      encoder.emplace(tokenizer_, threads_, [&](auto const& own, auto const& texts) {
        return examples->encode(own, texts);
      });
    }
    if (i < begin) continue;
    ++records;
    batch.push_back(record);
    places.push_back(files.where());
    if (batch.size() < batch_records) continue;
    push();
    if (encoder->full()) finish_one();
  }
  if (!batch.empty()) push();
  while (encoder && encoder->size() > 0) finish_one();
  pack();
  if (without_loss_ > 0)
    log::info(concat("left out ", counted(without_loss_, "example"),
                     " without a token in the loss, as after truncation to --max_length ",
                     options_.max_length));
  return {records, tokens_};
}

void ExampleRows::add(EncodedBatch const& batch, std::vector<std::string> const& places,
                      RecordFiles& files) {
  auto broken = batch.broken.begin();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < batch.ends.size(); ++i) {
    std::span<std::int32_t const> const tokens(batch.ids.data() + begin, batch.ends[i] - begin);
    begin = batch.ends[i];
    if (broken != batch.broken.end() && broken->first == i) {
      files.reject(BrokenRecord(concat(places[i], ": ", broken->second)));
      ++broken;
      continue;
    }
    tokens_ += std::ssize(tokens);
    without_loss_ += tokens.empty();
    if (options_.packing == Packing::none) {
      auto const first = static_cast<std::size_t>(
          std::ranges::find_if(tokens, [](auto t) { return (t & begins_document) != 0; }) -
          tokens.begin());  // where a preference's rejected sequence begins
      out_.append_example(tokens.first(first));
      out_.append_example(tokens.subspan(first));
      continue;
    }
    waiting_.emplace_back(tokens.begin(), tokens.end());
    if (waiting_.size() == batch_records) pack();
  }
}

void ExampleRows::pack() {
  for (PackedRow const& row : rows_of(options_, waiting_)) {
    std::vector<std::int32_t> tokens;
    for (Fragment const& part : row) {
      std::size_t const start = tokens.size();
      auto const first = waiting_[part.example].begin();
      tokens.insert(tokens.end(), first + static_cast<std::ptrdiff_t>(part.begin),
                    first + static_cast<std::ptrdiff_t>(part.end));
      if (options_.packing != Packing::wrapped) tokens[start] |= begins_document;
    }
    out_.append_example(tokens);
  }
  waiting_.clear();
}

}  // namespace tessera::data::detail
