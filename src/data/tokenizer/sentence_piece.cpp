#include "tokenizer/sentence_piece.hpp"

#ifdef TESSERA_HAVE_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

#include "tessera/core/error.hpp"

namespace tessera::data::detail {

#ifdef TESSERA_HAVE_SENTENCEPIECE

struct SentencePiece::Processor {
  sentencepiece::SentencePieceProcessor library;

  std::vector<int> encode(std::string_view text) const {
    std::vector<int> ids;
    auto const status = library.Encode({text.data(), text.size()}, &ids);
    TESSERA_VALIDATE(status.ok(), DataError, "SentencePiece cannot encode a text of ", text.size(),
                     " bytes: ", status.ToString());
    return ids;
  }
};

SentencePiece::SentencePiece(std::string_view model, std::string const& where, DummyPrefix prefix)
    : processor_(std::make_unique<Processor>()), prefix_(prefix) {
  std::string bytes(model);
  // A message that follows another one of the same type is merged into it: this one sets
  // normalizer_spec.add_dummy_prefix (fields 3 and 3 of sentencepiece_model.proto) to false.
  if (prefix == DummyPrefix::input) bytes.append("\x1A\x02\x18\x00", 4);
  auto const status = processor_->library.LoadFromSerializedProto(bytes);
  TESSERA_VALIDATE(status.ok() && size() > 0, DataError, where,
                   " is not a model of SentencePiece (", status.ToString(),
                   "); Llama 3's original tokenizer.model is tiktoken's: use its tokenizer.json");
  unknown_ = unknown_id() >= 0 ? piece(unknown_id()) : "<unk>";
  unknown_ids_ = processor_->encode(unknown_).size();
}

int SentencePiece::size() const { return processor_->library.GetPieceSize(); }
std::string SentencePiece::piece(int id) const { return processor_->library.IdToPiece(id); }
int SentencePiece::bos_id() const { return processor_->library.bos_id(); }
int SentencePiece::eos_id() const { return processor_->library.eos_id(); }
int SentencePiece::unknown_id() const { return processor_->library.unk_id(); }
bool SentencePiece::adds_prefix() const {
  auto const ids = processor_->encode("a");
  return !ids.empty() && piece(ids[0]).starts_with("\u2581");
}

/// Encodes a word. Without the dummy prefix the library drops a space in front. LlamaTokenizer
/// keeps it by writing the unknown token before it, and leaves out the ids of that.
void SentencePiece::encode_new(std::string_view word, std::vector<std::int32_t>& out) {
  bool const keeps_space =
      prefix_ == DummyPrefix::input && (word.starts_with(' ') || word.starts_with("\u2581"));
  std::vector<int> const ids =
      processor_->encode(keeps_space ? unknown_ + std::string(word) : std::string(word));
  std::size_t const first = keeps_space && ids.size() >= unknown_ids_ ? unknown_ids_ : 0;
  out.insert(out.end(), ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
}

#else

struct SentencePiece::Processor {};

SentencePiece::SentencePiece(std::string_view, std::string const& where, DummyPrefix) {
  throw ConfigError(
      concat(where,
             " is SentencePiece's, and this Tessera was built without its library; install "
             "libsentencepiece-dev and build again, or convert it once: python -c \"import "
             "transformers; transformers.AutoTokenizer.from_pretrained('DIR')"
             ".save_pretrained('DIR')\""));
}

int SentencePiece::size() const { return 0; }
std::string SentencePiece::piece(int) const { return ""; }
int SentencePiece::bos_id() const { return -1; }
int SentencePiece::eos_id() const { return -1; }
int SentencePiece::unknown_id() const { return -1; }
bool SentencePiece::adds_prefix() const { return false; }
void SentencePiece::encode_new(std::string_view, std::vector<std::int32_t>&) {}

#endif

SentencePiece::~SentencePiece() = default;

}  // namespace tessera::data::detail
