#pragma once
/// Records of a data set as examples of supervised fine-tuning: which form the records have, and
/// their tokens with the mask of the loss. docs/reference/fine-tuning.md says what TRL does.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/data/chat/chat_template.hpp"
#include "tessera/data/sequences/text_dataset.hpp"
#include "tokenizer/batch_encoder.hpp"

namespace tessera::data::detail {

/// The columns of a record.
enum class ExampleForm {
  text,
  prompt_completion,
  prompt_completion_messages,
  messages,
  preference,
  preference_messages
};

/// Encodes records of one form. Used by several threads.
class ExampleEncoder {
 public:
  /// @param first_record  as JSON; it decides on the form for all
  /// @param where  file and place of it, for messages
  /// @throws DataError for columns that are no known form, ConfigError for options that do not fit
  /// it
  ExampleEncoder(ExampleOptions const& options, std::string const& first_record,
                 std::string const& where, Tokenizer const& tokenizer);

  /// "messages (roles and contents)"
  std::string form() const;
  /// Tokens with flags of each record; of preferences the chosen sequence, then the rejected one,
  /// which begins a document. Examples without a token in the loss are empty; records that
  /// cannot be read are empty too, with the reason in EncodedBatch::broken.
  EncodedBatch encode(Tokenizer const& tokenizer, std::vector<std::string> const& records) const;

 private:
  using Tokens = std::vector<std::int32_t>;
  Tokens encode_record(Tokenizer const& tokenizer, std::string const& record) const;
  Tokens encode_pair(Tokenizer const& tokenizer, std::string const& prompt,
                     std::string const& completion) const;
  Tokens encode_messages(Tokenizer const& tokenizer, ConfigTree const& record) const;
  Tokens encode_preference(Tokenizer const& tokenizer, ConfigTree const& record) const;
  Tokens encode_preference_messages(Tokenizer const& tokenizer, ConfigTree const& record) const;
  Tokens pair_of(Tokens const& prompt, Tokens chosen, Tokens rejected) const;
  std::vector<TextSpan> assistant_spans(ChatTemplate const& chat, Conversation const& conversation,
                                        RenderedChat const& rendered) const;
  std::string with_eos(std::string text) const;
  void check_options(ConfigTree const& first, std::string const& where) const;
  void finish(Tokens& tokens) const;

  ExampleOptions options_;
  ExampleForm form_;
  std::string eos_;
  std::optional<ChatTemplates> chat_;
};

/// The text of an example, with the parts of the loss between two marks.
std::string marked_text(Tokenizer const& tokenizer, std::vector<std::int32_t> const& tokens,
                        std::string_view begin_mark, std::string_view end_mark);

}  // namespace tessera::data::detail
