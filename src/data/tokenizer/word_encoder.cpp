#include "tokenizer/word_encoder.hpp"

#include "tokenizer/hash.hpp"

namespace tessera::data::detail {
namespace {

constexpr std::size_t cached_word_bytes = 64;   // longer words rarely recur
constexpr std::size_t cached_words = 1u << 17;  // then the cache is cleared

}  // namespace

std::size_t StringHash::operator()(std::string_view s) const {
  return static_cast<std::size_t>(xxh3(s));
}

void WordEncoder::encode(std::string_view word, std::vector<std::int32_t>& out) {
  if (word.size() == 1)
    if (std::int32_t const id = single_[static_cast<unsigned char>(word[0])]; id >= 0) {
      out.push_back(id);
      return;
    }
  if (word.size() > cached_word_bytes) return encode_new(word, out);
  if (auto const found = cache_.find(word); found != cache_.end()) {
    auto const first = cached_ids_.begin() + static_cast<std::ptrdiff_t>(found->second.begin);
    out.insert(out.end(), first, first + static_cast<std::ptrdiff_t>(found->second.count));
    return;
  }
  std::size_t const before = out.size();
  encode_new(word, out);
  if (cache_.size() >= cached_words) {
    cache_.clear();
    cached_ids_.clear();
  }
  cache_.emplace(word, CachedIds{cached_ids_.size(), out.size() - before});
  cached_ids_.insert(cached_ids_.end(), out.begin() + static_cast<std::ptrdiff_t>(before),
                     out.end());
}

}  // namespace tessera::data::detail
