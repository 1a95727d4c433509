#include "tessera/data/chat/chat_template.hpp"

#include <algorithm>
#include <fstream>

#include "chat/interpreter.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t max_source_bytes = std::size_t{1} << 20;
constexpr std::string_view reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

/// A message as transformers passes it on: without null members, and with what an assistant thought
/// under every name that templates read.
ConfigTree normalized(ConfigTree const& message, std::size_t number) {
  TESSERA_VALIDATE(message.is_object(), data::ChatError, "message ", number, " is ",
                   message.type_name(), "; expected an object with role and content");
  ConfigTree out = ConfigTree::object();
  ConfigTree const* reasoning = nullptr;
  for (auto const name : reasoning_names)
    if (auto const* found = message.find(name); found && !found->is_null() && !reasoning)
      reasoning = found;
  if (reasoning) out.set("thinking", *reasoning);
  for (auto const& [key, value] : message.as_object())
    if (!value.is_null()) out.set(key, value);
  if (reasoning) out.set("reasoning_content", *reasoning);
  return out;
}

ConfigTree normalized(ConfigTree const& messages) {
  TESSERA_VALIDATE(messages.is_array() && messages.size() > 0, data::ChatError,
                   "a conversation needs an array of at least one message");
  ConfigTree out = ConfigTree::array();
  for (auto const& message : messages.as_array())
    out.push_back(normalized(message, out.size() + 1));
  return out;
}

constexpr std::string_view continue_tag = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Puts the tag behind the last text of the last message, and returns that text.
std::string tag_last_message(ConfigTree& messages) {
  ConfigTree::Array all = messages.as_array();
  ConfigTree& content = all.back()["content"];
  std::string text;
  if (content.is_string()) {
    text = content.as_string();
    content = text + std::string(continue_tag);
  } else if (content.is_array()) {
    ConfigTree::Array parts = content.as_array();
    auto const part = std::find_if(parts.rbegin(), parts.rend(), [](ConfigTree const& each) {
      return each.find("text") && each.at("text").is_string();
    });
    TESSERA_VALIDATE(part != parts.rend(), data::ChatError,
                     "the last message has no text to continue");
    text = part->at("text").as_string();
    part->set("text", text + std::string(continue_tag));
    content = ConfigTree(std::move(parts));
  } else {
    throw ChatError("the last message has no content to continue");
  }
  messages = ConfigTree(std::move(all));
  return text;
}

/// Ends the text where the last message ends.
void cut_at_tag(RenderedChat& chat, std::string const& last_text) {
  std::size_t const found = chat.text.rfind(detail::stripped(continue_tag, true, true));
  bool const kept = found != std::string::npos &&
                    chat.text.find(detail::stripped(last_text, true, true)) != std::string::npos;
  TESSERA_VALIDATE(kept, data::ChatError,
                   "the template leaves out a part of the last message, so it cannot be continued");
  bool const spaced = chat.text.substr(found).starts_with(continue_tag);
  chat.text.resize(found);
  if (!spaced) chat.text.resize(detail::stripped(chat.text, false, true).size());
  chat.assistant.clear();
}

std::string where_in(detail::Position const& position, detail::Value const& messages) {
  auto const& all = messages.list()->items;
  for (auto item = position.items.rbegin(); item != position.items.rend(); ++item) {
    for (std::size_t i = 0; *item && i < all.size(); ++i) {
      if (all[i].dict() != *item) continue;
      auto const* role = (*item)->find("role");
      return concat(" at message ", i + 1, " of ", all.size(),
                    role && role->text() ? concat(" (role ", role->text()->bytes, ")") : "");
    }
  }
  return "";
}

std::string text_of_file(fs::path const& file) {
  std::ifstream in(file, std::ios::binary);
  TESSERA_VALIDATE(in && fs::is_regular_file(file), IoError,
                   path_error("cannot read", file, in ? EISDIR : errno));
  std::string text(max_source_bytes + 1, '\0');
  text.resize(static_cast<std::size_t>(
      in.read(text.data(), static_cast<std::streamsize>(text.size())).gcount()));
  require_narrow(text, file.string());
  return std::string(without_mark(text));
}

/// The special tokens by name, as the tokenizer reads its files.
ConfigTree special_tokens(ConfigTree const& config, fs::path const& directory) {
  ConfigTree all = config;
  fs::path const map = directory / "special_tokens_map.json";
  if (!config.contains("added_tokens_decoder") && fs::exists(map)) {
    ConfigTree const older = ConfigTree::read(map);
    for (auto const& [name, value] : older.as_object()) all.set(name, value);
  }
  ConfigTree out = ConfigTree::object();
  for (char const* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    auto const* value = all.find(name);
    if (value && value->is_object()) value = value->find("content");
    if (value && value->is_string()) out.set(name, *value);
  }
  return out;
}

}  // namespace

