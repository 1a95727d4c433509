#include "tokenize_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <iterator>
#include <memory>

#include "installation.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/tokenizer.hpp"

namespace tessera::cli {
namespace {

std::string standard_input() {
  std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  TESSERA_VALIDATE(!std::cin.bad(), IoError, "cannot read standard input");
  return text;
}

}  // namespace

void add_tokenize(CLI::App& app) {
  struct Arguments {
    std::string tokenizer, text, file;
  };
  auto const a = std::make_shared<Arguments>();
  auto* tokenize =
      app.add_subcommand("tokenize", "Print the token ids of a text, a file or standard input");
  tokenize
      ->add_option("tokenizer", a->tokenizer,
                   "Directory with tokenizer.json, or vocab.json and merges.txt")
      ->required();
  auto* const text =
      tokenize->add_option("text", a->text, "Text to tokenize; - or none: standard input");
  tokenize->add_option("-f,--file", a->file, "File to tokenize; -: standard input")->excludes(text);
  tokenize->callback([a, text] {
    auto const tokenizer = data::load_tokenizer(a->tokenizer);
    bool const from_file = !a->file.empty() && a->file != "-";
    bool const has_text = text->count() > 0 && a->text != "-";
    std::vector<std::int32_t> ids;
    tokenizer->encode(from_file ? read_text(a->file) : has_text ? a->text : standard_input(), ids);
    fmt::print("{}\n", fmt::join(ids, " "));
  });
}

}  // namespace tessera::cli
