#pragma once
/// SVG pictures from lines, rectangles, dots and text.

#include <string>
#include <vector>

namespace tessera {

/// Positions are in pixels from the upper left corner. A style is a list of SVG attributes.
class Svg {
 public:
  struct Point {
    double x = 0.0, y = 0.0;
  };
  enum class Anchor { start, middle, end };

  /// A white picture.
  Svg(double width, double height);

  /// @param words are escaped
  void text(Point at, Anchor anchor, std::string const& words, std::string const& style = "");
  void line(Point from, Point to, std::string const& style);
  void rectangle(Point corner, double width, double height, std::string const& fill);
  void polyline(std::vector<Point> const& points, std::string const& style);
  /// @param title shown where a pointer rests on the dot
  void dot(Point center, std::string const& fill, std::string const& title = "");
  /// Later positions are relative to @p origin.
  void move_origin(Point origin) { origin_ = origin; }

  /// The complete picture.
  std::string str() const { return text_ + "</svg>\n"; }

 private:
  Point shifted(Point p) const { return {p.x + origin_.x, p.y + origin_.y}; }
  std::string text_;
  Point origin_;
};

}  // namespace tessera
