#include "tessera/kernels/optimizer/adafactor.hpp"

#include "launch/partial_sums.hpp"
#include "optimizer/adafactor_rule.hpp"
#include "optimizer/adafactor_sums.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

void check(AdafactorStep const& step, char const* name) {
  for (auto const& r : step.runs) {
    auto const& p = r.parameter;
    bool const complete = p.rows > 0 && p.columns > 0 && p.row_means && p.column_means && p.sums &&
                          p.update_square && r.master && r.gradient;
    TESSERA_VALIDATE(r.numel == 0 || complete, InternalError, name, " got a run of ", r.numel,
                     " elements without its weights, means, sums or gradient");
    TESSERA_VALIDATE(r.offset >= 0 && r.offset + r.numel <= p.rows * p.columns, InternalError, name,
                     " got elements ", r.offset, " to ", r.offset + r.numel, " of a parameter of ",
                     p.rows, " x ", p.columns);
  }
}

AdafactorBatch batch_of(AdafactorStep const& s, double* partial) {
  return {{1.0f, static_cast<float>(s.beta1), static_cast<float>(1.0 - s.beta1),
           static_cast<float>(s.epsilon_gradient), s.epsilon_scale, s.clip_threshold,
           s.scale_parameter},
          s.control,
          partial,
          prefetch_distance(Prefetched::updates),
          0,
          {}};
}

AdafactorPlace place_of(AdafactorRun const& r, std::int64_t first_item) {
  return {r.parameter,
          r.offset,
          r.numel,
          r.master,
          r.exp_avg,
          r.gradient,
          r.weights_out,
          static_cast<float>(r.learning_rate),
          static_cast<float>(r.weight_decay),
          first_item,
          0};
}

/// Calls launch(batch, items) for as few batches as hold all runs; count(run) gives the items of
/// one.
template <class Count, class Launch>
void for_batches(AdafactorStep const& step, double* partial, Count const& count,
                 Launch const& launch) {
  AdafactorBatch batch = batch_of(step, partial);
  std::int64_t items = 0;
  auto const flush = [&] {
    if (batch.runs > 0) launch(batch, items);
    batch.runs = 0;
    items = 0;
  };
  for (auto const& r : step.runs) {
    if (r.numel == 0) continue;
    if (batch.runs == AdafactorBatch::max_runs) flush();
    auto& place = batch.run[batch.runs++] = place_of(r, items);
    items += count(place);
  }
  flush();
}

std::int64_t pieces_of(AdafactorPlace const& r) { return r.pieces(); }
std::int64_t column_partials_of(AdafactorPlace const& r) { return r.tiles() * r.parameter.columns; }

template <class Count>
std::int64_t items_of(AdafactorStep const& step, Count const& count) {
  std::int64_t items = 0;
  for (auto const& r : step.runs)
    if (r.numel > 0) items += count(place_of(r, 0));
  return items;
}

/// launch(rule, items) for the tiles of a batch, of which a run has tiles_of(run).
template <template <class> class Rule, class G, class Tiles, class Launch>
void sum_tiles(AdafactorBatch const& batch, Tiles const& tiles_of, Launch const& launch) {
  Rule<G> tiles{{batch, {}}};
  std::int64_t count = 0;
  for (int i = 0; i < batch.runs; ++i) {
    tiles.batch.first_tile[i] = count;
    count += tiles_of(batch.run[i]);
  }
  if (count > 0) launch(tiles, count);
}

/// Sums of the pieces of all runs by Rule, then the totals of each run.
template <template <class> class Rule, class Totals>
void sum_pieces(Queue& q, char const* name, AdafactorStep const& step) {
  with_partial_sums(
      q, name, items_of(step, pieces_of), [step, name](double* partial, auto const& launch) {
        with_type(step.gradient_dtype, name, [&](auto tag) {
          using G = typename decltype(tag)::type;
          for_batches(step, partial, pieces_of, [&](AdafactorBatch const& batch, std::int64_t n) {
            launch(Rule<G>{batch}, n);
            launch(Totals{batch}, std::int64_t{batch.runs});
          });
        });
      });
}

