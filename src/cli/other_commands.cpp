// tessera plot, tessera config, tessera tokenize.
#include <fmt/format.h>

#include <memory>

#include "commands.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/data/tokenizer.hpp"
#include "tessera/train/arguments.hpp"
#include "tessera/train/deepspeed_config.hpp"
#include "tessera/train/plot.hpp"

namespace tessera::cli {

void add_plot(CLI::App& app) {
  struct Arguments {
    std::string directory, output;
  };
  auto const a = std::make_shared<Arguments>();
  auto* plot = app.add_subcommand("plot", "Draw the loss curve of a run as SVG");
  plot->add_option("run_directory", a->directory, "The run's output_dir")->required();
  plot->add_option("-o,--output", a->output, "SVG file (default: loss.svg in the run directory)");
  plot->callback([a] {
    std::filesystem::path const run = a->directory;
    std::filesystem::path const output =
        a->output.empty() ? run / "loss.svg" : std::filesystem::path(a->output);
    write_file_atomically(output,
                          train::draw_svg(train::read_loss_curves(run), "Loss of " + a->directory));
    fmt::print("{}\n", output.string());
  });
}

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
      "Resolve a DeepSpeed JSON as tessera-train would, and print every value with its origin");
  check->add_option("deepspeed_json", a->file, "DeepSpeed configuration file")->required();
  check->add_option("--ranks", a->ranks, "Number of ranks")->capture_default_str();
  check->add_option("--hidden_size", a->hidden_size,
                    "Of the model, for bucket sizes that are \"auto\"");
  check->add_option("flags", a->flags, "Flags of tessera-train, after --");
  check->callback([a] {
    std::vector<std::string> words = a->flags;
    words.insert(words.end(), {"--deepspeed", a->file});
    fmt::print("{}\n", train::describe(
                           train::resolve(train::parse_arguments(words), a->ranks, a->hidden_size))
                           .dump(2));
  });
  auto* page = group->add_subcommand("page", "Markdown reference: flags, or deepspeed");
  page->add_option("which", a->file, "flags or deepspeed")
      ->required()
      ->check(CLI::IsMember({"flags", "deepspeed"}));
  page->callback([a] {
    fmt::print("{}", a->file == "flags" ? train::arguments_page() : train::deepspeed_page());
  });
}

void add_tokenize(CLI::App& app) {
  struct Arguments {
    std::string tokenizer, text;
  };
  auto const a = std::make_shared<Arguments>();
  auto* tokenize = app.add_subcommand("tokenize", "Token ids of a text");
  tokenize
      ->add_option("tokenizer", a->tokenizer,
                   "Directory with tokenizer.json, or vocab.json and merges.txt")
      ->required();
  tokenize->add_option("text", a->text, "The text")->required();
  tokenize->callback([a] {
    auto const tokenizer = data::load_tokenizer(a->tokenizer);
    std::vector<std::int32_t> ids;
    tokenizer->encode(a->text, ids);
    fmt::print("{}\n", fmt::join(ids, " "));
  });
}

}  // namespace tessera::cli
