#include "sequences/examples.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "error_of.hpp"
#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

using ::testing::HasSubstr;
using Texts = std::vector<std::string>;

class Examples : public ::testing::Test {
 protected:
  Examples() { options_.eos_token = "!"; }
  ExampleEncoder encoder(std::string const& first) const {
    return {options_, first, "data.jsonl line 1", tokenizer_};
  }
  /// The texts of the examples; [[...]] is in the loss.
  Texts shown(Texts const& records) const {
    auto const batch = encoder(records.front()).encode(tokenizer_, records);
    EXPECT_TRUE(batch.broken.empty());
    Texts out;
    std::size_t begin = 0;
    for (std::size_t const end : batch.ends) {
      out.push_back(marked_text(tokenizer_,
                                {batch.ids.begin() + static_cast<long>(begin),
                                 batch.ids.begin() + static_cast<long>(end)},
                                "[[", "]]"));
      begin = end;
    }
    return out;
  }
  Tokenizer tokenizer_{TESSERA_TEST_DATA "/data/vectors/tokenizer/narrow"};
  ExampleOptions options_;
};

TEST_F(Examples, OfTextEndWithTheEosToken) {
  EXPECT_EQ(shown({R"({"text": "ab"})", R"({"text": "cd!", "id": 7})"}),
            (Texts{"[[ab!]]", "[[cd!]]"}));
}

TEST_F(Examples, OfPromptsHaveTheLossOnTheCompletion) {
  Texts const records{R"({"prompt": "1 2", "completion": " 3"})"};
  EXPECT_EQ(shown(records), Texts{"1 2[[ 3!]]"});
  options_.completion_only_loss = false;
  EXPECT_EQ(shown(records), Texts{"[[1 2 3!]]"});
}

TEST_F(Examples, OfAlpacaAreStanfordsPrompts) {
  options_.record_template = RecordTemplate::alpaca;
  tokenizer_ = Tokenizer(TESSERA_TEST_DATA "/../configs/gpt2-8m");  // has capitals
  auto const out = shown({R"({"instruction": "Add.", "input": "1 2", "output": "3"})",
                          R"({"instruction": "Add.", "input": "", "output": "3"})"});
  EXPECT_THAT(out[0],
              HasSubstr("### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:[[3!]]"));
  EXPECT_THAT(out[1], HasSubstr("request.\n\n### Instruction:\nAdd.\n\n### Response:[[3!]]"));
}

/// ChatML, with and without generation blocks.
class Chats : public Examples {
 protected:
  Chats() {
    write_template("{% generation %}", "{% endgeneration %}");
    options_.tokenizer_directory = TESSERA_TEST_DATA "/data/vectors/tokenizer/narrow";
    options_.chat_template = folder_.directory() / "chat.jinja";
    options_.eos_token.clear();
  }
  void write_template(std::string const& begin, std::string const& end) {
    std::ofstream(folder_.directory() / "chat.jinja")
        << "{% for m in messages %}{{ m.role[0] + ':' }}{% if m.role == 'assistant' %}" << begin
        << "{{ m.content + ';' }}" << end
        << "{% elif m.role == 'tool' %}{{ raise_exception('no tools') }}"
           "{% else %}{{ m.content + ';' }}{% endif %}{% endfor %}"
           "{% if add_generation_prompt %}a:{% endif %}";
  }
  ScratchFiles folder_;
};

std::string const two_turns =
    R"({"messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"},
        {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}]})";

TEST_F(Chats, AreRendered) {
  EXPECT_EQ(shown({two_turns}), Texts{"[[u:1;a:2;u:3;a:4;]]"});
  EXPECT_EQ(shown({R"({"conversations": [{"from": "human", "value": "1"},
                                         {"from": "gpt", "value": "2"}]})"}),
            Texts{"[[u:1;a:2;]]"});
  EXPECT_EQ(shown({R"({"prompt": [{"role": "user", "content": "1"}],
                       "completion": [{"role": "assistant", "content": "2"}]})"}),
            Texts{"u:1;a:[[2;]]"});
}

TEST_F(Chats, HaveTheLossOnTheAssistantsMessages) {
  options_.assistant_only_loss = true;
  EXPECT_EQ(shown({two_turns}), Texts{"u:1;a:[[2;]]u:3;a:[[4;]]"});
  write_template("", "");
  EXPECT_EQ(shown({two_turns}), Texts{"u:1;a:[[2;]]u:3;a:[[4;]]"}) << "by prefixes";
}

