#include "sequences/examples.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "text/record_reader.hpp"

namespace tessera::data::detail {
namespace {

ConfigTree parse(std::string const& record) {
  try {
    return ConfigTree::parse(record, "the record");
  } catch (DataError const& error) {
    throw BrokenRecord(error.what());
  }
}

std::string const& string_in(ConfigTree const& record, std::string const& column) {
  auto const* value = record.find(column);
  TESSERA_VALIDATE(value, data::detail::BrokenRecord, "it has no column '", column,
                   "', which the first record has");
  TESSERA_VALIDATE(value->is_string(), data::detail::BrokenRecord, "column '", column, "' is ",
                   value->type_name(), "; the first record has a string");
  return value->as_string();
}

bool is_list_of_messages(ConfigTree const* value, char const* key) {
  return value && value->is_array() && value->size() > 0 && value->as_array().front().contains(key);
}

bool is_conversational(ExampleForm form) {
  return form == ExampleForm::messages || form == ExampleForm::prompt_completion_messages ||
         form == ExampleForm::preference_messages;
}

std::string names_of(ConfigTree const& record) {
  std::vector<std::string> names;
  for (auto const& member : record.as_object()) names.push_back(member.first);
  return names.empty() ? "no columns" : "the columns " + join(names);
}

ExampleForm form_of_preference(ConfigTree const& record, std::string const& where) {
  bool strings = true, messages = true;
  for (char const* column : {"prompt", "chosen", "rejected"}) {
    auto const* value = record.find(column);
    if (!value && std::string_view(column) == "prompt") continue;
    strings = strings && value && value->is_string();
    messages = messages && is_list_of_messages(value, "role");
  }
  TESSERA_VALIDATE(strings || messages, DataError, where, " has ", names_of(record),
                   "; --task dpo reads chosen and rejected, both strings or both lists of "
                   "messages, and a prompt of the same kind where they do not begin with it");
  return strings ? ExampleForm::preference : ExampleForm::preference_messages;
}

ExampleForm form_of(ConfigTree const& record, ExampleOptions const& options,
                    std::string const& where) {
  if (options.preferences) return form_of_preference(record, where);
  if (options.record_template == RecordTemplate::alpaca) {
    TESSERA_VALIDATE(record.contains("instruction") && record.contains("output"), DataError, where,
                     " has ", names_of(record),
                     "; the template alpaca needs instruction and output, and may have input");
    return ExampleForm::prompt_completion;
  }
  if (is_list_of_messages(record.find("conversations"), "from") ||
      is_list_of_messages(record.find("messages"), "role"))
    return ExampleForm::messages;
  auto const *prompt = record.find("prompt"), *completion = record.find("completion");
  if (is_list_of_messages(prompt, "role") && is_list_of_messages(completion, "role"))
    return ExampleForm::prompt_completion_messages;
  if (prompt && completion && prompt->is_string() && completion->is_string())
    return ExampleForm::prompt_completion;
  TESSERA_VALIDATE(record.contains(options.text_field), DataError, where, " has ", names_of(record),
                   "; --task sft reads ", options.text_field,
                   ", prompt with completion, messages, conversations, or with --record_template "
                   "alpaca instruction, input and output");
  return ExampleForm::text;
}

/// Stanford Alpaca's two prompts (tatsu-lab/stanford_alpaca, train.py).
std::string alpaca_prompt(ConfigTree const& record) {
  std::string const& instruction = string_in(record, "instruction");
  std::string const input = record.contains("input") ? string_in(record, "input") : "";
  return input.empty()
             ? concat(
                   "Below is an instruction that describes a task. Write a response that "
                   "appropriately completes the request.\n\n### Instruction:\n",
                   instruction, "\n\n### Response:")
             : concat(
                   "Below is an instruction that describes a task, paired with an input that "
                   "provides further context. Write a response that appropriately completes the "
                   "request.\n\n### Instruction:\n",
                   instruction, "\n\n### Input:\n", input, "\n\n### Response:");
}

/// ShareGPT's names of roles.
std::string role_of(std::string const& from) {
  return from == "human" ? "user" : from == "gpt" ? "assistant" : from;
}

/// Messages with role and content. @throws BrokenRecord naming the message
ConfigTree messages_of(ConfigTree const& record, char const* column) {
  auto const* list = record.find(column);
  TESSERA_VALIDATE(list && list->is_array() && list->size() > 0, data::detail::BrokenRecord,
                   "column '", column, "' is not a list of messages");
  ConfigTree out = ConfigTree::array();
  std::size_t number = 0;
  for (ConfigTree message : list->as_array()) {
    ++number;
    TESSERA_VALIDATE(message.is_object(), data::detail::BrokenRecord, "message ", number, " of '",
                     column, "' is ", message.type_name(),
                     "; expected an object with role and content");
    if (auto const* from = message.find("from"); from && from->is_string()) {
      message.set("role", role_of(from->as_string()));
      message.erase("from");
      if (auto const* value = message.find("value")) {
        message.set("content", *value);
        message.erase("value");
      }
    }
    auto const* role = message.find("role");
    TESSERA_VALIDATE(role && role->is_string(), data::detail::BrokenRecord, "message ", number,
                     " of '", column, "' has no role");
    constexpr std::array roles{"system", "developer", "user", "assistant", "tool"};
    TESSERA_VALIDATE(std::ranges::count(roles, role->as_string()) == 1, data::detail::BrokenRecord,
                     "message ", number, " of '", column, "' has the role '", role->as_string(),
                     "'; known are system, developer, user, assistant and tool");
    TESSERA_VALIDATE(message.contains("content") || message.contains("tool_calls"),
                     data::detail::BrokenRecord, "message ", number, " of '", column, "' (role ",
                     role->as_string(), ") has no content");
    out.push_back(std::move(message));
  }
  return out;
}

/// What a record says next to its messages; `tools` may be JSON in a string, as TRL reads it.
void read_context(ConfigTree const& record, Conversation& conversation) {
  if (auto const* tools = record.find("tools"); tools && !tools->is_null())
    conversation.tools = tools->is_string() ? parse(tools->as_string()) : *tools;
  if (auto const* variables = record.find("chat_template_kwargs");
      variables && variables->is_object())
    conversation.variables = *variables;
}

std::string roles_of(ConfigTree const& messages) {
  std::vector<std::string> out;
  for (auto const& message : messages.as_array()) out.push_back(message.at("role").as_string());
  return join(out);
}

std::size_t common_prefix(std::vector<std::int32_t> const& a, std::vector<std::int32_t> const& b) {
  auto const ends = std::ranges::mismatch(a, b);
  return static_cast<std::size_t>(ends.in1 - a.begin());
}

/// The first element in which two completions differ, where both begin with their prompt; at most
/// the last of the shorter one, as TRL's extract_prompt finds it.
template <class List>
std::size_t implicit_prompt(List const& chosen, List const& rejected) {
  std::size_t const last = std::min(chosen.size(), rejected.size()) - 1;
  std::size_t i = 0;
  while (i < last && chosen[i] == rejected[i]) ++i;
  return i;
}

/// The bytes of the implicit prompt: complete characters, without a space at the end.
std::size_t implicit_prompt_of(std::string const& chosen, std::string const& rejected) {
  TESSERA_VALIDATE(!chosen.empty() && !rejected.empty(), data::detail::BrokenRecord,
                   "a completion is empty, and there is no prompt");
  std::size_t end = implicit_prompt(chosen, rejected);
  bool const differs = chosen[end] != rejected[end];
  while (end > 0 && (static_cast<unsigned char>(chosen[end]) & 0xC0) == 0x80) --end;
  return differs && end > 0 && chosen[end - 1] == ' ' ? end - 1 : end;
}

/// Leaves the first @p count tokens out of the loss.
void leave_out(std::vector<std::int32_t>& tokens, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) tokens[i] |= not_predicted;
}

}  // namespace

