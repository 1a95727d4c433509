#include "manual/completion.hpp"

#include <gtest/gtest.h>

#include "launch/run_program.hpp"
#include "scratch_files.hpp"

namespace tessera::cli {
namespace {

using namespace std::chrono_literals;

/// bash itself completes: its answer for the words, one per line.
std::string completed(std::vector<std::string> const& words) {
  CLI::App app("tools", "tessera");
  auto* const checkpoint = app.add_subcommand("checkpoint", "");
  checkpoint->add_subcommand("ls", "")->add_flag("--json");
  checkpoint->add_subcommand("verify", "")->add_flag("--quick");
  app.add_subcommand("plot", "")->add_option("--output", "");
  ScratchFiles const files;
  std::string script = bash_completion(app) + "COMP_WORDS=(tessera";
  for (auto const& word : words) script += " '" + word + "'";
  script += "); COMP_CWORD=" + std::to_string(words.size()) +
            "; _tessera; printf '%s\\n' \"${COMPREPLY[@]}\"\n";
  return output_of({"bash", files.write("completion.sh", script)}, 20s);
}

TEST(Completion, OffersTheWordsOfEachLevel) {
  EXPECT_EQ(completed({"ch"}), "checkpoint\n");
  EXPECT_EQ(completed({"checkpoint", ""}), "--help\nls\nverify\n");
  EXPECT_EQ(completed({"checkpoint", "v"}), "verify\n");
  EXPECT_EQ(completed({"checkpoint", "verify", "--q"}), "--quick\n");
  EXPECT_EQ(completed({"plot", "--o"}), "--output\n");
}

}  // namespace
}  // namespace tessera::cli
