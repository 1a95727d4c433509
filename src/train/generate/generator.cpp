#include "tessera/train/generate/generator.hpp"

#include <algorithm>
#include <memory>

#include "tessera/core/error.hpp"
#include "tessera/core/random.hpp"

namespace tessera::train {
namespace {

constexpr std::uint64_t random_stream = 0x67656e6572617465u;  // "generate"

/// A text that grows. All ranks have the same.
struct Row {
  std::size_t prompt = 0;
  Tokens text;  ///< prompt and new tokens
  std::size_t given = 0;
  bool done = false;
  GeneratedText result;
};

/// The rows that one rank continues at the same time.
class Pass {
 public:
  Pass(ModelContext const& context, std::vector<Row>& rows, GenerationOptions const& options)
      : context_(context), rows_(rows), options_(options), random_{options.seed, random_stream} {}

  bool done() const {
    return std::all_of(rows_.begin(), rows_.end(), [](Row const& row) { return row.done; });
  }
  /// The next token of every row; of a row that is done without meaning.
  Tokens next() {
    if (!cache_) {
      std::size_t longest = 0;
      for (auto const& row : rows_) longest = std::max(longest, row.text.size());
      auto const positions = static_cast<std::int64_t>(longest) + options_.max_new_tokens;
      cache_ = context_.model.make_cache(static_cast<std::int64_t>(rows_.size()),
                                         std::min(positions, context_.model.max_positions()),
                                         context_.compute);
      return draw(decode_prompts(longest));
    }
    Tokens tokens, first;
    for (auto const& row : rows_) {  // a row that is done writes its last position again
      tokens.push_back(row.text.back());
      first.push_back(static_cast<std::int32_t>(row.text.size()) - 1);
    }
    Tokens const ones(rows_.size(), 1);
    return draw(decode({tokens.data(), count(), 1, first.data(), ones.data()}));
  }

 private:
  std::int64_t count() const { return static_cast<std::int64_t>(rows_.size()); }
  std::vector<float> decode(model::DecodeBatch const& batch) {
    return context_.model.decode(batch, *cache_, context_.weights, context_.compute);
  }
  std::vector<float> decode_prompts(std::size_t longest) {
    Tokens tokens, counts;
    for (auto const& row : rows_) {
      tokens.insert(tokens.end(), row.text.begin(), row.text.end());
      tokens.resize(tokens.size() + longest - row.text.size());
      counts.push_back(static_cast<std::int32_t>(row.text.size()));
    }
    Tokens const first(rows_.size(), 0);
    return decode(
        {tokens.data(), count(), static_cast<std::int64_t>(longest), first.data(), counts.data()});
  }
  Tokens draw(std::vector<float> const& logits) const {
    auto const vocabulary = static_cast<std::ptrdiff_t>(logits.size() / rows_.size());
    Tokens out;
    auto at = logits.begin();
    for (auto const& row : rows_) {
      std::uint64_t const number = row.prompt << 32 | (row.text.size() - row.given);
      out.push_back(row.done ? 0
                             : draw_token({at, at + vocabulary}, row.text, options_.sampling,
                                          random_.uniform(number)));
      at += vocabulary;
    }
    return out;
  }

  ModelContext context_;
  std::vector<Row>& rows_;
  GenerationOptions const& options_;
  Philox random_;
  std::unique_ptr<model::KeyValueCache> cache_;
};

/// The prompts that all ranks continue at the same time.
class Round {
 public:
  Round(ModelContext const& context, std::vector<Tokens> const& prompts, std::size_t first,
        GenerationOptions const& options)
      : context_(context), options_(options) {
    auto const per_rank = static_cast<std::size_t>(options.rows_per_pass);
    for (int rank = 0; rank < context.mesh.data_size(); ++rank) {
      auto& rows = rows_.emplace_back();
      for (; first < prompts.size() && rows.size() < per_rank; ++first)
        rows.push_back({first, prompts[first], prompts[first].size(), false, {}});
    }
  }

