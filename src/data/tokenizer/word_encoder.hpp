#pragma once
/// A model of a tokenizer: turns one word of the pre_tokenizer into ids.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::data::detail {

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view s) const;
};

/// Keeps the ids of words that recur. Not thread-safe.
class WordEncoder {
 public:
  WordEncoder() { single_.fill(-1); }
  virtual ~WordEncoder() = default;
  WordEncoder(WordEncoder&&) = default;
  WordEncoder& operator=(WordEncoder&&) = default;

  /// Appends the ids of one word.
  void encode(std::string_view word, std::vector<std::int32_t>& out);

 protected:
  /// The ids of a word that is not known.
  virtual void encode_new(std::string_view word, std::vector<std::int32_t>& out) = 0;
  /// Words of one byte that have an id of their own.
  std::array<std::int32_t, 256> single_;

 private:
  struct CachedIds {
    std::size_t begin, count;
  };
  std::unordered_map<std::string, CachedIds, StringHash, std::equal_to<>> cache_;
  std::vector<std::int32_t> cached_ids_;
};

}  // namespace tessera::data::detail
