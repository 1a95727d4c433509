#include "detail/number_text.hpp"

#include <charconv>

namespace tessera::config::detail {

ConfigTree number_from(std::string const& text) {
  char const* first = text.data() + (text.starts_with('+') ? 1 : 0);
  char const* const last = text.data() + text.size();
  std::int64_t integer = 0;
  if (auto const [end, error] = std::from_chars(first, last, integer);
      error == std::errc() && end == last)
    return integer;
  double real = 0.0;
  if (auto const [end, error] = std::from_chars(first, last, real);
      error == std::errc() && end == last)
    return real;
  return {};
}

}  // namespace tessera::config::detail
