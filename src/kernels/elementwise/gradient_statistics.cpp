#include "tessera/kernels/elementwise/gradient_statistics.hpp"

#include "elementwise/gradient_statistics_rule.hpp"
#include "launch/launch.hpp"
#include "launch/partial_sums.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

char const* const gradient_statistics_name = "tessera::kernels::gradient_statistics";

std::int64_t blocks_of(std::int64_t numel) { return ceil_divide(numel, gradient_block); }
std::int64_t blocks_of(std::vector<GradientRun> const& runs) {
  std::int64_t total = 0;
  for (auto const& run : runs) total += blocks_of(run.numel);
  return total;
}

/// Calls @p launch(rule, its blocks) for as few rules as hold all runs.
template <class T, class Launch>
void for_batches(std::vector<GradientRun> const& runs, double* partial, Launch const& launch) {
  SquaresOfRuns<T> batch{partial, prefetch_distance(Prefetched::sums, sizeof(T)), 0, {}};
  std::int64_t blocks = 0;
  auto const flush = [&] {
    if (blocks > 0) launch(batch, blocks);
    batch.partial += blocks;
    batch.runs = 0;
    blocks = 0;
  };
  for (auto const& run : runs) {
    if (run.numel == 0) continue;
    if (batch.runs == SquaresOfRuns<T>::max_runs) flush();
    batch.run[batch.runs++] = {run.data, run.numel, blocks};
    blocks += blocks_of(run.numel);
  }
  flush();
}

/// launch(rule, rows) for the partial sums, then for their total.
template <class Launch>
void sum_squares(double* sums, double* partial, std::vector<GradientRun> const& runs, Dtype dtype,
                 Launch const& launch) {
  with_type(dtype, "gradient_statistics",
            [&](auto tag) { for_batches<typename decltype(tag)::type>(runs, partial, launch); });
  launch(TotalOfSquares{sums, partial, blocks_of(runs)}, std::int64_t{1});
}

}  // namespace

std::int64_t partial_sum_count(std::int64_t numel) { return blocks_of(numel); }

void partial_gradient_statistics(Queue& q, double* partial, GradientRun const& run, Dtype dtype) {
  with_type(dtype, "gradient_statistics", [&](auto tag) {
    for_batches<typename decltype(tag)::type>(
        {run}, partial, [&](auto const& rule, std::int64_t blocks) {
          parallel_rows(q, gradient_statistics_name, blocks, rule);
        });
  });
}

void total_gradient_statistics(Queue& q, double* sums, double const* partial, std::int64_t count) {
  parallel_rows(q, gradient_statistics_name, 1, TotalOfSquares{sums, partial, count});
}

void gradient_statistics(Queue& q, double* sums, std::vector<GradientRun> const& runs,
                         Dtype dtype) {
  with_partial_sums(q, gradient_statistics_name, blocks_of(runs),
                    [sums, runs, dtype](double* partial, auto const& launch) {
                      sum_squares(sums, partial, runs, dtype, launch);
                    });
}

}  // namespace tessera::kernels
