#pragma once
/// How many units ahead of the computation weights are transferred, from measured times.
/// Rajbhandari et al., "ZeRO-Infinity", SC'21, section 6.2, prefetches "ahead" without a number;
/// this is the smallest number that hides what can be hidden.

#include <cstddef>
#include <vector>

namespace tessera::zero::detail {

/// Times of one pass in seconds, one element per acquisition.
struct MeasuredPass {
  std::vector<double> transfer;  ///< until the unit can be used; 0: it is still there
  std::vector<double> compute;   ///< from this acquisition to the next
  /// Limit of the buffers: the transfer for acquisition i starts when the computation has reached
  /// acquisition earliest[i], at most i, or later.
  std::vector<std::size_t> earliest;
};

/// The sum of times.
double sum_of(std::vector<double> const& seconds);

/// Seconds in which the computation waits, when a transfer starts at most @p depth acquisitions
/// ahead and transfers run one after the other. They start with the pass.
double waiting(MeasuredPass const& pass, std::size_t depth);

/// The most acquisitions ahead that the buffers allow, at least 1.
std::size_t largest_depth(MeasuredPass const& pass);

/// The smallest depth with which the computation waits no longer than with the largest one, up to
/// 1 % of the pass.
std::size_t prefetch_depth(MeasuredPass const& pass);

}  // namespace tessera::zero::detail