ExampleEncoder::ExampleEncoder(ExampleOptions const& options, std::string const& first_record,
                               std::string const& where, Tokenizer const& tokenizer)
    : options_(options) {
  ConfigTree const first = ConfigTree::parse(first_record, where);
  form_ = form_of(first, options, where);
  check_options(first, where);
  if (is_conversational(form_)) {
    chat_ = ChatTemplates::load(options.tokenizer_directory, options.chat_template);
    TESSERA_VALIDATE(!chat_->empty(), ConfigError, where, " holds messages, and ",
                     options.tokenizer_directory.string(),
                     " has no chat template; give --chat_template_path FILE");
    return;
  }
  std::int32_t const eos =
      options.eos_token.empty() ? tokenizer.eos_id() : tokenizer.find(options.eos_token);
  TESSERA_VALIDATE(
      eos >= 0, ConfigError,
      options.eos_token.empty()
          ? "the tokenizer names no eos_token; give --eos_token TOKEN"
          : concat("--eos_token is ", options.eos_token, ", which is no token of the tokenizer"));
  eos_ = options.eos_token.empty() ? tokenizer.decode(std::vector{eos}) : options.eos_token;
}

void ExampleEncoder::check_options(ConfigTree const& first, std::string const& where) const {
  bool const pairs =
      form_ == ExampleForm::prompt_completion || form_ == ExampleForm::prompt_completion_messages;
  TESSERA_VALIDATE(!options_.completion_only_loss.value_or(false) || pairs, ConfigError,
                   "--completion_only_loss needs prompt and completion, but ", where, " has ",
                   names_of(first), "; leave it out");
  TESSERA_VALIDATE(!options_.assistant_only_loss || is_conversational(form_), ConfigError,
                   "--assistant_only_loss needs messages with roles, but ", where, " has ",
                   names_of(first), "; leave it out");
}

