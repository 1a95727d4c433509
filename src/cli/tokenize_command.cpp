#include "tokenize_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "tessera/data/tokenizer.hpp"

namespace tessera::cli {

void add_tokenize(CLI::App& app) {
  struct Arguments {
    std::string tokenizer, text;
  };
  auto const a = std::make_shared<Arguments>();
  auto* tokenize = app.add_subcommand("tokenize", "Print the token ids of a text");
  tokenize
      ->add_option("tokenizer", a->tokenizer,
                   "Directory with tokenizer.json, or vocab.json and merges.txt")
      ->required();
  tokenize->add_option("text", a->text, "Text to tokenize")->required();
  tokenize->callback([a] {
    auto const tokenizer = data::load_tokenizer(a->tokenizer);
    std::vector<std::int32_t> ids;
    tokenizer->encode(a->text, ids);
    fmt::print("{}\n", fmt::join(ids, " "));
  });
}

}  // namespace tessera::cli
