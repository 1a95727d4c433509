#pragma once
/// Host staging of the tables that rotate heads: computed once per length, copied to the arena of
/// each pass.

#include <array>

#include "layers/pass.hpp"
#include "tessera/kernels/attention/rotary_tables.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::model::detail {

/// A pass that is only planned stages addresses only.
enum class Staging { planned, real };

class RotaryStaging {
 public:
  explicit RotaryStaging(kernels::RotaryOptions options) : options_(options) {}

  /// Tables of @p positions from 0 on in the arena of the pass.
  kernels::RotaryTables stage(PassContext const& pass, std::int64_t positions, Staging staging);

 private:
  struct Slot {
    memory::Buffer buffer;       ///< cos, then sin; pinned for a device
    std::int64_t positions = 0;  ///< of each
    std::int64_t sequence = 0;   ///< whose frequencies they have
    memory::Event copied;        ///< the slot may be written again after it
  };
  Slot& slot_for(PassContext const& pass, std::int64_t positions);
  void fill(Slot& slot, PassContext const& pass) const;
  /// Frequencies of dynamic scaling and longrope depend on the length; all others are those of
  /// length 0.
  std::int64_t frequencies_of(std::int64_t sequence) const;
  std::int64_t columns() const { return options_.rotary_dim / 2; }

  kernels::RotaryOptions options_;
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;
};

}  // namespace tessera::model::detail