TEST_F(Chats, OfPreferencesShareTheirFirstMessages) {
  options_.preferences = true;
  EXPECT_EQ(shown({R"({"prompt": [{"role": "user", "content": "1"}],
                       "chosen": [{"role": "assistant", "content": "2"}],
                       "rejected": [{"role": "assistant", "content": "3"}]})"}),
            Texts{"u:1;a:[[2;]]\nrejected: u:1;a:[[3;]]"});
  EXPECT_EQ(
      shown(
          {R"({"chosen": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}],
                     "rejected": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "3"}]})"}),
      Texts{"u:1;a:[[2;]]\nrejected: u:1;a:[[3;]]"});
}

TEST_F(Chats, NameTheRolesThatATemplateRefuses) {
  Texts const records{two_turns, R"({"messages": [{"role": "user", "content": "1"},
                                                  {"role": "tool", "content": "2"}]})",
                      R"({"messages": [{"role": "robot", "content": "1"}]})",
                      R"({"messages": [{"role": "user"}]})"};
  auto const batch = encoder(records.front()).encode(tokenizer_, records);
  ASSERT_EQ(batch.broken.size(), 3);
  EXPECT_THAT(batch.broken[0].second, HasSubstr("no tools"));
  EXPECT_THAT(batch.broken[0].second, HasSubstr("(roles: user, tool)"));
  EXPECT_THAT(batch.broken[1].second, HasSubstr("message 1 of 'messages' has the role 'robot'"));
  EXPECT_THAT(batch.broken[2].second, HasSubstr("(role user) has no content"));
}

TEST_F(Examples, OfPreferencesAreTwoSequences) {
  options_.preferences = true;
  EXPECT_EQ(shown({R"({"prompt": "1 2", "chosen": " 3", "rejected": "ab!"})"}),
            Texts{"1 2[[ 3!]]\nrejected: 1 2[[ab!]]"});
  // without a prompt: what both begin with, as complete characters and without a space at the end;
  // the last character of the shorter one is no prompt
  EXPECT_EQ(
      shown({R"({"chosen": "1 b", "rejected": "1 cd"})", R"({"chosen": "1é", "rejected": "1è"})",
             R"({"chosen": "12", "rejected": "123"})"}),
      (Texts{"1[[ b!]]\nrejected: 1[[ cd!]]", "1[[é!]]\nrejected: 1[[è!]]",
             "1[[2!]]\nrejected: 1[[23!]]"}));
  options_.max_length = 3;
  EXPECT_EQ(shown({R"({"prompt": "12", "chosen": "34", "rejected": ""})",
                   R"({"prompt": "123", "chosen": "4", "rejected": "5"})"}),
            (Texts{"12[[3]]\nrejected: 12[[!]]", ""}));
  EXPECT_THAT(error_of<DataError>([&] { encoder(R"({"prompt": "x", "chosen": "y"})"); }),
              HasSubstr("--task dpo reads chosen and rejected"));
}

TEST_F(Examples, LongerThanTheLimitAreCutOrEmpty) {
  options_.max_length = 2;
  EXPECT_EQ(shown({R"({"prompt": "a", "completion": "bcd"})",
                   R"({"prompt": "abcd", "completion": "e"})"}),
            (Texts{"a[[b]]", ""}));
}

TEST_F(Examples, NameBrokenRecordsAndUnknownColumns) {
  Texts const records{R"({"text": "ab"})", R"({"text": 7})", R"({"other": "x"})", "{"};
  auto const batch = encoder(records.front()).encode(tokenizer_, records);
  ASSERT_EQ(batch.broken.size(), 3);
  EXPECT_EQ(batch.broken[0].first, 1);
  EXPECT_THAT(batch.broken[0].second, HasSubstr("column 'text' is"));
  EXPECT_THAT(batch.broken[1].second, HasSubstr("no column 'text'"));
  EXPECT_EQ(batch.ends.back(), 3);
  EXPECT_THAT(error_of<DataError>([&] { encoder(R"({"a": "x", "b": 1})"); }),
              HasSubstr("data.jsonl line 1 has the columns a, b; --task sft reads text, prompt"));
  options_.completion_only_loss = true;
  EXPECT_THAT(error_of<ConfigError>([&] { encoder(R"({"text": "x"})"); }),
              HasSubstr("--completion_only_loss needs prompt and completion"));
  options_.completion_only_loss.reset();
  options_.assistant_only_loss = true;
  EXPECT_THAT(error_of<ConfigError>([&] { encoder(R"({"text": "x"})"); }),
              HasSubstr("--assistant_only_loss needs messages"));
  options_.assistant_only_loss = false;
  options_.eos_token = "<none>";
  EXPECT_THAT(error_of<ConfigError>([&] { encoder(R"({"text": "x"})"); }),
              HasSubstr("--eos_token is <none>, which is no token"));
}

}  // namespace
}  // namespace tessera::data::detail
