#pragma once
/// Reduce-scatters of quantized gradients in two all-to-alls: inside a node each rank gets what the
/// ranks of the node have for its share of the nodes' sums, adds the values in fp32, quantizes
/// these sums and sends them to the ranks that own them. Wang et al., "ZeRO++", ICLR'24, section
/// 3.3 (qgZ). Codes inside nodes have 8 bits, between nodes 4: the paper's 4 bits for both add the
/// errors of all ranks, and save bytes where they are cheap. Error feedback: Xie et al., "LoCo:
/// Low-Bit Communication Adaptor for Large-scale Model Training", 2024.

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "gradients/gradient_flow.hpp"
#include "tessera/kernels/quantization/chunk_codes.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/zero/layout/state_view.hpp"
#include "transfer/buffer_pool.hpp"
#include "transfer/shard_copies.hpp"

namespace tessera::zero::detail {

inline constexpr kernels::QuantizedFormat node_format{.bits = 8}, rail_format{.bits = 4};

class QuantizedReduce {
 public:
  explicit QuantizedReduce(StoreContext const& context);

  using Reduced = std::function<void(memory::Event)>;
  /// out [shard] (+)= the sum over the ranks of this rank's region of @p gradients [padded unit],
  /// which may be written again after the compute queue's work so far. The sum is complete after
  /// two more calls, or finish().
  void start(UnitIndex unit, memory::TensorView gradients, memory::TensorView out,
             GradientFlow::MicroStep micro, Reduced reduced);
  /// Later work of the compute queue finds all sums.
  void finish();
  std::size_t bytes() const;

  /// With error feedback, adds the errors to the states of a checkpoint: their sums over the ranks.
  /// Every rank continues with an equal part of the sums, as a run does that loads them. The view
  /// is valid until the next call. Collective, blocks the host.
  void save_errors(std::vector<StateView>& states);
  /// Loads errors from the values that the caller has written into the view. Collective.
  void load_errors();

 private:
  struct Sum {
    UnitIndex unit = first_unit;
    memory::TensorView out;
    memory::WriteMode mode = memory::WriteMode::overwrite;
    Reduced reduced;
    BufferPool::Entry sent, received;
    comm::Pending arriving;
    bool between_nodes = false;  ///< the second exchange is in flight
  };
  /// What quantization has lost of the gradients of a unit.
  struct Errors {
    std::optional<CommBuffer> of_unit, of_sums;
    std::int64_t reset_at = 0;  ///< the last step that started from zero
  };

  std::int64_t nodes() const { return context_.rail ? context_.rail->size() : 1; }
  std::int64_t node_ranks() const { return context_.node ? context_.node->size() : 1; }
  enum class Level { node, rail };
  Level first_level() const { return context_.node ? Level::node : Level::rail; }
  kernels::QuantizedRegions regions(Level level, UnitIndex unit, std::int64_t count) const;
  void advance();
  void exchange(Sum& sum, kernels::QuantizedRegions const& codes, comm::Collectives& ranks);
  void exchange_sums(Sum& sum);
  void complete(Sum& sum);
  /// Memory of errors that this step adds; null without feedback.
  void* errors(std::optional<CommBuffer>& memory, Dtype dtype, std::int64_t numel);
  void reset(Errors& errors, std::int64_t step);
  float* saved_errors(UnitIndex unit) const;
  void gather_errors(UnitIndex unit);
  void share_errors(UnitIndex unit);
  /// Between the errors of all ranks that are saved and fp32 memory of the queue's space.
  void copy_saved(UnitIndex unit, memory::TensorView shard, ShardDirection direction);

  StoreContext context_;
  std::optional<QuantizedGradients::ErrorFeedback> feedback_;
  double keep_;  ///< ErrorFeedback::beta
  BufferPool codes_, sums_;
  std::deque<Sum> in_flight_;
  std::vector<Errors> errors_;
  memory::Buffer
      saved_errors_;  ///< host memory: of this rank's shards; empty before the first save
  std::size_t error_bytes_ = 0;
};

}  // namespace tessera::zero::detail
