/// Renders conversations for tests/oracles/chat_templates.py: reads one JSON object per line with
/// `source`, `variables`, `messages` and what else a Conversation has, and writes one object per
/// line: `text` and `spans`, with `ids` and `mask` where the line names a `tokenizer`; or `error`.
#include <iostream>
#include <map>
#include <string>

#include "tessera/data/chat/chat_template.hpp"

using tessera::ConfigTree;
namespace data = tessera::data;

namespace {

ConfigTree member(ConfigTree const& line, char const* name) {
  auto const* found = line.find(name);
  return found ? *found : ConfigTree();
}

ConfigTree spans_of(std::vector<data::TextSpan> const& spans) {
  ConfigTree out = ConfigTree::array();
  for (auto const& span : spans)
    out.push_back(ConfigTree::Array{ConfigTree(static_cast<std::int64_t>(span.begin)),
                                    ConfigTree(static_cast<std::int64_t>(span.end))});
  return out;
}

data::Tokenizer const& tokenizer_at(std::string const& directory) {
  static std::map<std::string, data::Tokenizer> all;
  return all.try_emplace(directory, directory).first->second;
}

ConfigTree rendered(ConfigTree const& line) {
  data::ChatTemplate chat(line.at("source").as_string(), "template", member(line, "variables"));
  chat.set_time(1'700'000'000);
  data::Conversation conversation{member(line, "messages"),
                                  member(line, "tools"),
                                  member(line, "documents"),
                                  member(line, "chat_template_kwargs"),
                                  line.get_bool("add_generation_prompt", false),
                                  line.get_bool("continue_final_message", false)};
  data::RenderedChat const out = chat.render(conversation);
  ConfigTree result = ConfigTree::object();
  result.set("text", out.text).set("spans", spans_of(out.assistant));
  if (line.contains("tokenizer")) {
    auto const encoded = encode_chat(tokenizer_at(line.at("tokenizer").as_string()), out);
    ConfigTree ids = ConfigTree::array(), mask = ConfigTree::array();
    for (auto const id : encoded.ids) ids.push_back(std::int64_t{id});
    for (auto const inside : encoded.assistant) mask.push_back(std::int64_t{inside});
    result.set("ids", ids).set("mask", mask);
  }
  return result;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << rendered(ConfigTree::parse(line, "standard input")).dump() << "\n";
    } catch (tessera::DataError const& error) {
      std::cout << ConfigTree::object().set("error", error.what()).dump() << "\n";
    }
  }
}
