#include "tessera/data/chat/chat_template.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "error_of.hpp"
#include "scratch_files.hpp"

using tessera::ConfigTree;
using tessera::DataError;
using tessera::ScratchFiles;
using tessera::data::ChatError;
using tessera::data::ChatTemplate;
using tessera::data::ChatTemplates;
using tessera::data::Conversation;
using ::testing::HasSubstr;

namespace {

std::string const vectors = TESSERA_TEST_DATA "/data/vectors/chat/";

std::string source_of(std::string const& name) {
  std::ifstream in(vectors + name + ".jinja", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

ConfigTree member(ConfigTree const& tree, char const* name) {
  auto const* found = tree.find(name);
  return found ? *found : ConfigTree();
}

Conversation conversation_of(ConfigTree const& tree) {
  return {member(tree, "messages"),
          member(tree, "tools"),
          member(tree, "documents"),
          member(tree, "chat_template_kwargs"),
          tree.get_bool("add_generation_prompt", false),
          false};
}

Conversation chat(std::string const& messages) {
  Conversation out;
  out.messages = ConfigTree::parse(messages, "messages");
  return out;
}

TEST(ChatTemplate, RendersWhatJinjaRenders) {
  ConfigTree const cases = ConfigTree::read(vectors + "cases.json");
  std::map<std::string, ChatTemplate> templates;
  for (auto const& each : cases.as_array()) {
    std::string const name = each.at("name").as_string();
    std::string const file = name.substr(0, name.find(' '));
    if (!templates.contains(file))
      templates.emplace(file, ChatTemplate(source_of(file), file, each.at("variables")));
    ChatTemplate& jinja = templates.at(file);
    jinja.set_time(1'700'000'000);
    ConfigTree const& expected = each.at("expected");
    if (expected.contains("error")) {
      EXPECT_THROW(jinja.render(conversation_of(each)), ChatError) << name;
      continue;
    }
    auto const found = jinja.render(conversation_of(each));
    EXPECT_EQ(found.text, expected.at("text").as_string()) << name;
    auto const& spans = expected.at("spans").as_array();
    ASSERT_EQ(found.assistant.size(), spans.size()) << name;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      EXPECT_EQ(found.assistant[i].begin, spans[i].as_array()[0].as_int()) << name;
      EXPECT_EQ(found.assistant[i].end, spans[i].as_array()[1].as_int()) << name;
    }
  }
}

TEST(ChatTemplate, NamesLineMessageAndRoleOfAnError) {
  ChatTemplate const jinja(
      "{% for m in messages %}\n{% if m.role == 'tool' %}\n{{ raise_exception('no tools') }}"
      "{% endif %}{% endfor %}",
      "model/chat_template.jinja");
  std::string const error = tessera::error_of<ChatError>([&] {
    jinja.render(chat(R"([{"role": "user", "content": ""}, {"role": "tool", "content": ""}])"));
  });
  EXPECT_THAT(error, HasSubstr("model/chat_template.jinja line 3 at message 2 of 2 (role tool)"));
  EXPECT_THAT(error, HasSubstr("no tools"));
}

TEST(ChatTemplate, ContinuesTheLastMessage) {
  ChatTemplate const jinja(
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>{% endfor %}",
      "t");
  Conversation two =
      chat(R"([{"role": "user", "content": "a"}, {"role": "x", "content": "b c "}])");
  two.continue_final_message = true;
  EXPECT_EQ(jinja.render(two).text, "<user>a</user><x>b c");
  two.add_generation_prompt = true;
  EXPECT_THROW(jinja.render(two), ChatError);
}

TEST(ChatTemplates, AreReadAsTransformersReadsThem) {
  ScratchFiles const files;
  auto const write = [&](std::string const& name, std::string const& text) {
    files.write(name, text);
  };
  Conversation plain = chat(R"([{"role": "user", "content": "hi"}])"), tools = plain;
  tools.tools = ConfigTree::array();
  auto const load = [&] { return ChatTemplates::load(files.path()); };
  EXPECT_TRUE(load().empty());
  EXPECT_THROW(load().of(plain), tessera::ConfigError);
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "d"},
      {"name": "tool_use", "template": "t"}], "bos_token": {"content": "<s>"}})");
  EXPECT_EQ(load().of(plain).render(plain).text, "d");
  EXPECT_EQ(load().of(tools).render(tools).text, "t");
  write("chat_template.jinja", "{{ bos_token }}{{ eos_token }}f");
  EXPECT_EQ(load().of(tools).render(tools).text, "<s>f");
  write("other.jinja", "{{ bos_token }}other");
  auto const other = ChatTemplates::load(files.path(), files / "other.jinja");
  EXPECT_EQ(other.of(plain).render(plain).text, "<s>other");
}

}  // namespace
