#include "tessera/core/svg.hpp"

#include <fmt/format.h>

namespace tessera {
namespace {

std::string escaped(std::string const& words) {
  std::string out;
  for (char const c : words)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

}  // namespace

Svg::Svg(double width, double height)
    : text_(fmt::format(
          "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0:.0f} {1:.0f}' width='{0:.0f}' "
          "height='{1:.0f}' font-family='sans-serif' font-size='12'>\n<rect width='{0:.0f}' "
          "height='{1:.0f}' fill='white'/>\n",
          width, height)) {}

void Svg::text(Point at, Anchor anchor, std::string const& words, std::string const& style) {
  constexpr char const* anchors[] = {"start", "middle", "end"};
  auto const [x, y] = shifted(at);
  text_ += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}'{}>{}</text>\n", x, y,
                       anchors[static_cast<int>(anchor)], style.empty() ? "" : " " + style,
                       escaped(words));
}

void Svg::line(Point from, Point to, std::string const& style) {
  auto const a = shifted(from), b = shifted(to);
  text_ += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' {}/>\n", a.x, a.y,
                       b.x, b.y, style);
}

void Svg::rectangle(Point corner, double width, double height, std::string const& fill) {
  auto const [x, y] = shifted(corner);
  text_ += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:g}' height='{:.1f}' fill='{}'/>\n", x,
                       y, width, height, fill);
}

void Svg::polyline(std::vector<Point> const& points, std::string const& style) {
  text_ += fmt::format("<polyline fill='none' {} points='", style);
  for (auto const& point : points) {
    auto const [x, y] = shifted(point);
    text_ += fmt::format("{:.1f},{:.1f} ", x, y);
  }
  text_ += "'/>\n";
}

void Svg::dot(Point center, std::string const& fill, std::string const& title) {
  auto const [x, y] = shifted(center);
  text_ += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='5' fill='{}'>", x, y, fill);
  if (!title.empty()) text_ += "<title>" + escaped(title) + "</title>";
  text_ += "</circle>\n";
}

}  // namespace tessera