  void run(std::vector<GeneratedText>& results) {
    auto& mine = rows_[static_cast<std::size_t>(context_.mesh.data_coordinate())];
    Pass pass(context_, mine, options_);
    while (!done()) {
      if (options_.between_passes) options_.between_passes();
      if (pass.done()) context_.model.decode_nothing(context_.weights, context_.compute);
      add(exchange(pass.done() ? Tokens(mine.size(), 0) : pass.next()));
      if (options_.after_token) report();
    }
    for (auto& rows : rows_)
      for (auto& row : rows) {
        if (options_.after_text && context_.is_root()) options_.after_text(row.prompt, row.result);
        results[row.prompt] = std::move(row.result);
      }
  }

 private:
  bool done() const {
    for (auto const& rows : rows_)
      for (auto const& row : rows)
        if (!row.done) return false;
    return true;
  }
  /// The tokens of all ranks, rank by rank.
  std::vector<double> exchange(Tokens const& mine) const {
    std::vector<double> all;
    for (std::size_t rank = 0; rank < rows_.size(); ++rank)
      if (rank == static_cast<std::size_t>(context_.mesh.data_coordinate()))
        all.insert(all.end(), mine.begin(), mine.end());
      else
        all.insert(all.end(), rows_[rank].size(), 0.0);
    comm::all_reduce_values(context_.data_ranks(), all, comm::ReduceOp::sum);
    return all;
  }
  void add(std::vector<double> const& tokens) {
    std::int64_t const positions = context_.model.max_positions();
    auto token = tokens.begin();
    for (auto& rows : rows_)
      for (auto& row : rows) {
        auto const next = static_cast<std::int32_t>(*token++);
        if (row.done) continue;
        row.text.push_back(next);
        row.result.tokens.push_back(next);
        auto const& ends = options_.ends_of_text;
        bool const ended = std::find(ends.begin(), ends.end(), next) != ends.end();
        if (ended) row.result.finish = FinishReason::end_of_text;
        row.done = ended || std::ssize(row.result.tokens) == options_.max_new_tokens ||
                   std::ssize(row.text) == positions;
        if (options_.after_token) grown_.push_back(&row);
      }
  }
  /// Rank 0 sees the new tokens and says which rows end.
  void report() {
    std::vector<double> ends(grown_.size(), 0.0);
    if (context_.is_root())
      for (std::size_t i = 0; i < ends.size(); ++i)
        ends[i] = options_.after_token(grown_[i]->prompt, grown_[i]->result.tokens);
    comm::all_reduce_values(context_.mesh.world(), ends, comm::ReduceOp::sum);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i] == 0.0) continue;
      grown_[i]->done = true;
      grown_[i]->result.finish = FinishReason::stopped;
    }
    grown_.clear();
  }

  ModelContext context_;
  GenerationOptions const& options_;
  std::vector<std::vector<Row>> rows_;  ///< rows of each rank
  std::vector<Row*> grown_;             ///< in the last pass
};

void check(model::CausalLm const& model, std::vector<Tokens> const& prompts) {
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    TESSERA_VALIDATE(!prompts[i].empty(), DataError, "prompt ", i + 1, " has no tokens");
    TESSERA_VALIDATE(std::ssize(prompts[i]) < model.max_positions(), DataError, "prompt ", i + 1,
                     " has ", prompts[i].size(), " tokens, but the model has positions for ",
                     model.max_positions(), ", the new tokens included; shorten the prompt");
  }
}

}  // namespace

std::vector<GeneratedText> generate(ModelContext context, std::vector<Tokens> const& prompts,
                                    GenerationOptions const& options) {
  check(context.model, prompts);
  std::vector<GeneratedText> results(prompts.size());
  std::size_t const per_round = static_cast<std::size_t>(options.rows_per_pass) *
                                static_cast<std::size_t>(context.mesh.data_size());
  for (std::size_t first = 0; first < prompts.size(); first += per_round)
    Round(context, prompts, first, options).run(results);
  return results;
}

}  // namespace tessera::train
