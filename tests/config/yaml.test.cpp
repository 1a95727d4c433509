#include "detail/accelerate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

using ::testing::HasSubstr;

std::string refusal(std::string const& text) {
  return error_of<DataError>([&] { parse_yaml(text, "a.yaml"); });
}

TEST(Yaml, ScalarsAreThoseOfPyYaml) {
  EXPECT_EQ(parse_yaml("a: 1\nb: -2.5\nc: no\nd: 'no'\ne: null\nf:\ng: text, more\nh: [x, 2]\n"
                       "i: {j: yes}\nk: \"7\"\n",
                       "a.yaml")
                .dump(),
            R"({"a":1,"b":-2.5,"c":false,"d":"no","e":null,"f":null,"g":"text, more",)"
            R"("h":["x",2],"i":{"j":true},"k":"7"})");
  EXPECT_TRUE(parse_yaml("# nothing\n", "a.yaml").is_null());
}

TEST(Yaml, ErrorsNameTheLine) {
  EXPECT_THAT(refusal("a: 1\nb: [1, 2\n"), HasSubstr("a.yaml is not valid YAML: line"));
  EXPECT_THAT(refusal("a: 1\na: 2\n"), HasSubstr("line 2, column 1: the key 'a' appears twice"));
  EXPECT_THAT(refusal("a: &x 1\nb: *x\n"), HasSubstr("anchors and aliases"));
  EXPECT_THAT(refusal("a: 1\n---\nb: 2\n"), HasSubstr("more than one document"));
  EXPECT_THAT(refusal(std::string(100, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal("[a]: 1\n"), HasSubstr("a key must be text"));
}

TEST(Yaml, FilesAreReadUpToASize) {
  ScratchFiles const files;
  EXPECT_EQ(read_yaml(files.write("a.yaml", "x: 1\n")).dump(), R"({"x":1})");
  EXPECT_THROW(read_yaml(files.write("big.yaml", std::string(2 << 20, '#'))), DataError);
  EXPECT_THROW(read_yaml(files.directory() / "none.yaml"), IoError);
}

}  // namespace
}  // namespace tessera::config::detail
