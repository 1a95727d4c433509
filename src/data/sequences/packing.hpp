#pragma once
/// How the examples of a batch share rows, as TRL's pack_dataset puts them.

#include <cstddef>
#include <span>
#include <vector>

namespace tessera::data::detail {

/// A part of an example in a row.
struct Fragment {
  std::size_t example = 0;
  std::size_t begin = 0, end = 0;  ///< tokens of the example
  bool operator==(Fragment const&) const = default;
};
using PackedRow = std::vector<Fragment>;

/// What happens to the tokens of an example beyond a row.
enum class Overflow { truncate, split };

/// Best fit decreasing: examples, longest first and equals in order, each into the row with the
/// least room that suffices, of equals the one that has had that room for longest. Empty examples
/// are left out. Ding et al., "Fewer Truncations Improve Language Modeling", arXiv 2404.10830.
std::vector<PackedRow> pack_best_fit(std::span<std::size_t const> lengths, std::size_t row_length,
                                     Overflow overflow);
/// The examples one after the other, cut into rows of `row_length`; the last may be shorter.
std::vector<PackedRow> pack_wrapped(std::span<std::size_t const> lengths, std::size_t row_length);

}  // namespace tessera::data::detail
