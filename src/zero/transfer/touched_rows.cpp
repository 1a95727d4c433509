#include "transfer/touched_rows.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::zero::detail {

TouchedRows::Packing TouchedRows::packing_of(std::int64_t rows, int ranks) {
  Packing out;
  out.bits = static_cast<int>(std::bit_width(static_cast<unsigned>(ranks)));
  out.rows_per_word = 63 / out.bits;
  out.words = ceil_divide(rows, out.rows_per_word) + 1;
  return out;
}

void TouchedRows::start(comm::Collectives& comm, std::int64_t rows, memory::RowList own) {
  TESSERA_EXPECT(rows > 0 && !is_started());
  rows_ = rows;
  packing_ = packing_of(rows, comm.size());
  if (counts_.bytes() < static_cast<std::size_t>(packing_.words) * sizeof(std::int64_t))
    counts_ = CommBuffer(comm, "counts of touched rows", memory::Purpose::communication,
                         Dtype::int64, packing_.words);
  auto const view = counts_.view(0, packing_.words);
  planned_ = own.rows ? 0 : own.count * comm.size();
  if (own.rows) {
    auto* const words = view.as<std::int64_t>();
    std::fill_n(words, packing_.words, 0);
    for (std::int64_t i = 0; i < own.count; ++i) {
      std::int64_t const row = own.rows[i];
      TESSERA_EXPECT(row >= 0 && row < rows);
      words[row / packing_.rows_per_word] |= std::int64_t{1}
                                             << (packing_.bits * (row % packing_.rows_per_word));
    }
    words[packing_.words - 1] = own.count;
  }
  pending_ = comm.all_reduce(view, comm::ReduceOp::sum, {});
}

TouchedRows::Union TouchedRows::finish(comm::Collectives& comm, std::int64_t most) {
  TESSERA_EXPECT(is_started());
  comm.wait(std::exchange(pending_, {}));
  std::int64_t const rows = std::exchange(rows_, 0);
  Union out;
  if (planned_ > 0) {
    out.named = planned_;
    out.rows.resize(static_cast<std::size_t>(std::min({planned_, rows, most})));
    std::iota(out.rows.begin(), out.rows.end(), 0);
    return out;
  }
  auto const* const words = counts_.view(0, packing_.words).as<std::int64_t>();
  std::int64_t const mask = (std::int64_t{1} << packing_.bits) - 1;
  for (std::int64_t row = 0; row < rows; ++row)
    if (words[row / packing_.rows_per_word] >> (packing_.bits * (row % packing_.rows_per_word)) &
        mask)
      out.rows.push_back(static_cast<std::int32_t>(row));
  out.named = words[packing_.words - 1];
  return out;
}

}  // namespace tessera::zero::detail
