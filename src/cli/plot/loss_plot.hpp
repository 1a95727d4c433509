#pragma once
/// The loss curve of a run as an SVG picture, and the learning rate by step as CSV and SVG.

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::cli {

struct CurvePoint {
  double step = 0.0;
  double value = 0.0;
};

struct LossCurves {
  std::vector<CurvePoint> training;    ///< loss of each step
  std::vector<CurvePoint> evaluation;  ///< eval_loss, at the step after which it was measured
};

/// Reads metrics.jsonl of a run directory. @throws IoError when it cannot be read, DataError when
/// it contains no loss
LossCurves read_loss_curves(std::filesystem::path const& run_directory);

/// A self-contained SVG: training loss (thin), its running mean (thick), evaluation losses (dots).
std::string draw_svg(LossCurves const& curves, std::string const& title);

/// "step,learning_rate" and one row per step from 1; every digit that the number needs.
std::string rates_csv(std::vector<double> const& rates);

/// A self-contained SVG of the rates of steps 1, 2, ...
std::string draw_rates(std::vector<double> const& rates, std::string const& title);

}  // namespace tessera::cli