std::string ExampleEncoder::form() const {
  if (options_.preferences)
    return form_ == ExampleForm::preference ? "preferences: chosen and rejected completions"
                                            : "preferences: chosen and rejected messages";
  bool const completion_only = options_.completion_only_loss.value_or(true);
  char const* const loss =
      options_.assistant_only_loss ? ", loss on the assistant's messages"
      : form_ == ExampleForm::text || form_ == ExampleForm::messages || !completion_only
          ? ", loss on all tokens"
          : ", loss on the completion";
  char const* const name = form_ == ExampleForm::text                ? "text"
                           : form_ == ExampleForm::prompt_completion ? "prompt and completion"
                           : form_ == ExampleForm::messages          ? "conversations of messages"
                                                            : "prompt and completion of messages";
  return concat(name, options_.record_template == RecordTemplate::alpaca ? " by alpaca" : "", loss);
}

EncodedBatch ExampleEncoder::encode(Tokenizer const& tokenizer,
                                    std::vector<std::string> const& records) const {
  EncodedBatch out;
  for (std::size_t i = 0; i < records.size(); ++i) {
    try {
      auto const tokens = encode_record(tokenizer, records[i]);
      out.ids.insert(out.ids.end(), tokens.begin(), tokens.end());
    } catch (BrokenRecord const& error) {
      out.broken.emplace_back(i, error.what());
    }
    out.ends.push_back(out.ids.size());
  }
  return out;
}

ExampleEncoder::Tokens ExampleEncoder::encode_record(Tokenizer const& tokenizer,
                                                     std::string const& text) const {
  ConfigTree const record = parse(text);
  Tokens out;
  if (form_ == ExampleForm::text)
    out = tokenizer.encode(with_eos(string_in(record, options_.text_field)));
  else if (form_ == ExampleForm::preference)
    return encode_preference(tokenizer, record);
  else if (form_ == ExampleForm::preference_messages)
    return encode_preference_messages(tokenizer, record);
  else if (form_ != ExampleForm::prompt_completion)
    out = encode_messages(tokenizer, record);
  else if (options_.record_template == RecordTemplate::alpaca)
    out = encode_pair(tokenizer, alpaca_prompt(record), string_in(record, "output"));
  else
    out = encode_pair(tokenizer, string_in(record, "prompt"), string_in(record, "completion"));
  finish(out);
  return out;
}

