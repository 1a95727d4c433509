#include "commands.hpp"

#include <fmt/format.h>

#include <memory>

#include "plot/loss_plot.hpp"
#include "tessera/core/files.hpp"

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
    write_file_atomically(output, draw_svg(read_loss_curves(run), "Loss of " + a->directory));
    fmt::print("{}\n", output.string());
  });
}

}  // namespace tessera::cli
