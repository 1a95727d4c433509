#include <cstring>

#include "data/sequences/sequence_file.hpp"
#include "data/text/record_reader.hpp"
#include "fuzz.hpp"
#include "tessera/data/chat/chat_template.hpp"
#include "tessera/data/tokenizer/tokenizer.hpp"

namespace tessera::fuzz {
namespace {

constexpr std::string_view sample =
    "The jargon file's 3rd edition,\n\t  \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80 <|endoftext|> ends   "
    "here.\r\n";

void use(std::filesystem::path const& path) {
  try {
    data::Tokenizer const tokenizer(path);
    (void)tokenizer.decode(tokenizer.encode(sample));
    (void)tokenizer.vocabulary_size();
  } catch (Error const&) {
  }
}

}  // namespace

/// tokenizer.json, and after a zero byte tokenizer_config.json.
void tokenizer(std::string_view bytes) {
  std::filesystem::create_directories(folder() / "tokenizer");
  auto const end = std::min(bytes.find('\0'), bytes.size());
  put("tokenizer/tokenizer.json", bytes.substr(0, end));
  put("tokenizer/tokenizer_config.json", end < bytes.size() ? bytes.substr(end + 1) : "{}");
  use(folder() / "tokenizer");
}

/// vocab.json, and after a zero byte merges.txt.
void vocabulary(std::string_view bytes) {
  std::filesystem::create_directories(folder() / "vocabulary");
  auto const end = std::min(bytes.find('\0'), bytes.size());
  put("vocabulary/vocab.json", bytes.substr(0, end));
  put("vocabulary/merges.txt", end < bytes.size() ? bytes.substr(end + 1) : "");
  use(folder() / "vocabulary");
}

/// A chat template, and after a zero byte the messages.
void chat(std::string_view bytes) {
  auto const end = std::min(bytes.find('\0'), bytes.size());
  std::string_view const messages =
      end < bytes.size() ? bytes.substr(end + 1)
                         : R"([{"role": "user", "content": "\u00e4 b"}, {"role": "assistant"}])";
  try {
    data::ChatTemplate jinja(bytes.substr(0, end), "template");
    jinja.set_limits({100'000, std::int64_t{4} << 20});
    data::Conversation conversation;
    conversation.messages = ConfigTree::parse(messages, "messages");
    auto const rendered = jinja.render(conversation);
    for (auto const& span : rendered.assistant)
      if (span.begin > span.end) throw std::logic_error("a span ends before it begins");
    if (!is_utf8(rendered.text)) throw std::logic_error("the text is not UTF-8");
  } catch (Error const&) {
  }
}

/// First byte: the kind of file.
void records(std::string_view bytes) {
  if (bytes.empty()) return;
  constexpr char const* names[] = {"text.txt",      "text.jsonl", "text.json",   "text.txt.gz",
                                   "text.jsonl.gz", "text.csv",   "text.txt.zst"};
  try {
    data::TextColumn column;
    auto const reader = data::detail::open_records(
        put(names[static_cast<unsigned char>(bytes[0]) % 7], bytes.substr(1)),
        data::LineBreaks::keep, column);
    std::string record;
    for (int i = 0; i < 1000 && reader->next(record);) ++i;
  } catch (Error const&) {
  }
}

/// A cache file of token sequences whose header is consistent.
void blocks(std::string_view bytes) {
  data::SequenceFileHeader header{};
  std::string file(bytes);
  if (file.size() >= sizeof header) {
    std::memcpy(&header, file.data(), sizeof header);
    header.header_sum = data::detail::xxh3(&header, offsetof(data::SequenceFileHeader, header_sum));
    std::memcpy(file.data(), &header, sizeof header);
  }
  try {
    auto const read = data::SequenceFile::open(put("blocks.tsrb", file), header.request_key,
                                               data::SequenceFile::Check::header);
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < read.count(); ++i)
      for (auto const id : read[i]) sum += id;
    volatile std::int64_t const kept = sum;
    (void)kept;
  } catch (Error const&) {
  }
}

}  // namespace tessera::fuzz
