#include "weights/prefetch_depth.hpp"

#include <algorithm>
#include <numeric>

#include "tessera/core/error.hpp"

namespace tessera::zero::detail {
namespace {

/// Shorter waits are within the spread between two passes.
constexpr double unnoticed_share = 0.01;

}  // namespace

double sum_of(std::vector<double> const& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

double waiting(MeasuredPass const& pass, std::size_t depth) {
  std::size_t const count = pass.compute.size();
  TESSERA_EXPECT(pass.transfer.size() == count && pass.earliest.size() == count && depth > 0);
  std::vector<double> reached(count, 0.0);  // when the computation asks for an acquisition
  double arrived = 0.0, waited = 0.0, now = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    reached[i] = now;
    if (pass.transfer[i] > 0.0) {
      std::size_t const from = std::max(pass.earliest[i], i > depth ? i - depth : 0);
      arrived = std::max(arrived, reached[std::min(from, i)]) + pass.transfer[i];
      waited += std::max(0.0, arrived - now);
      now = std::max(now, arrived);
    }
    now += pass.compute[i];
  }
  return waited;
}

std::size_t largest_depth(MeasuredPass const& pass) {
  std::size_t depth = 1;
  for (std::size_t i = 0; i < pass.earliest.size(); ++i)
    depth = std::max(depth, i - std::min(i, pass.earliest[i]));
  return depth;
}

std::size_t prefetch_depth(MeasuredPass const& pass) {
  std::size_t const largest = largest_depth(pass);
  double const best = waiting(pass, largest);
  double const allowed = best + unnoticed_share * (best + sum_of(pass.compute));
  for (std::size_t depth = 1; depth < largest; ++depth)
    if (waiting(pass, depth) <= allowed) return depth;
  return largest;
}

}  // namespace tessera::zero::detail
