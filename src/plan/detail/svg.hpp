#pragma once
/// Parts of SVG pictures.

#include <fmt/format.h>

#include <string>

namespace tessera::plan::detail {

/// The opening tag, with a white background.
inline std::string svg_start(double width, double height) {
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0:.0f} {1:.0f}' width='{0:.0f}' "
      "height='{1:.0f}' font-family='sans-serif' font-size='12'>\n<rect width='{0:.0f}' "
      "height='{1:.0f}' fill='white'/>\n",
      width, height);
}

/// @param anchor start, middle or end
inline std::string svg_text(double x, double y, char const* anchor, std::string const& words) {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}'>{}</text>\n", x, y, anchor,
                     words);
}

}  // namespace tessera::plan::detail
