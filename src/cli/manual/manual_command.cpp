#include "manual/manual_command.hpp"

#include <fmt/format.h>

#include <memory>

#include "manual/completion.hpp"
#include "manual/man_pages.hpp"
#include "validators.hpp"

namespace tessera::cli {

void add_manual(CLI::App& app) {
  auto const which = std::make_shared<std::string>();
  auto* manual = app.add_subcommand(
      "manual", "Print a man page (for `man -l -`) or the bash completion script");
  manual->add_option("which", *which, "tessera-train, tessera, zero-to-fp32 or completion")
      ->required()
      ->check(one_of({"tessera-train", "tessera", "zero-to-fp32", "completion"}));
  manual->callback([which, &app] {
    std::string const& w = *which;
    fmt::print("{}", w == "tessera-train" ? training_page()
                     : w == "tessera"     ? tools_page(app)
                     : w == "completion"  ? bash_completion(app)
                                          : consolidation_page());
  });
}

}  // namespace tessera::cli
