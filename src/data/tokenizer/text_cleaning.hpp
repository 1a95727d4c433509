#pragma once
/// Changes of single characters, as normalizers of Hugging Face's tokenizers make them.

#include <string>
#include <string_view>

namespace tessera::data::detail {

bool is_white_space(char32_t code);  ///< White_Space of Unicode

/// Normalizer Nmt: removes control characters, and writes several kinds of space as a space.
std::string nmt_cleaned(std::string_view text);
/// Lower case of each character by itself.
std::string lowercased(std::string_view text);
/// StripAccents: removes combining marks; does not decompose.
std::string without_combining_marks(std::string_view text);

/// The steps of BertNormalizer; strip_accents needs NFD before it.
std::string bert_cleaned(std::string_view text);
std::string with_spaced_ideographs(std::string_view text);
std::string without_nonspacing_marks(std::string_view text);

}  // namespace tessera::data::detail
