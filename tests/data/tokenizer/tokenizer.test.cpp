#include "tessera/data/tokenizer/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "error_of.hpp"
#include "scratch_files.hpp"
#include "tessera/core/config_tree.hpp"

using tessera::ConfigTree;
using tessera::ScratchFiles;
using tessera::data::Tokenizer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

namespace {

std::string const vectors = TESSERA_TEST_DATA "/data/vectors/tokenizer/";

ConfigTree const& cases() {
  static ConfigTree const tree = ConfigTree::read(vectors + "cases.json");
  return tree;
}

/// Vectors of models other than BPE and of Falcon's kind, written by tokenizer_models.py.
std::string const more_vectors = TESSERA_TEST_DATA "/data/vectors/tokenizer_models/";

ConfigTree const& cases_of(std::string const& kind) {
  static ConfigTree const tree = ConfigTree::read(more_vectors + "cases.json");
  return cases().at("ids").contains(kind) ? cases() : tree;
}

std::string from_hex(std::string const& hex) {
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

std::string text_of(ConfigTree const& value) {
  return value.is_string() ? value.as_string() : from_hex(value.at("hex").as_string());
}

Ids ids_of(ConfigTree const& value) {
  Ids out;
  for (auto const& id : value.as_array()) out.push_back(static_cast<std::int32_t>(id.as_int()));
  return out;
}

/// The tokenizer that Tessera ships is in configs/.
std::string folder_of(std::string const& kind) {
  if (kind == "gpt2_8m") return TESSERA_TEST_DATA "/../configs/gpt2-8m";
  return (cases().at("ids").contains(kind) ? vectors : more_vectors) + kind;
}

class EqualsHuggingFace : public ::testing::TestWithParam<std::string> {};

TEST_P(EqualsHuggingFace, OnEveryText) {
  Tokenizer const tokenizer(folder_of(GetParam()));
  auto const& texts = cases_of(GetParam()).at("texts").as_array();
  auto const& expected = cases_of(GetParam()).at("ids").at(GetParam()).as_array();
  ASSERT_EQ(texts.size(), expected.size());
  for (int pass = 0; pass < 2; ++pass)  // the second time words come from the cache
    for (std::size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(tokenizer.encode(text_of(texts[i])), ids_of(expected[i]))
          << "text " << i << ": " << texts[i].dump();
}

TEST_P(EqualsHuggingFace, OnTheFacts) {
  Tokenizer const tokenizer(folder_of(GetParam()));
  auto const& facts = cases_of(GetParam()).at("facts").at(GetParam());
  EXPECT_EQ(tokenizer.vocabulary_size(), facts.at("size").as_int());
  EXPECT_EQ(tokenizer.max_id(), facts.at("max_id").as_int());
  EXPECT_EQ(tokenizer.model_max_length(), facts.at("model_max_length").as_int());
  if (facts.at("eos_id").as_int() >= 0) {
    EXPECT_EQ(tokenizer.eos_id(), facts.at("eos_id").as_int());
  }
}

TEST_P(EqualsHuggingFace, OnDecodedText) {
  auto const* expected = cases_of(GetParam()).at("decoded").find(GetParam());
  if (!expected) return;  // tokens of bytes: decoding inverts encoding, below
  Tokenizer const tokenizer(folder_of(GetParam()));
  auto const& ids = cases_of(GetParam()).at("ids").at(GetParam()).as_array();
  for (std::size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(tokenizer.decode(ids_of(ids[i])), expected->as_array()[i].as_string())
        << "text " << i;
}

INSTANTIATE_TEST_SUITE_P(Kinds, EqualsHuggingFace,
                         ::testing::Values("gpt2", "flags", "llama3", "qwen", "o200k", "bigcode",
                                           "narrow", "llama2", "metaspace_first",
                                           "metaspace_always", "metaspace_never", "gemma", "neox",
                                           "nfkc_parts", "unknown", "deepseek", "bloom",
                                           "two_files", "two_files_config", "gpt2_8m", "t5",
                                           "albert", "xlnet", "unigram_bytes", "bert", "bert_cased",
                                           "words", "falcon", "escapes"),
                         [](auto const& info) { return info.param; });

/// prepend_scheme first: before all words that come from the first character of the text. Ids by
/// tokenizers 0.23.3.
TEST(Tokenizer, PutsThePrefixBeforeAllThatTheFirstCharacterBecomes) {
  Tokenizer const tokenizer(folder_of("xlnet"));
  auto const expect = [&](std::string const& text, std::vector<std::int32_t> const& ids) {
    EXPECT_EQ(tokenizer.encode(text), ids) << text;
  };
  expect("\u00B4ab", {16, 2, 6, 32});
  expect("\u00A8\u1CDF a", {2, 6});
  expect("\uFDFA ab", {16, 2, 192, 2, 16, 85, 192, 2, 16, 173, 192, 2, 16, 2, 192, 67, 6, 32});
  expect("\u3000ab", {6, 32});
  expect("\uFFE3", {16, 2});
  expect("ab \u00B4", {16, 6, 32, 2});
}

/// A tokenizer in which a, 1 and ! join the first byte of any other character, if that is in the
/// same word. So the number of ids of "a" + character tells whether GPT-2's word pattern takes the
/// character for a letter (1: a number, !: any other sign).
Tokenizer probe(std::filesystem::path const& folder) {
  ConfigTree tree = ConfigTree::read(vectors + "gpt2/tokenizer.json");
  ConfigTree::Object vocab;
  ConfigTree::Array merges;
  for (auto const& member : tree.at("model").at("vocab").as_object())
    if (member.second.as_int() < 256) vocab.push_back(member);
  for (std::string const left : {"a", "1", "!"})
    for (std::size_t byte = 0; byte < 256; ++byte) {
      merges.emplace_back(left + " " + vocab[byte].first);
      vocab.emplace_back(left + vocab[byte].first, static_cast<int>(vocab.size()));
    }
  tree["model"].set("vocab", ConfigTree(std::move(vocab)));
  tree["model"].set("merges", ConfigTree(std::move(merges)));
  tree["added_tokens"] = ConfigTree::array();
  std::ofstream(folder / "tokenizer.json") << tree.dump();
  return Tokenizer(folder);
}

std::string character(std::uint32_t c) {
  auto const tail = [&](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

TEST(Tokenizer, TakesEveryCharacterOfUnicodeForWhatHuggingFaceDoes) {
  ScratchFiles folder;
  Tokenizer const tokenizer = probe(folder.directory());
  std::string expected(0x110000, 'O');
  ConfigTree const runs = ConfigTree::read(TESSERA_TEST_DATA "/data/vectors/unicode_classes.json");
  for (auto const& run : runs.as_array())
    for (auto c = run.as_array()[0].as_int(); c <= run.as_array()[1].as_int(); ++c)
      expected[static_cast<std::size_t>(c)] = run.as_array()[2].as_string()[0];
  Ids ids;
  for (std::uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string const text = character(c);
    char found = 'S';
    for (char const* kind : {"aL", "1N", "!O"}) {
      ids.clear();
      tokenizer.encode(kind[0] + text, ids);
      if (ids.size() == text.size()) found = kind[1];
    }
    ASSERT_EQ(found, expected[c]) << std::hex << c;
  }
}

TEST(Tokenizer, DecodesWhatItEncoded) {
  for (std::string const kind : {"gpt2", "two_files", "o200k", "bigcode"}) {
    Tokenizer const tokenizer(vectors + kind);
    for (auto const& text : cases().at("texts").as_array())
      if (text.is_string()) {
        EXPECT_EQ(tokenizer.decode(tokenizer.encode(text.as_string())), text.as_string());
      }
  }
}

TEST(Tokenizer, DecodeSkipsSpecialTokensAndUnknownIdsAndReplacesBrokenCharacters) {
  Tokenizer const tokenizer(vectors + "gpt2");
  Ids ids = tokenizer.encode("a<|endoftext|>b");
  EXPECT_EQ(tokenizer.decode(ids, Tokenizer::SpecialTokens::skip), "ab");
  ids.push_back(-1);
  ids.push_back(1000000);
  EXPECT_EQ(tokenizer.decode(ids), "a<|endoftext|>b");
  Ids const half_of_a_face = {tokenizer.find("ð"), tokenizer.find("Ł")};  // F0 9F
  EXPECT_EQ(tokenizer.decode(half_of_a_face), "\uFFFD");
}

/// Characters chosen so that every length and every kind of neighbor comes up; a fixed seed.
std::string random_text(std::mt19937& random, int length) {
  std::string out;
  for (int i = 0; i < length; ++i) {
    std::uint32_t const kind = random() % 8;
    if (kind < 4) {
      out.push_back(static_cast<char>(random() % 128));
    } else if (kind == 4) {
      std::uint32_t const c = 0x80 + random() % 0x780;
      out += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    } else if (kind == 5) {
      std::uint32_t const c = 0x800 + random() % 0xD000;  // below the surrogates
      out += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
              static_cast<char>(0x80 | (c & 63))};
    } else if (kind == 6) {
      std::uint32_t const c = 0x10000 + random() % 0x100000;
      out += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
              static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    } else {
      out += "   ";
    }
  }
  return out;
}

TEST(Tokenizer, RandomTextComesBack) {
  Tokenizer const tokenizer(vectors + "gpt2");
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string const text = random_text(random, static_cast<int>(random() % 100));
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(Tokenizer, RandomBytesAreReadAsTheirReplacement) {
  Tokenizer const tokenizer(vectors + "gpt2");
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 80, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    Ids const ids = tokenizer.encode(bytes);
    ASSERT_EQ(tokenizer.encode(tokenizer.decode(ids)), ids);
  }
}

TEST(Tokenizer, ALongWordIsQuick) {
  Tokenizer const tokenizer(vectors + "gpt2");
  std::string word;
  std::mt19937 random(3);
  for (int i = 0; i < 1000000; ++i) word.push_back(static_cast<char>('a' + random() % 26));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(word)), word);
}

TEST(Tokenizer, FingerprintFollowsTheFiles) {
  Tokenizer const a(vectors + "gpt2"), b(vectors + "gpt2/tokenizer.json"), c(vectors + "flags"),
      d(vectors + "two_files/merges.txt");
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
  EXPECT_NE(a.fingerprint(), c.fingerprint());
  EXPECT_EQ(a.files().size(), 2u);
  EXPECT_EQ(d.files().size(), 2u);
  EXPECT_EQ(tessera::data::load_tokenizer(vectors + "two_files/vocab.json")->fingerprint(),
            d.fingerprint());
}

// ---- errors ----

template <class ErrorType>
std::string file_error(std::filesystem::path const& path) {
  return tessera::error_of<ErrorType>([&] { Tokenizer tokenizer(path); });
}

/// The smallest tokenizer.json: the 256 bytes, one merge.
ConfigTree small_tokenizer() {
  ConfigTree tree = ConfigTree::read(vectors + "gpt2/tokenizer.json");
  ConfigTree::Object vocab;
  for (auto const& member : tree.at("model").at("vocab").as_object())
    if (member.second.as_int() < 256) vocab.push_back(member);
  vocab.emplace_back("th", 256);
  tree["model"].set("vocab", ConfigTree(std::move(vocab)));
  tree["model"].set("merges", ConfigTree(ConfigTree::Array{"t h"}));
  tree["added_tokens"] = ConfigTree::array();
  return tree;
}

template <class ErrorType>
std::string file_error(ConfigTree const& tree) {
  ScratchFiles folder;
  return file_error<ErrorType>(std::filesystem::path(folder.write("tokenizer.json", tree.dump())));
}

TEST(TokenizerFile, TheSmallestOneIsRead) {
  ScratchFiles folder;
  folder.write("tokenizer.json", small_tokenizer().dump());
  Tokenizer const tokenizer(folder.directory());
  EXPECT_THAT(tokenizer.encode("thx"), ElementsAre(256, tokenizer.find("x")));
  EXPECT_EQ(tokenizer.eos_id(), -1);
}

TEST(TokenizerFile, MissingFilesAreNamed) {
  ScratchFiles folder;
  EXPECT_THAT(file_error<tessera::IoError>(folder.directory()),
              HasSubstr("neither tokenizer.json nor tokenizer.model nor both vocab.json and"));
  EXPECT_THAT(file_error<tessera::IoError>(folder.directory() / "none.json"),
              HasSubstr("no such file"));
}

TEST(TokenizerFile, OtherKindsAreRefusedByName) {
  auto tree = small_tokenizer();
  tree["normalizer"] = ConfigTree(ConfigTree::Object{{"type", "ByteLevel"}});
  EXPECT_THAT(file_error<tessera::ConfigError>(tree), HasSubstr("normalizer has type 'ByteLevel'"));
  tree = small_tokenizer();
  tree["model"].set("type", "WordLevel");
  EXPECT_THAT(file_error<tessera::ConfigError>(tree), HasSubstr("model.type is 'WordLevel'"));
  tree = small_tokenizer();
  tree["model"].set("dropout", 0.1);
  EXPECT_THAT(file_error<tessera::ConfigError>(tree), HasSubstr("model.dropout is 0.1"));
  tree = small_tokenizer();
  tree["model"].set("end_of_word_suffix", "</w>");
  EXPECT_THAT(file_error<tessera::ConfigError>(tree), HasSubstr("end_of_word_suffix is '</w>'"));
  tree = small_tokenizer();
  tree["pre_tokenizer"] = ConfigTree(ConfigTree::Object{{"type", "UnicodeScripts"}});
  EXPECT_THAT(file_error<tessera::ConfigError>(tree),
              HasSubstr("pre_tokenizer has type 'UnicodeScripts'"));
  tree = small_tokenizer();
  tree["post_processor"] = ConfigTree(ConfigTree::Object{{"type", "Other"}});
  EXPECT_THAT(file_error<tessera::ConfigError>(tree), HasSubstr("post_processor has type 'Other'"));
}

TEST(TokenizerFile, DamageNamesFileAndField) {
  auto tree = small_tokenizer();
  tree["model"].set("merges", ConfigTree(ConfigTree::Array{"t h", "t he"}));
  EXPECT_THAT(file_error<tessera::DataError>(tree),
              ::testing::AllOf(HasSubstr("tokenizer.json: model.merges[1]"), HasSubstr("'he'")));
  tree["model"].set("merges", ConfigTree(ConfigTree::Array{"th"}));
  EXPECT_THAT(file_error<tessera::DataError>(tree), HasSubstr("model.merges[0] is 'th'"));
  tree["model"].erase("merges");
  EXPECT_THAT(file_error<tessera::DataError>(tree),
              ::testing::AllOf(HasSubstr("tokenizer.json"), HasSubstr("'merges' is missing")));
  tree = small_tokenizer();
  tree["model"]["vocab"].set("xyz", 7);
  EXPECT_THAT(file_error<tessera::DataError>(tree),
              HasSubstr("model.vocab['xyz'] has the id 7, which another token has"));
  tree["model"]["vocab"].set("xyz", std::int64_t{1} << 40);
  EXPECT_THAT(file_error<tessera::DataError>(tree),
              HasSubstr("model.vocab['xyz'] is 1099511627776"));
  tree = small_tokenizer();
  tree["added_tokens"].push_back(ConfigTree(ConfigTree::Object{{"id", 3}, {"content", "<x>"}}));
  EXPECT_THAT(file_error<tessera::DataError>(tree),
              HasSubstr("added_tokens[0]: '<x>' has the id 3, which belongs to another token"));
}

TEST(TokenizerFile, WhatWouldTakeAllMemoryOrTimeIsRefused) {
  auto tree = small_tokenizer();
  tree["model"]["vocab"].set("xyz", std::int64_t{1} << 22);
  EXPECT_THAT(file_error<tessera::DataError>(tree), HasSubstr("model.vocab['xyz'] is 4194304"));
  tree = small_tokenizer();
  ConfigTree::Array steps(1000, ConfigTree(ConfigTree::Object{{"type", "Digits"}}));
  tree["pre_tokenizer"] =
      ConfigTree(ConfigTree::Object{{"type", "Sequence"}, {"pretokenizers", std::move(steps)}});
  EXPECT_THAT(file_error<tessera::ConfigError>(tree), HasSubstr("more than 64 steps"));
  ScratchFiles folder;
  std::filesystem::path const file = folder.write("tokenizer.json", "{");
  std::filesystem::resize_file(file, std::uintmax_t{1} << 40);
  EXPECT_THAT(file_error<tessera::DataError>(file), HasSubstr("1.0 TiB"));
}

TEST(TokenizerFile, ManyAddedTokensAreReadInTheirTime) {
  auto tree = small_tokenizer();
  ConfigTree::Array added;
  for (int i = 0; i < 100'000; ++i)
    added.push_back(ConfigTree(
        ConfigTree::Object{{"id", 1000 + i}, {"content", "<" + std::to_string(i) + ">"}}));
  tree["added_tokens"] = ConfigTree(std::move(added));
  ScratchFiles folder;
  EXPECT_EQ(Tokenizer(folder.write("tokenizer.json", tree.dump())).find("<99999>"), 100'999);
}

TEST(TokenizerFile, CutShortAnywhereItIsAnError) {
  std::string const text = small_tokenizer().dump();
  ScratchFiles folder;
  for (std::size_t size = 0; size + 1 < text.size(); size += 97) {
    std::filesystem::path const file = folder.write("tokenizer.json", text.substr(0, size));
    EXPECT_THAT(file_error<tessera::DataError>(file), HasSubstr("tokenizer.json")) << size;
  }
}

}  // namespace
