#pragma once
/// The compressed all-reduce of 1-bit optimizers: each rank sends the signs of its values and their
/// scales to the ranks that own the shards (all-to-all), which add the means to their server
/// errors, and send the signs and scales of these sums to all ranks (all-gather). What signs have
/// lost stays in the worker and server errors. Tang et al., "1-bit Adam", ICML'21, section 4.2.
/// Padding takes part in no scale.

#include <cstdint>
#include <vector>

#include "tessera/memory/buffer.hpp"
#include "tessera/optim/compression.hpp"
#include "transfer/comm_buffer.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class SignAllReduce {
 public:
  SignAllReduce(StoreContext const& context, optim::Compression::Scales scales,
                memory::MemorySpace space);

  /// Called for all units, and then the next of these functions for all units.
  /// @param values [padded unit], with the worker error; becomes the new one
  void send(UnitIndex unit, float* values);
  /// @param server_error [shard]
  void reduce(UnitIndex unit, float* server_error);
  /// @param out [padded unit]; padding stays as it is
  void receive(UnitIndex unit, float* out);
  std::size_t bytes() const { return sent_.bytes() + received_.bytes() + sums_.bytes(); }

 private:
  /// A run of elements that share a scale and a server, in the unit's flat buffer.
  struct Piece {
    std::int64_t begin = 0, numel = 0;
    std::size_t scale = 0;
    int server = 0;
  };
  struct Layout {
    std::vector<Piece> pieces;
    std::size_t scales = 0;
    std::int64_t shard_numel = 0, message = 0;  ///< bytes for one rank: scales, then words
    std::int64_t offset = 0;                    ///< offset of the unit in the buffers
    comm::Pending pending = {};
  };
  Layout layout_of(UnitLayout const& unit, optim::Compression::Scales scales) const;
  /// Encodes the pieces of @p server, or all for a negative one.
  void encode(Layout const& layout, float* values, std::int64_t first, int server);
  memory::TensorView messages(Layout const& layout, CommBuffer const& buffer) const;
  float* scale_at(Layout const& layout, CommBuffer const& buffer, int rank,
                  std::size_t scale) const;
  std::uint32_t* words_at(Layout const& layout, CommBuffer const& buffer, int rank,
                          Piece const& piece) const;
  void finish(Layout& layout);

  StoreContext context_;
  int ranks_, rank_;
  std::vector<Layout> layouts_;
  CommBuffer sent_, received_;
  memory::Buffer sums_;
};

}  // namespace tessera::zero::detail
