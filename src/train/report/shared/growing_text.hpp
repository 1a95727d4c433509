#pragma once
/// Text that grows while its tokens are generated, up to a stop string.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::train {

class GrowingText {
 public:
  /// @param stops  the text ends before the first of these that it contains
  explicit GrowingText(std::vector<std::string> stops = {}) : stops_(std::move(stops)) {}

  /// @return what @p text has more than the last call returned, without what may still change: a
  /// last character of which bytes are missing (decoders write it as U+FFFD), and the beginning of
  /// a stop string
  std::string_view grow(std::string_view text);
  /// Returns what @p text adds, including the end that grow() holds back.
  std::string_view finish(std::string_view text);
  /// Whether @p text contains a stop string.
  bool stops(std::string_view text) const { return end_of(text) < text.size(); }

 private:
  /// Where the first stop string begins; the size of the text without one.
  std::size_t end_of(std::string_view text) const;

  std::vector<std::string> stops_;
  std::size_t given_ = 0;
};

}  // namespace tessera::train
