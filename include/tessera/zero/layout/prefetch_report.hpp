#pragma once
/// How far ahead weights are transferred, and what it hides.

#include <cstdint>

namespace tessera::zero {

/// How far ahead of the computation the weights of stage 3 are transferred, where they are in host
/// memory or on a drive: chosen from the times of one pass, within the limits of the buffers. The
/// depths are the same on all ranks, the times are those of this rank.
struct PrefetchReport {
  std::int64_t units = 0, max_units = 0;            ///< copied and gathered ahead
  std::int64_t read_units = 0, max_read_units = 0;  ///< read ahead from a drive; 0: there is none
  double transfer_seconds = 0.0;  ///< seconds of copies and gathers, one after the other
  double read_seconds = 0.0;      ///< seconds of reads
  double compute_seconds = 0.0;   ///< between the transfers that it waited for
  double waiting_seconds = 0.0;   ///< that no depth within the limits hides
  double seconds() const { return transfer_seconds + read_seconds; }
  bool operator==(PrefetchReport const&) const = default;
};

}  // namespace tessera::zero
