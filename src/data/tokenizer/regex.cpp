#include "tokenizer/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cctype>
#include <cstdint>

#include "tessera/core/error.hpp"
#include "tokenizer/unicode_additions.hpp"

namespace tessera::data::detail {
namespace {

// White_Space (PropList.txt)
constexpr std::string_view spaces =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

struct Replacement {
  std::size_t length = 0;  ///< length of the escape; 0: none here
  std::string members;
  bool complement = false;
};

std::string members_of(std::string_view category) {
  for (auto const& addition : unicode_additions)
    if (addition.category == category) return concat("\\p{", category, "}", addition.members);
  return concat("\\p{", category, "}");
}

enum class Place { alone, in_class };

/// Oniguruma's words: no joiners, and outside of classes the numbers of Latin-1.
std::string words_of_oniguruma(Place place) {
  std::string out = place == Place::alone ? R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})" : "";
  for (char const* category : {"L", "M", "Nd"}) out += members_of(category);
  return out + R"(\p{Nl}\p{Pc}\x{24B6}-\x{24E9})"
               R"(\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
}

/// The class members for the escape at the start of `rest`: \s, \d, \w, their complements, or
/// \p{Category}.
Replacement replace_escape(std::string_view rest, Place place) {
  char const kind = rest.size() > 1 ? rest[1] : '\0';
  if (kind == 's' || kind == 'S') return {2, std::string(spaces), kind == 'S'};
  if (kind == 'd' || kind == 'D') return {2, members_of("Nd"), kind == 'D'};
  if (kind == 'w' || kind == 'W') return {2, words_of_oniguruma(place), kind == 'W'};
  bool const category = rest.starts_with("\\p{") || rest.starts_with("\\P{");
  std::size_t const end = category ? rest.find('}') : std::string_view::npos;
  if (end == std::string_view::npos) return {};
  return {end + 1, members_of(rest.substr(3, end - 3)), kind == 'P'};
}

/// Rewrites the pattern with these classes. In Oniguruma a class inside a class adds its members;
/// PCRE2 has no such syntax, so the inner brackets are left out. Rejects other syntax inside [...]
/// that the two interpret differently.
std::string translate(std::string_view pattern, std::string const& where) {
  std::string out;
  int classes = 0;  // that are open here
  for (std::size_t i = 0; i < pattern.size();) {
    std::string_view const rest = pattern.substr(i);
    if (rest[0] == '\\') {
      Replacement const found = replace_escape(rest, classes > 0 ? Place::in_class : Place::alone);
      if (found.length == 0 || (classes > 0 && found.complement)) {
        out += rest.substr(0, 2);
        i += 2;
      } else {
        out +=
            classes > 0 ? found.members : concat(found.complement ? "[^" : "[", found.members, "]");
        i += found.length;
      }
      continue;
    }
    TESSERA_VALIDATE(
        classes == 0 ||
            !(rest.starts_with("&&") || rest.starts_with("[^") || rest.starts_with("[:")),
        ConfigError, where, ": the pattern ", pattern,
        " has a complement or a POSIX name inside a class, or an intersection (&&), which Tessera "
        "does not read; write it as alternatives");
    classes += (rest[0] == '[') - (rest[0] == ']' && classes > 0);
    bool const inner = (rest[0] == '[' && classes > 1) || (rest[0] == ']' && classes > 0);
    if (!inner) out += rest[0];
    ++i;
  }
  return out;
}

std::string pcre2_message(int code) {
  char text[256] = {};
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  std::string where;

  ~Code() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
    pcre2_code_free(code);
  }
};

Regex::Regex(std::string_view pattern, std::string const& where) : code_(std::make_unique<Code>()) {
  std::string const text = translate(pattern, where);
  int error = 0;
  PCRE2_SIZE at = 0;
  code_->where = where;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr);
  TESSERA_VALIDATE(code_->code, ConfigError, where, ": the pattern ", pattern,
                   " is not a regular expression that PCRE2 reads: ", pcre2_message(error));
  pcre2_jit_compile(
      code_->code,
      PCRE2_JIT_COMPLETE);  // without JIT support the interpreter gives the same matches
  code_->data = pcre2_match_data_create_from_pattern(code_->code, nullptr);
  code_->context = pcre2_match_context_create(nullptr);
  code_->stack = pcre2_jit_stack_create(std::size_t{32} << 10, std::size_t{16} << 20, nullptr);
  pcre2_jit_stack_assign(code_->context, nullptr, code_->stack);
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::search(std::string_view text, std::size_t from, Match& match) const {
  int const found =
      pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, code_->data, code_->context);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  TESSERA_VALIDATE(found >= 0, DataError, code_->where, ": PCRE2 failed on a text of ", text.size(),
                   " bytes: ", pcre2_message(found), "; break the text into shorter lines");
  PCRE2_SIZE const* const ends = pcre2_get_ovector_pointer(code_->data);
  // \K can put the start anywhere
  TESSERA_VALIDATE(ends[0] >= from && ends[1] > ends[0], DataError, code_->where,
                   ": the pattern matches backward; remove \\K");
  match = {ends[0], ends[1]};
  return true;
}

std::string Regex::quote(std::string_view literal) {
  std::string out;
  for (char const c : literal) {
    if (std::ispunct(static_cast<unsigned char>(c))) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace tessera::data::detail