/// The completion starts where the tokens of the prompt and of both together diverge.
ExampleEncoder::Tokens ExampleEncoder::encode_pair(Tokenizer const& tokenizer,
                                                   std::string const& prompt,
                                                   std::string const& completion) const {
  Tokens out = tokenizer.encode(prompt + with_eos(completion));
  if (options_.completion_only_loss.value_or(true))
    leave_out(out, common_prefix(tokenizer.encode(prompt), out));
  return out;
}

ExampleEncoder::Tokens ExampleEncoder::encode_messages(Tokenizer const& tokenizer,
                                                       ConfigTree const& record) const {
  bool const pairs = form_ == ExampleForm::prompt_completion_messages;
  Conversation conversation;
  read_context(record, conversation);
  conversation.messages = messages_of(record, pairs                              ? "prompt"
                                              : record.contains("conversations") ? "conversations"
                                                                                 : "messages");
  Conversation const prompt = conversation;
  if (pairs) {
    ConfigTree const completion = messages_of(record, "completion");
    for (auto const& message : completion.as_array()) conversation.messages.push_back(message);
  }
  try {
    auto const& chat = chat_->of(conversation);
    RenderedChat rendered = chat.render(conversation);
    if (options_.assistant_only_loss)
      rendered.assistant = assistant_spans(chat, conversation, rendered);
    auto const encoded = encode_chat(tokenizer, rendered);
    Tokens out(encoded.ids.begin(), encoded.ids.end());
    if (options_.assistant_only_loss) {
      for (std::size_t i = 0; i < out.size(); ++i)
        if (!encoded.assistant[i]) out[i] |= not_predicted;
      TESSERA_VALIDATE(std::ranges::count(encoded.assistant, 1) > 0, data::detail::BrokenRecord,
                       "it has no tokens of the assistant");
    }
    if (pairs && options_.completion_only_loss.value_or(true)) {
      Conversation before = prompt;
      before.add_generation_prompt = true;
      auto const ids = encode_chat(tokenizer, chat.render(before)).ids;
      leave_out(out, common_prefix(ids, encoded.ids));
    }
    return out;
  } catch (ChatError const& error) {
    throw BrokenRecord(concat(error.what(), " (roles: ", roles_of(conversation.messages), ")"));
  }
}

ExampleEncoder::Tokens ExampleEncoder::encode_preference(Tokenizer const& tokenizer,
                                                         ConfigTree const& record) const {
  std::string chosen = string_in(record, "chosen"), rejected = string_in(record, "rejected");
  bool const implicit = !record.contains("prompt");
  std::string const prompt = implicit ? chosen.substr(0, implicit_prompt_of(chosen, rejected))
                                      : string_in(record, "prompt");
  if (!implicit) chosen = prompt + chosen, rejected = prompt + rejected;
  return pair_of(tokenizer.encode(prompt), tokenizer.encode(with_eos(chosen)),
                 tokenizer.encode(with_eos(rejected)));
}

ExampleEncoder::Tokens ExampleEncoder::encode_preference_messages(Tokenizer const& tokenizer,
                                                                  ConfigTree const& record) const {
  Conversation conversation;
  read_context(record, conversation);
  ConfigTree const chosen = messages_of(record, "chosen"),
                   rejected = messages_of(record, "rejected");
  bool const implicit = !record.contains("prompt");
  if (!implicit) conversation.messages = messages_of(record, "prompt");
  auto const& messages = chosen.as_array();
  if (implicit)
    for (std::size_t i = 0, end = implicit_prompt(messages, rejected.as_array()); i < end; ++i)
      conversation.messages.push_back(messages[i]);
  try {
    auto const& chat = chat_->of(conversation);
    auto const with = [&](ConfigTree const& completion) {
      Conversation all = conversation;
      std::size_t const skip = implicit ? conversation.messages.size() : 0;
      for (std::size_t i = skip; i < completion.size(); ++i)
        all.messages.push_back(completion.as_array()[i]);
      return encode_chat(tokenizer, chat.render(all)).ids;
    };
    Conversation prompt = conversation;
    prompt.add_generation_prompt = true;
    return pair_of(encode_chat(tokenizer, chat.render(prompt)).ids, with(chosen), with(rejected));
  } catch (ChatError const& error) {
    throw BrokenRecord(
        concat(error.what(), " (roles of the prompt: ", roles_of(conversation.messages), ")"));
  }
}

