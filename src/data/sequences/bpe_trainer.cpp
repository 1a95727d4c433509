#include "sequences/bpe_trainer.hpp"

#include <algorithm>
#include <map>
#include <queue>

#include "tessera/core/text.hpp"

namespace tessera::data::detail {
namespace {

using Pair = std::pair<std::int32_t, std::int32_t>;

struct PairHash {
  std::size_t operator()(Pair const& pair) const {
    auto const bits = static_cast<std::uint64_t>(static_cast<std::uint32_t>(pair.first)) << 32 |
                      static_cast<std::uint32_t>(pair.second);
    return static_cast<std::size_t>(bits * 0x9E3779B97F4A7C15u >> 7);
  }
};

struct Word {
  std::vector<std::int32_t> symbols;
  std::int64_t count;
};

struct Candidate {
  std::int64_t count;
  Pair pair;
  std::vector<std::int32_t> words;  ///< indices of words that may have the pair
};

constexpr auto lower = [](Candidate const& a, Candidate const& b) {
  return a.count != b.count ? a.count < b.count : a.pair > b.pair;
};

class Trainer {
 public:
  Trainer(std::unordered_map<std::string, std::int64_t> const& words,
          BpeTrainingOptions const& options)
      : options_(options) {
    for (auto const& token : options.special_tokens) id_of(token);
    add_alphabet(words);
    for (auto const& [text, count] : words) add_word(text, count);
    for (std::size_t i = 0; i < words_.size(); ++i)
      for (std::size_t at = 0; at + 1 < words_[i].symbols.size(); ++at)
        change({words_[i].symbols[at], words_[i].symbols[at + 1]}, words_[i].count, i);
    enqueue();
  }

  TrainedBpe train() {
    std::map<Pair, std::size_t> ranks;
    std::size_t rank = 0;
    for (Candidate best; next(best); ++rank) {
      std::int32_t const merged = id_of(out_.tokens[static_cast<std::size_t>(best.pair.first)] +
                                        out_.tokens[static_cast<std::size_t>(best.pair.second)]);
      ranks[best.pair] = rank;  // a pair that is merged again keeps its last rank
      for (std::int32_t const word : best.words)
        merge(static_cast<std::size_t>(word), best.pair, merged);
      enqueue();
    }
    std::vector<std::pair<std::size_t, Pair>> order;
    for (auto const& [pair, at] : ranks) order.emplace_back(at, pair);
    std::ranges::sort(order);
    for (auto const& [at, pair] : order) out_.merges.push_back(pair);
    return std::move(out_);
  }

 private:
  std::int32_t id_of(std::string const& token) {
    auto const [found, is_new] = ids_.emplace(token, static_cast<std::int32_t>(out_.tokens.size()));
    if (is_new) out_.tokens.push_back(token);
    return found->second;
  }

  void add_alphabet(std::unordered_map<std::string, std::int64_t> const& words) {
    std::map<char32_t, std::string> characters;
    auto const add = [&](std::string const& text) {
      for (std::size_t at = 0; at < text.size();) {
        std::size_t const begin = at;
        char32_t const code = next_code_point(text, at);
        characters.try_emplace(code, text, begin, at - begin);
      }
    };
    for (auto const& [text, count] : words) add(text);
    for (auto const& character : options_.alphabet) add(character);
    for (auto const& [code, character] : characters) id_of(character);
  }

  void add_word(std::string const& text, std::int64_t count) {
    Word word{{}, count};
    for (std::size_t at = 0; at < text.size();) {
      std::size_t const begin = at;
      next_code_point(text, at);
      word.symbols.push_back(ids_.at(text.substr(begin, at - begin)));
    }
    words_.push_back(std::move(word));
  }

  /// Changes the count of a pair; with an increase the word has to be looked at for it.
  void change(Pair pair, std::int64_t by, std::size_t word) {
    counts_[pair] += by;
    if (by <= 0) return;
    auto& places = places_[pair];
    auto const index = static_cast<std::int32_t>(word);
    if (places.empty() || places.back() != index) places.push_back(index);
  }

  /// Queues the pairs of the last changes.
  void enqueue() {
    for (auto& [pair, places] : places_)
      if (std::int64_t const count = counts_[pair]; count > 0)
        queue_.push({count, pair, std::move(places)});
    places_.clear();
  }

  bool next(Candidate& best) {
    while (static_cast<std::int64_t>(out_.tokens.size()) < options_.vocabulary_size &&
           !queue_.empty()) {
      best = queue_.top();
      queue_.pop();
      std::int64_t const count = counts_[best.pair];
      if (best.count == count) return count >= std::max<std::int64_t>(options_.min_frequency, 1);
      best.count = count;  // other merges have used up some of its places
      queue_.push(std::move(best));
    }
    return false;
  }

  void merge(std::size_t index, Pair pair, std::int32_t merged) {
    Word& word = words_[index];
    auto& symbols = word.symbols;
    for (std::size_t at = 0; at + 1 < symbols.size(); ++at) {
      if (symbols[at] != pair.first || symbols[at + 1] != pair.second) continue;
      if (at > 0) {
        change({symbols[at - 1], pair.first}, -word.count, index);
        change({symbols[at - 1], merged}, word.count, index);
      }
      symbols[at] = merged;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      if (at + 1 == symbols.size()) continue;
      change({pair.second, symbols[at + 1]}, -word.count, index);
      change({merged, symbols[at + 1]}, word.count, index);
    }
  }

  BpeTrainingOptions const& options_;
  TrainedBpe out_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<Word> words_;
  std::unordered_map<Pair, std::int64_t, PairHash> counts_;
  std::unordered_map<Pair, std::vector<std::int32_t>, PairHash> places_;
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(lower)> queue_{lower};
};

}  // namespace

TrainedBpe train_bpe(std::unordered_map<std::string, std::int64_t> const& words,
                     BpeTrainingOptions const& options) {
  return Trainer(words, options).train();
}

}  // namespace tessera::data::detail
