#pragma once
/// Queries, keys and values of all heads from the rows of a layer: one projection or three.

#include <optional>
#include <string>
#include <vector>

#include "layers/linear.hpp"
#include "tessera/kernels/attention/attention.hpp"

namespace tessera::model::detail {

/// Where the parameters of queries, keys and values are.
enum class QkvLayout {
  fused,           ///< one matrix: all queries, then all keys, then all values
  fused_per_head,  ///< one matrix: query, key and value of head 0, then those of head 1, ...
  separate,        ///< three matrices; next to each other in memory they are multiplied as one
};

struct QkvOptions {
  std::int64_t width = 0;
  int heads = 0;
  int kv_heads = 0;  ///< = heads, or fewer when heads share keys and values
  int head_dim = 0;
  QkvLayout layout = QkvLayout::fused;
  WeightLayout weights = WeightLayout::in_out;
  Bias bias = Bias::zeros;
  double stddev = 0.02;  ///< initial weights
  /// Parameters below the attention: that of a fused matrix, or query, key, value.
  std::vector<std::string> names{};

  std::int64_t query_width() const { return std::int64_t{heads} * head_dim; }
  std::int64_t kv_width() const { return std::int64_t{kv_heads} * head_dim; }
};

class QkvProjection {
 public:
  /// Rows of queries, keys and values [R, .]: parts of each row of one buffer, or three buffers.
  struct Rows {
    TensorView fused;
    TensorView query, key, value;
  };

  /// Adds "<name>.<names[i]>.weight" and ".bias" to @p unit.
  QkvProjection(UnitSpec& unit, std::string const& name, QkvOptions const& options);

  /// Calls visit(layer) for each linear layer.
  template <class Visit>
  void visit_linear(Visit const& visit) {
    for (Linear& part : parts_) visit(part);
  }

  /// One buffer where one product computes all.
  Rows allocate(PassContext const& pass, WeightLease const& weights) const;
  /// @p rows overwritten, in [R, width].
  void forward(PassContext const& pass, WeightLease const& weights, Rows const& rows,
               ConstTensorView in) const;
  /// din [R, width] overwritten.
  void backward(PassContext const& pass, BackwardLeases const& leases, TensorView din,
                Rows const& drows, ConstTensorView in) const;

  /// The operands of attention kernels.
  template <class Operands>
  Operands heads(Rows const& rows) const {
    if (rows.fused.empty())
      return {{rows.query.data(), rows.query.dim(1)},
              {rows.key.data(), rows.key.dim(1)},
              {rows.value.data(), rows.value.dim(1)}};
    std::int64_t const row = rows.fused.dim(1), head = options_.head_dim;
    if (options_.layout == QkvLayout::fused_per_head)
      return {{column(rows.fused, 0), row, 3 * head},
              {column(rows.fused, head), row, 3 * head},
              {column(rows.fused, 2 * head), row, 3 * head}};
    return {{column(rows.fused, 0), row},
            {column(rows.fused, options_.query_width()), row},
            {column(rows.fused, options_.query_width() + options_.kv_width()), row}};
  }

 private:
  static void* column(TensorView rows, std::int64_t at) {
    return static_cast<std::byte*>(rows.data()) +
           static_cast<std::size_t>(at) * size_of(rows.dtype());
  }
  std::int64_t fused_width() const { return options_.query_width() + 2 * options_.kv_width(); }

  std::vector<Linear const*> parts() const { return {&parts_[0], &parts_[1], &parts_[2]}; }
  /// The layer that writes rows of one buffer.
  Linear const& fused() const { return parts_.size() == 1 ? parts_[0] : *joined_; }

  QkvOptions options_;
  std::vector<Linear> parts_;     ///< one, or three
  std::optional<Linear> joined_;  ///< the three as one
};

}  // namespace tessera::model::detail
