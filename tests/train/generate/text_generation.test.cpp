#include "tessera/train/generate/text_generation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReadPrompts, TakesLinesOrRecords) {
  ScratchFiles const files;
  EXPECT_THAT(read_prompts(files.write("a.txt", "one\r\n\n two \nthree")),
              ElementsAre("one", " two ", "three"));
  EXPECT_THAT(read_prompts(files.write("a.jsonl", "{\"prompt\": \"a\\nb\"}\n{\"text\": \"c\"}\n")),
              ElementsAre("a\nb", "c"));
}

TEST(ReadPrompts, NamesFileAndLine) {
  ScratchFiles const files;
  auto const refusal = [&](char const* name, std::string const& text) -> std::string {
    try {
      read_prompts(files.write(name, text));
    } catch (DataError const& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(refusal("a.txt", "\n\n"), HasSubstr("a.txt has no prompts"));
  EXPECT_THAT(refusal("b.jsonl", "{\"prompt\": \"a\"}\n{\"question\": \"b\"}\n"),
              HasSubstr("b.jsonl, line 2 has no text"));
  EXPECT_THAT(refusal("c.jsonl", "{\"prompt\": \n"), HasSubstr("c.jsonl, line 1"));
  EXPECT_EQ(read_prompts(files.write("mark.txt", "\xEF\xBB\xBFone\n")).at(0), "one");
  EXPECT_THAT(refusal("wide.txt", std::string("\xFF\xFEo\0n\0e\0", 8)),
              HasSubstr("text in UTF-16"));
  EXPECT_THROW(read_prompts(files.directory() / "missing"), IoError);
  EXPECT_THROW(read_prompts(files.directory()), IoError);
}

TEST(EndsOfText, AreThoseOfTheModelDirectory) {
  ScratchFiles const files;
  auto const of_model = ConfigTree::parse("{\"eos_token_id\": 5}", "config");
  EXPECT_THAT(ends_of_text({}, of_model, 10), ElementsAre(5));
  EXPECT_THAT(ends_of_text(files.directory(), of_model, 10), ElementsAre(5)) << "no such file";
  files.write("generation_config.json", "{\"eos_token_id\": [7, 3, 12]}");
  EXPECT_THAT(ends_of_text(files.directory(), of_model, 10), ElementsAre(7, 3));
  EXPECT_THAT(ends_of_text(files.directory(), of_model, 3), ElementsAre())
      << "outside of the vocabulary";
  files.write("generation_config.json", "{\"eos_token_id\": null}");
  EXPECT_THAT(ends_of_text(files.directory(), of_model, 10), ElementsAre(5));
  files.write("generation_config.json", "{\"eos_token_id\": \"end\"}");
  EXPECT_THROW(ends_of_text(files.directory(), of_model, 10), DataError);
}

}  // namespace
}  // namespace tessera::train