/// Column sums by a sweep of their own, as a device's threads want it.
void sum_columns(Queue& q, char const* name, AdafactorStep const& step) {
  with_partial_sums(q, name, items_of(step, column_partials_of),
                    [step, name](double* partial, auto const& launch) {
                      with_type(step.gradient_dtype, name, [&](auto tag) {
                        using G = typename decltype(tag)::type;
                        for_batches(step, partial, column_partials_of,
                                    [&](AdafactorBatch const& batch, std::int64_t) {
                                      sum_tiles<AdafactorColumnTiles, G>(
                                          batch, [](auto const& r) { return r.tiles(); }, launch);
                                      launch(AdafactorColumnTotals{batch},
                                             std::int64_t{batch.runs});
                                    });
                      });
                    });
}

std::int64_t partials_of(AdafactorPlace const& r) { return pieces_of(r) + column_partials_of(r); }

/// Row and column sums in one sweep, as host threads want it.
void sum_rows_and_columns(Queue& q, char const* name, AdafactorStep const& step) {
  with_partial_sums(
      q, name, items_of(step, partials_of), [step, name](double* partial, auto const& launch) {
        with_type(step.gradient_dtype, name, [&](auto tag) {
          using G = typename decltype(tag)::type;
          for_batches(step, partial, partials_of, [&](AdafactorBatch batch, std::int64_t) {
            for (int i = 0; i < batch.runs; ++i)
              batch.run[i].column_partials = batch.run[i].pieces();
            auto const items = [](AdafactorPlace const& r) {
              return r.parameter.columns > 1 ? r.tiles() : r.pieces();
            };
            sum_tiles<AdafactorTileSums, G>(batch, items, launch);
            launch(AdafactorTotals<true>{batch}, std::int64_t{batch.runs});
            launch(AdafactorColumnTotals{batch}, std::int64_t{batch.runs});
          });
        });
      });
}

}  // namespace

void adafactor_sums(Queue& q, AdafactorStep const& step) {
  char const* const name = "tessera::kernels::adafactor_sums";
  check(step, name);
  if (!on_device(q)) return sum_rows_and_columns(q, name, step);
  sum_pieces<AdafactorRowSums, AdafactorTotals<true>>(q, name, step);
  sum_columns(q, name, step);
}

void adafactor_means(Queue& q, std::vector<AdafactorParameter> const& parameters,
                     AdafactorStep const& step) {
  AdafactorMeansBatch batch{step.control, step.beta2, 0, {}};
  auto const flush = [&] {
    parallel_rows(q, "tessera::kernels::adafactor_means", batch.count, AdafactorMeans{batch});
    batch.count = 0;
  };
  for (auto const& p : parameters) {
    if (batch.count == AdafactorMeansBatch::max_parameters) flush();
    batch.parameter[batch.count++] = p;
  }
  flush();
}

void adafactor_update_squares(Queue& q, AdafactorStep const& step) {
  char const* const name = "tessera::kernels::adafactor_update_squares";
  check(step, name);
  sum_pieces<AdafactorUpdateSquares, AdafactorTotals<false>>(q, name, step);
}

void adafactor(Queue& q, AdafactorStep const& step) {
  char const* const name = "tessera::kernels::adafactor";
  check(step, name);
  with_type(step.gradient_dtype, name, [&](auto g) {
    with_type(step.weights_dtype, name, [&](auto w) {
      using Update = AdafactorUpdate<typename decltype(g)::type, typename decltype(w)::type>;
      for_batches(step, nullptr, pieces_of, [&](AdafactorBatch const& batch, std::int64_t n) {
        parallel_rows(q, name, n, Update{batch});
      });
    });
  });
}

}  // namespace tessera::kernels