struct ChatTemplate::State {
  std::string name;
  ConfigTree variables;
  detail::Syntax syntax;
  ChatLimits limits;
  std::optional<std::time_t> time;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string name, ConfigTree variables)
    : state_(std::make_unique<State>()) {
  TESSERA_VALIDATE(source.size() <= max_source_bytes, DataError, name, " has ", source.size(),
                   " bytes; a chat template has at most ", max_source_bytes);
  try {
    state_->syntax = detail::parse_template(source);
  } catch (detail::SyntaxError const& error) {
    throw DataError(concat(name, " line ", error.line, ": ", error.message));
  }
  state_->name = std::move(name);
  state_->variables = std::move(variables);
}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

RenderedChat ChatTemplate::render(Conversation const& conversation) const {
  TESSERA_VALIDATE(!conversation.continue_final_message || !conversation.add_generation_prompt,
                   data::ChatError,
                   "a conversation either continues its last message or begins another");
  ConfigTree tree = normalized(conversation.messages);
  std::string last_text;
  if (conversation.continue_final_message) last_text = tag_last_message(tree);
  detail::Budget budget(state_->limits.steps, state_->limits.bytes);
  detail::Interpreter interpreter(budget, state_->time);
  detail::Value messages;
  try {
    for (auto const* variables : {&std::as_const(state_->variables), &conversation.variables})
      if (variables->is_object())
        for (auto const& [name, value] : variables->as_object())
          interpreter.set(name, detail::make_value(budget, value));
    messages = detail::make_value(budget, tree);
    interpreter.set("messages", messages);
    interpreter.set("tools", detail::make_value(budget, conversation.tools));
    interpreter.set("documents", detail::make_value(budget, conversation.documents));
    interpreter.set("add_generation_prompt", detail::Value(conversation.add_generation_prompt));
    interpreter.run(state_->syntax);
  } catch (detail::TemplateError const& error) {
    std::string const where = messages.list() ? where_in(interpreter.position(), messages) : "";
    throw ChatError(
        concat(state_->name, " line ", interpreter.position().line, where, ": ", error.message));
  }
  RenderedChat out{interpreter.output(), interpreter.generation()};
  if (conversation.continue_final_message) cut_at_tag(out, last_text);
  return out;
}

bool ChatTemplate::marks_assistant() const { return state_->syntax.has_generation; }
std::string const& ChatTemplate::name() const { return state_->name; }
void ChatTemplate::set_variables(ConfigTree variables) { state_->variables = std::move(variables); }
void ChatTemplate::set_limits(ChatLimits limits) { state_->limits = limits; }
void ChatTemplate::set_time(std::time_t time) { state_->time = time; }

ChatTemplates ChatTemplates::load(fs::path const& directory, fs::path const& replacement) {
  fs::path const config_file = directory / "tokenizer_config.json";
  ConfigTree config = ConfigTree::object();
  if (fs::exists(config_file)) config = ConfigTree::read(config_file);
  ConfigTree const tokens = special_tokens(config, directory);
  ChatTemplates out;
  out.directory_ = directory.string();
  auto const add = [&](std::string const& name, std::string const& source, std::string where) {
    out.templates_.insert_or_assign(name, ChatTemplate(source, std::move(where), tokens));
  };
  if (!replacement.empty() && !fs::is_directory(replacement)) {
    add("default", text_of_file(replacement), replacement.string());
    return out;
  }
  if (!replacement.empty() && replacement != directory) {
    out = load(replacement);
    TESSERA_VALIDATE(!out.empty(), ConfigError, replacement.string(), " has no chat template");
    for (auto& [name, each] : out.templates_) each.set_variables(tokens);
    return out;
  }
  if (auto const* given = config.find("chat_template"); given && given->is_string()) {
    add("default", given->as_string(), config_file.string() + ": chat_template");
  } else if (given && given->is_array()) {
    for (auto const& each : given->as_array())
      add(each.at("name").as_string(), each.at("template").as_string(),
          concat(config_file.string(), ": chat_template ", each.at("name").as_string()));
  }
  std::map<std::string, fs::path> files;
  fs::path const file = directory / "chat_template.jinja";
  fs::path const more = directory / "additional_chat_templates";
  if (fs::exists(file)) files["default"] = file;
  if (fs::is_directory(more))
    for (auto const& each : fs::directory_iterator(more))
      if (each.path().extension() == ".jinja") files[each.path().stem().string()] = each.path();
  if (!files.empty()) out.templates_.clear();
  for (auto const& [name, path] : files) add(name, text_of_file(path), path.string());
  return out;
}

ChatTemplate const& ChatTemplates::of(Conversation const& conversation) const {
  bool const with_tools = !conversation.tools.is_null();
  auto const tool_use = templates_.find("tool_use");
  auto const standard = templates_.find("default");
  TESSERA_VALIDATE(standard != templates_.end() || (with_tools && tool_use != templates_.end()),
                   ConfigError, directory_,
                   " has no chat template; give one with --chat_template_path FILE.jinja");
  return with_tools && tool_use != templates_.end() ? tool_use->second : standard->second;
}

EncodedChat encode_chat(Tokenizer const& tokenizer, RenderedChat const& chat) {
  EncodedChat out;
  tokenizer.encode_spans(chat.text, chat.assistant, out.ids, out.assistant);
  return out;
}

}  // namespace tessera::data
