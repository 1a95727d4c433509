#include "tessera/train/report/growing_text.hpp"

#include <algorithm>

namespace tessera::train {

std::size_t GrowingText::end_of(std::string_view text) const {
  std::size_t end = text.size();
  for (auto const& stop : stops_) end = std::min(end, text.find(stop));
  return end;
}

std::string_view GrowingText::grow(std::string_view text) {
  constexpr std::string_view replacement = "\xEF\xBF\xBD";
  if (stops(text)) return finish(text);
  while (text.ends_with(replacement)) text.remove_suffix(replacement.size());
  std::size_t held = 0;
  for (std::string_view const stop : stops_)
    for (std::size_t n = std::min(stop.size() - 1, text.size()); n > held; --n)
      if (text.ends_with(stop.substr(0, n))) held = n;
  text.remove_suffix(held);
  auto const more = text.substr(std::min(given_, text.size()));
  given_ = std::max(given_, text.size());
  return more;
}

std::string_view GrowingText::finish(std::string_view text) {
  text = text.substr(0, end_of(text));
  auto const more = text.substr(std::min(given_, text.size()));
  given_ = std::max(given_, text.size());
  return more;
}

}  // namespace tessera::train
