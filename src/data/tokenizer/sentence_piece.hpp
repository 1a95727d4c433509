#pragma once
/// SentencePiece's tokenizer.model by its library, as Hugging Face's slow LlamaTokenizer uses it.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/word_encoder.hpp"

namespace tessera::data::detail {

/// What LlamaTokenizer calls legacy: every text between added tokens gets the prefix of the model.
/// Without it only the beginning of the input does.
enum class DummyPrefix { every_text, input };

/// The processor of a model. Its word is the text between two added tokens.
class SentencePiece : public WordEncoder {
 public:
  /// @param model the bytes of tokenizer.model; @param where names the file. @throws DataError for
  /// another kind of file, ConfigError if this Tessera was built without the library.
  SentencePiece(std::string_view model, std::string const& where, DummyPrefix prefix);
  ~SentencePiece() override;

  int size() const;
  std::string piece(int id) const;
  int bos_id() const;  ///< -1: none
  int eos_id() const;
  int unknown_id() const;
  /// The model writes a space before a text that it encodes.
  bool adds_prefix() const;

 private:
  void encode_new(std::string_view word, std::vector<std::int32_t>& out) override;

  struct Processor;
  std::unique_ptr<Processor> processor_;
  DummyPrefix prefix_;
  std::string unknown_;          ///< text before a word that begins with a space
  std::size_t unknown_ids_ = 0;  ///< ids of that text
};

}  // namespace tessera::data::detail
