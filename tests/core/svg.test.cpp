#include "tessera/core/svg.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(Svg, WritesShapesAtTheirPositions) {
  Svg svg(200, 100);
  svg.line({1, 2}, {3, 4}, "stroke='#ddd'");
  svg.rectangle({5, 6}, 7, 8, "red");
  svg.polyline({{0, 1}, {2, 3}}, "stroke='blue'");
  svg.move_origin({100, 10});
  svg.dot({1, 2}, "#000", "a < b");
  svg.text({3, 4}, Svg::Anchor::end, "<&>", "font-size='9'");
  auto const picture = svg.str();
  EXPECT_TRUE(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
  for (char const* part :
       {"viewBox='0 0 200 100'", "<line x1='1.0' y1='2.0' x2='3.0' y2='4.0' stroke='#ddd'/>",
        "<rect x='5.0' y='6.0' width='7' height='8.0' fill='red'/>",
        "<polyline fill='none' stroke='blue' points='0.0,1.0 2.0,3.0 '/>",
        "<circle cx='101.0' cy='12.0' r='5' fill='#000'><title>a &lt; b</title></circle>",
        "<text x='103.0' y='14.0' text-anchor='end' font-size='9'>&lt;&amp;&gt;</text>"})
    EXPECT_THAT(picture, HasSubstr(part));
}

}  // namespace
}  // namespace tessera
