#pragma once
/// Medians of measured values. Of an even number of values the higher one of the two in the middle.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tessera {

/// The median; 0 without values.
template <class Number>
Number median(std::vector<Number> values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return values.empty() ? Number{} : *middle;
}

/// Element i is the median of all values but values[i]. Sorts once.
/// @pre no value or at least two
template <class Number>
std::vector<Number> medians_of_others(std::vector<Number> const& values) {
  auto sorted = values;
  std::sort(sorted.begin(), sorted.end());
  auto out = values;
  for (auto& value : out) {
    std::size_t const middle = (values.size() - 1) / 2;  // where one value is left out
    value = sorted[value <= sorted[middle] ? middle + 1 : middle];
  }
  return out;
}

}  // namespace tessera
