#pragma once
/// Which rows of a matrix the ranks will touch: each rank's tokens are known before it computes.

#include <cstdint>
#include <vector>

#include "transfer/comm_buffer.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class TouchedRows {
 public:
  /// The rows that any rank touches, ascending, and the numbers that all ranks have named.
  struct Union {
    std::vector<std::int32_t> rows;
    std::int64_t named = 0;
  };

  /// Starts one all-reduce of a number of bits per row, which counts the ranks that touch it.
  /// Collective. @param own row numbers below @p rows, in any order, repeated or not
  void start(comm::Collectives& comm, std::int64_t rows, memory::RowList own);
  bool is_started() const { return rows_ > 0; }
  /// Waits for the other ranks. Where the rows are only planned, no two are the same, up to @p
  /// most.
  Union finish(comm::Collectives& comm, std::int64_t most);

  /// Blocks the host until nothing is in flight; finish() still gives the union.
  void wait(comm::Collectives& comm) const { comm.wait(pending_); }

  std::size_t bytes() const { return counts_.bytes(); }

 private:
  /// A word has the counts of several rows; one more word has the sum of the numbers named.
  struct Packing {
    int bits = 1;
    std::int64_t rows_per_word = 1, words = 1;
  };
  static Packing packing_of(std::int64_t rows, int ranks);

  CommBuffer counts_;
  comm::Pending pending_;
  Packing packing_;
  std::int64_t rows_ = 0;  ///< 0: not started
  std::int64_t planned_ = 0;
};

}  // namespace tessera::zero::detail
