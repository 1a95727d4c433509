#pragma once
/// Chat templates: conversations rendered as a model's tokenizer directory says, with the text that
/// transformers' apply_chat_template renders.

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/tokenizer/tokenizer.hpp"

namespace tessera::data {

/// A conversation that a template refuses or cannot render. Other conversations may render, so that
/// a reader of records may skip it. The message names the template, its line, and the message with
/// its role; the caller adds file and record.
struct ChatError : DataError {
  using DataError::DataError;
};

/// What a template renders. Members of a message whose value is null are left out.
struct Conversation {
  ConfigTree messages;          ///< array of objects, each with a role
  ConfigTree tools, documents;  ///< arrays of objects; null without
  ConfigTree variables;         ///< object: further variables of the template; null without
  bool add_generation_prompt = false;
  /// Renders up to the end of the last message's content, so that a model continues it.
  bool continue_final_message = false;
};

struct RenderedChat {
  std::string text;
  /// What the template's `generation` blocks rendered, in the order of the text.
  std::vector<TextSpan> assistant;
};

/// The most that rendering one conversation may use. A template is untrusted input.
struct ChatLimits {
  std::int64_t steps = 20'000'000;  ///< expressions evaluated, and 64 bytes of text copied each
  std::int64_t bytes = std::int64_t{256} << 20;  ///< memory of live values, with the conversation
};

/// A parsed template: a subset of Jinja (docs/reference/chat-templates.md) with trim_blocks and
/// lstrip_blocks, as transformers sets them. render() may be called from several threads.
class ChatTemplate {
 public:
  /// @param name of the template in messages: its file
  /// @param variables that each rendering gets: an object with bos_token, eos_token and others
  /// @throws DataError naming the line, for text that is not a template or uses what is refused
  ChatTemplate(std::string_view source, std::string name, ConfigTree variables = {});
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// @throws ChatError
  RenderedChat render(Conversation const& conversation) const;

  /// The template has `generation` blocks, so that RenderedChat::assistant says what a model wrote.
  bool marks_assistant() const;
  std::string const& name() const;

  void set_variables(ConfigTree variables);
  void set_limits(ChatLimits limits);
  /// The time that strftime_now() writes; by default the time of each call.
  void set_time(std::time_t time);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The templates of a tokenizer by name.
class ChatTemplates {
 public:
  /// Reads what transformers reads from a tokenizer's directory: chat_template.jinja and
  /// additional_chat_templates/NAME.jinja, else `chat_template` of tokenizer_config.json, one
  /// template or a list of named ones. Special tokens are those of tokenizer_config.json and
  /// special_tokens_map.json.
  /// @param replacement `--chat_template_path`: a template file, or another tokenizer's directory
  /// @throws IoError, DataError naming the file
  static ChatTemplates load(std::filesystem::path const& directory,
                            std::filesystem::path const& replacement = {});

  bool empty() const { return templates_.empty(); }
  /// The template named `tool_use` for a conversation with tools where there is one, else
  /// `default`.
  /// @throws ConfigError if there is none
  ChatTemplate const& of(Conversation const& conversation) const;
  std::map<std::string, ChatTemplate> const& all() const { return templates_; }

 private:
  std::string directory_;
  std::map<std::string, ChatTemplate> templates_;
};

struct EncodedChat {
  std::vector<std::int32_t> ids;
  /// 1 for each token with text of RenderedChat::assistant: transformers' assistant_masks.
  std::vector<std::uint8_t> assistant;
};

/// The ids of a rendered conversation: special tokens in it are recognized, and none is added,
/// because the template writes them.
EncodedChat encode_chat(Tokenizer const& tokenizer, RenderedChat const& chat);

}  // namespace tessera::data
