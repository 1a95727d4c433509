#include "commands.hpp"

#include <fmt/format.h>

#include <memory>

#include "plot/loss_plot.hpp"
#include "tessera/core/files.hpp"

namespace tessera::cli {

void add_plot(Command& app) {
  struct Arguments {
    std::string directory, output;
  };
  auto const a = std::make_shared<Arguments>();
  auto& plot = app.add_command("plot", "Draw the loss curve of a run as SVG");
  plot.add("run_directory DIR", a->directory, "the run's output_dir").required();
  plot.add("-o,--output PATH", a->output, "SVG file (default: loss.svg in the run directory)");
  plot.run([a] {
    std::filesystem::path const run = a->directory;
    std::filesystem::path const output =
        a->output.empty() ? run / "loss.svg" : std::filesystem::path(a->output);
    write_file_atomically(output, draw_svg(read_loss_curves(run), "Loss of " + a->directory));
    fmt::print("{}\n", output.string());
  });
}

}  // namespace tessera::cli
