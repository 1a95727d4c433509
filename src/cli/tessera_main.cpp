// tessera: the tools for login nodes. Under the name zero-to-fp32 it only consolidates, with the
// arguments of DeepSpeed's script.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "commands.hpp"
#include "launch/launch_command.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/train/report/version.hpp"

namespace {

using namespace tessera;

int report(std::string const& program, Error const& error) {
  std::fprintf(stderr, "%s: error: %s\n", program.c_str(), printable(error.what()).c_str());
  return static_cast<int>(error.code());
}

/// UsageError exits with 64; --help and --version with 0.
int parse_and_run(cli::Command& app, std::vector<std::string> const& words,
                  std::string const& program) {
  try {
    app(words);
    return 0;
  } catch (Error const& e) {
    return report(program, e);
  } catch (std::exception const& e) {
    return report(program, to_error(e));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string const program =
      std::filesystem::path(argc > 0 ? argv[0] : "tessera").filename().string();
  bool const consolidates = program == "zero-to-fp32" || program == "zero_to_fp32";
  cli::Command app(consolidates ? program : "tessera",
                   consolidates
                       ? "Consolidates a ZeRO checkpoint into fp32 weights, streaming with at "
                         "most 256 MiB of memory."
                       : "Tessera's tools for login nodes: no MPI, no GPU.");
  app.version([program] { return train::version_text(program, train::build_versions()); });
  if (consolidates) {
    cli::add_consolidate(app);
  } else {
    cli::add_checkpoint_commands(app);
    cli::add_consolidate(app.add_command(
        "zero-to-fp32",
        "Consolidate a checkpoint into fp32 weights (also a program of that name)"));
    cli::add_import(app);
    cli::add_export(app);
    cli::add_merge(app);
    cli::add_plot(app);
    cli::add_config_commands(app);
    cli::add_estimate(app);
    cli::add_plan(app);
    cli::add_simulate(app);
    cli::add_tokenize(app);
    cli::add_tokenizer(app);
    for (auto* add : {cli::add_run, cli::add_status, cli::add_doctor, cli::add_submit,
                      cli::add_launch, cli::add_selftest, cli::add_bench_comm, cli::add_manual})
      add(app);
  }
  return parse_and_run(app, {argv + std::min(argc, 1), argv + argc}, program);
}