/// The completions start where the tokens of the prompt and of one of them diverge. A prompt that
/// fills --max_length leaves nothing.
ExampleEncoder::Tokens ExampleEncoder::pair_of(Tokens const& prompt, Tokens chosen,
                                               Tokens rejected) const {
  std::size_t const completion =
      std::min(common_prefix(prompt, chosen), common_prefix(prompt, rejected));
  auto const limit = static_cast<std::size_t>(options_.max_length);
  if (limit > 0 && completion >= limit) return {};
  for (auto* const tokens : {&chosen, &rejected}) {
    TESSERA_VALIDATE(!tokens->empty(), data::detail::BrokenRecord, "a completion has no tokens");
    leave_out(*tokens, completion);
    if (limit > 0 && tokens->size() > limit) tokens->resize(limit);
  }
  rejected.front() |= begins_document;
  chosen.insert(chosen.end(), rejected.begin(), rejected.end());
  return chosen;
}

/// Where the template marks nothing: what an assistant's message adds to the text that ends with
/// the generation prompt. Exact where these texts are prefixes of the conversation's.
std::vector<TextSpan> ExampleEncoder::assistant_spans(ChatTemplate const& chat,
                                                      Conversation const& conversation,
                                                      RenderedChat const& rendered) const {
  if (chat.marks_assistant()) return rendered.assistant;
  std::vector<TextSpan> out;
  Conversation part = conversation;
  part.messages = ConfigTree::array();
  for (auto const& message : conversation.messages.as_array()) {
    bool const assistant = message.at("role").as_string() == "assistant";
    std::string before;
    if (assistant) {
      part.add_generation_prompt = true;
      before = chat.render(part).text;
    }
    part.messages.push_back(message);
    if (!assistant) continue;
    part.add_generation_prompt = false;
    std::string const after = chat.render(part).text;
    TESSERA_VALIDATE(rendered.text.starts_with(after) && after.starts_with(before), ConfigError,
                     "--assistant_only_loss: the chat template has no generation blocks, and the "
                     "text of a conversation does not begin with the text of its first ",
                     part.messages.size(),
                     " messages, so that the assistant's tokens are not known; mark them in the "
                     "template with {% generation %} and {% endgeneration %}");
    out.push_back({before.size(), after.size()});
  }
  return out;
}

std::string ExampleEncoder::with_eos(std::string text) const {
  if (!text.ends_with(eos_)) text += eos_;
  return text;
}

/// Truncates; an example without a token in the loss becomes empty. Packing does both itself.
void ExampleEncoder::finish(Tokens& tokens) const {
  if (options_.packing != Packing::none || options_.max_length == 0) return;
  if (std::ssize(tokens) > options_.max_length)
    tokens.resize(static_cast<std::size_t>(options_.max_length));
  if (std::ranges::all_of(tokens, [](std::int32_t t) { return (t & not_predicted) != 0; }))
    tokens.clear();
}

std::string marked_text(Tokenizer const& tokenizer, std::vector<std::int32_t> const& tokens,
                        std::string_view begin_mark, std::string_view end_mark) {
  std::string out;
  for (std::size_t i = 0; i < tokens.size();) {
    bool const masked = (tokens[i] & not_predicted) != 0;
    if (i > 0 && (tokens[i] & begins_document) != 0) out += "\nrejected: ";
    std::vector<std::int32_t> ids;
    do ids.push_back(tokens[i++] & token_id_bits);
    while (i < tokens.size() && ((tokens[i] & not_predicted) != 0) == masked &&
           (tokens[i] & begins_document) == 0);
    std::string const text = tokenizer.decode(ids);
    out += masked ? text : concat(begin_mark, text, end_mark);
  }
  return out;
}

}  // namespace tessera::data::detail
