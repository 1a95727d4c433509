#include "sequences/mixture.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "tessera/core/error.hpp"
#include "tessera/core/words.hpp"

namespace tessera::data::detail {

std::vector<double> read_weights(std::string const& text, std::size_t count) {
  std::vector<double> out;
  for (auto const& word : split(text, ',')) {
    char* stop = nullptr;
    out.push_back(std::strtod(word.c_str(), &stop));
    TESSERA_VALIDATE(!word.empty() && *stop == '\0' && std::isfinite(out.back()) && out.back() > 0,
                     ConfigError, "data_mixture is '", text, "', and '", word,
                     "' is not a positive number; give one weight per data set, such as 0.7,0.3");
  }
  TESSERA_VALIDATE(out.size() == count, ConfigError, "data_mixture '", text, "' has ",
                   counted(std::ssize(out), "weight"), ", and the text names ", count,
                   " data sets; separate data sets by commas and give each one weight");
  return out;
}

MixtureOrder::MixtureOrder(std::vector<std::int64_t> counts, std::vector<double> weights)
    : counts_(std::move(counts)), dealt_(counts_.size(), 0), shares_(std::move(weights)) {
  double const sum = std::accumulate(shares_.begin(), shares_.end(), 0.0);
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    shares_[i] /= sum;
    size_ = std::max(size_, static_cast<std::int64_t>(
                                std::ceil(static_cast<double>(counts_[i]) / shares_[i] - 1e-9)));
  }
}

/// The set that is furthest behind its share gives the next sequence.
MixtureOrder::Place MixtureOrder::next() {
  ++total_;
  std::size_t best = 0;
  double behind = -1e300;
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    double const lack = shares_[i] * static_cast<double>(total_) - static_cast<double>(dealt_[i]);
    if (lack > behind + 1e-12) {
      behind = lack;
      best = i;
    }
  }
  return {best, dealt_[best]++ % counts_[best]};
}

}  // namespace tessera::data::detail
