#include "config_commands.hpp"

#include <fmt/format.h>

#include <memory>

#include "tessera/config/arguments.hpp"
#include "tessera/config/reference_pages.hpp"
#include "tessera/config/resolved_config.hpp"

namespace tessera::cli {

void add_config_commands(CLI::App& app) {
  auto* group =
      app.add_subcommand("config", "Check configurations; print the reference of all options");
  group->require_subcommand(1);
  struct Arguments {
    std::string file;
    std::vector<std::string> flags;
    int ranks = 1;
    std::int64_t hidden_size = 0;
  };
  auto const a = std::make_shared<Arguments>();
  auto* check = group->add_subcommand(
      "check",
      "Resolve a DeepSpeed JSON as tessera-train does, and print every value with its origin");
  check->add_option("deepspeed_json", a->file, "DeepSpeed configuration file")->required();
  check->add_option("--ranks", a->ranks, "Number of ranks")->capture_default_str();
  check->add_option("--hidden_size", a->hidden_size,
                    "Hidden size of the model, for bucket sizes that are \"auto\"");
  check->add_option("flags", a->flags, "Further options of tessera-train, after --");
  check->callback([a] {
    std::vector<std::string> words = a->flags;
    words.insert(words.end(), {"--deepspeed", a->file});
    fmt::print("{}\n", config::describe(config::resolve(config::parse_arguments(words), a->ranks,
                                                        a->hidden_size))
                           .dump(2));
  });
  auto* page = group->add_subcommand(
      "page", "Print the Markdown reference of the flags or of the DeepSpeed keys");
  page->add_option("which", a->file, "flags or deepspeed")
      ->required()
      ->check(CLI::IsMember({"flags", "deepspeed"}));
  page->callback([a] {
    fmt::print("{}", a->file == "flags" ? config::arguments_page() : config::deepspeed_page());
  });
}

}  // namespace tessera::cli
