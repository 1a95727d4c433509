#include "validators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/config/option_table.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

std::string limit(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15
             ? with_commas(static_cast<std::int64_t>(value))
             : number_text(value);
}

CLI::Validator range(double low, double high, std::string expected) {
  return CLI::Validator(
      [low, high, expected = std::move(expected)](std::string& text) -> std::string {
        double value = NAN;
        if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
        return fmt::format("is '{}'; it must be {}", text, expected);
      },
      "");
}

}  // namespace

CLI::Validator number_from(double low) {
  return range(low, INFINITY, "a number of at least " + limit(low));
}

CLI::Validator number_from(double low, double high) {
  return range(low, high, fmt::format("a number from {} to {}", limit(low), limit(high)));
}

CLI::Validator one_of(std::vector<std::string> words) {
  std::string const shown = "{" + join(words, ",") + "}";
  return CLI::Validator(
      [words = std::move(words)](std::string& text) -> std::string {
        if (std::ranges::find(words, text) != words.end()) return "";
        std::string const near = config::nearest_name(text, words);
        return fmt::format("is '{}'; it must be one of {}{}", text, join(words),
                           near.empty() ? "" : "; did you mean " + near + "?");
      },
      shown);
}

}  // namespace tessera::cli
