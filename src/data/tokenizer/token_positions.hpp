#pragma once
/// Where tokens are in a text, for masks of what an assistant wrote.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/data/tokenizer/tokenizer.hpp"

namespace tessera::data::detail {

/// The places of the tokens of a normalized text. Spaces and SentencePiece's character for them
/// count as one byte.
class TokenPositions {
 public:
  /// @param surfaces texts of the tokens in order; a byte token is "<0xE2>"
  /// @throws DataError where they do not make the text
  TokenPositions(std::string_view text, std::vector<std::string> const& surfaces);
  TextSpan operator[](std::size_t i) const { return positions_[i]; }
  std::size_t end() const { return size_; }
  /// The end of the text that begins with @p prefix.
  std::size_t of_prefix(std::string_view prefix) const;

 private:
  std::vector<TextSpan> positions_;
  std::size_t size_, added_ = 0;  ///< a space before the text that only the tokens have
};

/// A token's place without spaces at both ends, as a ByteLevel post_processor trims offsets.
/// @param first the token begins the text and keeps one space
TextSpan without_spaces(TextSpan token, std::string_view surface, bool first);

/// Marks tokens that overlap spans, in the order of the text.
class SpanMarker {
 public:
  SpanMarker(std::span<TextSpan const> spans, std::vector<std::uint8_t>& inside)
      : spans_(spans), inside_(inside) {}
  /// The next tokens are in @p piece of the text. @p moved gives for places of the text those that
  /// add() uses.
  void begin_piece(TextSpan piece, std::function<std::size_t(std::size_t)> const& moved);
  void add(TextSpan token);

 private:
  std::span<TextSpan const> spans_;
  std::vector<std::uint8_t>& inside_;
  std::size_t first_ = 0;          ///< index of the first span that does not end before the piece
  std::vector<TextSpan> current_;  ///< spans that overlap the piece, in its places
};

}  // namespace tessera::data::detail
