#pragma once
/// OneBitAdam, and what OneBitLamb shares with it.

#include <cstddef>
#include <vector>

#include "detail/elementwise.hpp"
#include "detail/optimizer_table.hpp"
#include "tessera/optim/compression.hpp"

namespace tessera::optim::detail {

OptimizerEntry one_bit_adam_entry();

/// @p states and those of the errors of compression.
std::vector<StateSpec> with_errors(std::vector<StateSpec> states);
/// The same segments with only some of the states, by their places in the list.
Segments with_states(Segments segments, std::vector<std::size_t> const& kept);
/// The same elements without padding, with what the ranks have exchanged in the place of the
/// gradients.
Segments with_gradients(Segments segments, Directions const& exchanged);

}  // namespace tessera::optim::detail
