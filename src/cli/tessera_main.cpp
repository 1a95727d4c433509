// tessera: the tools for login nodes. Under the name zero-to-fp32 it only consolidates, with the
// arguments of DeepSpeed's script.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>

#include "commands.hpp"
#include "launch/launch_command.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/train/report/version.hpp"
#include "validators.hpp"

namespace {

using namespace tessera;

int report(std::string const& program, Error const& error) {
  std::fprintf(stderr, "%s: error: %s\n", program.c_str(), printable(error.what()).c_str());
  return static_cast<int>(error.code());
}

/// Errors of CLI11 (unknown option, missing argument) exit with 64; --help and --version with 0.
int parse_and_run(CLI::App& app, int argc, char** argv, std::string const& program) {
  try {
    std::vector<std::string> words =
        cli::with_training_options(app, cli::launch_words(app, {argv + 1, argv + argc}));
    std::ranges::reverse(words);  // CLI11 takes a vector from its end
    app.parse(std::move(words));
    return 0;
  } catch (CLI::CallForHelp const& e) {
    return app.exit(e);
  } catch (CLI::CallForAllHelp const& e) {
    return app.exit(e);
  } catch (CLI::CallForVersion const& e) {
    return app.exit(e);
  } catch (CLI::ParseError const& e) {
    return report(program, UsageError(cli::usage_error(app, {argv + 1, argv + argc}, e)));
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
  CLI::App app(consolidates ? "Consolidates a ZeRO checkpoint into fp32 weights, streaming with at "
                              "most 256 MiB of memory."
                            : "Tessera's tools for login nodes: no MPI, no GPU.",
               consolidates ? program : "tessera");
  app.set_version_flag("--version",
                       [program] { return train::version_text(program, train::build_versions()); });
  if (consolidates) {
    cli::add_consolidate(app);
  } else {
    app.require_subcommand(1);
    app.get_formatter()->column_width(34);
    cli::add_checkpoint_commands(app);
    cli::add_consolidate(*app.add_subcommand(
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
    for (auto* add : {cli::add_status, cli::add_doctor, cli::add_submit, cli::add_launch,
                      cli::add_selftest, cli::add_bench_comm, cli::add_manual})
      add(app);
  }
  return parse_and_run(app, argc, argv, program);
}
