#pragma once
/// The learning rate by step, as CSV and as an SVG picture.

#include <string>
#include <vector>

namespace tessera::cli {

/// "step,learning_rate" and one row per step from 1; every digit that the number needs.
std::string rates_csv(std::vector<double> const& rates);

/// A self-contained SVG of the rates of steps 1, 2, ...
std::string draw_rates(std::vector<double> const& rates, std::string const& title);

}  // namespace tessera::cli
