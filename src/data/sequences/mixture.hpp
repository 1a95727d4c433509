#pragma once
/// Weighted mixtures of data sets: which of them gives the next sequence.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data::detail {

/// "0.7,0.3" -> {0.7, 0.3}; the sum need not be 1. @throws ConfigError for anything but @p count
/// positive numbers.
std::vector<double> read_weights(std::string const& text, std::size_t count);

/// Deals sequences of several data sets so that after every sequence each set has its share, up to
/// one sequence. Ends when each sequence of each set has been dealt at least once; sets that are
/// smaller than their share begin again.
class MixtureOrder {
 public:
  /// @p counts of sequences, positive; one weight for each
  MixtureOrder(std::vector<std::int64_t> counts, std::vector<double> weights);

  std::int64_t size() const { return size_; }
  struct Place {
    std::size_t set;
    std::int64_t index;
  };
  Place next();
  /// Sequences dealt so far, by set.
  std::vector<std::int64_t> const& dealt() const { return dealt_; }

 private:
  std::vector<std::int64_t> counts_, dealt_;
  std::vector<double> shares_;  ///< sum 1
  std::int64_t size_ = 0, total_ = 0;
};

}  // namespace tessera::data::detail
