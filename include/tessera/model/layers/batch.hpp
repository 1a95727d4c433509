#pragma once
/// A micro-batch of sequences, a loss of its logits, and the sum of its token losses.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tessera/memory/queue.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::model {

/// Logits of some consecutive positions of a micro-batch, and where their losses go.
struct LogitChunk {
  /// First position of the micro-batch: row * sequence + position in the row
  std::int64_t first_position = 0;
  memory::TensorView logits;  ///< [R, at least vocabulary] fp32; further columns are padding
  memory::TensorView losses;  ///< [R] fp32, to overwrite
  /// Has the shape of `logits` and the model's dtype, to overwrite with the gradient of the sum of
  /// the losses times gradient_scale; empty in an evaluation. In fp32 it is `logits` itself.
  memory::TensorView dlogits;
  /// [R] int32: the next token; -1 where none is predicted, as at the end of a row
  memory::ConstTensorView targets;
  std::int64_t vocabulary = 0;
  float gradient_scale = 1.0f;
};

/// A loss of a model's logits, in place of the cross-entropy of the next token.
class LogitLoss {
 public:
  virtual ~LogitLoss() = default;
  /// Enqueues the computation on @p compute; it is called once for each chunk of positions.
  virtual void compute(memory::Queue& compute, LogitChunk const& chunk) = 0;
};

class LossSum;

/// Sums over the predictions of a micro-batch, for those who watch a training.
struct TokenMetrics {
  std::shared_ptr<LossSum> entropy;  ///< entropy of the predicted distributions, in nats
  std::shared_ptr<LossSum> hits;     ///< next tokens that were the most likely one
};

/// What the head has measured at each position [rows, sequence] of a micro-batch, in host memory; 0
/// where no token is predicted. Without Batch::metrics only the losses.
struct TokenValues {
  std::vector<float> losses, hits, entropy, mean_logits;
};

/// A loss of complete rows by their token losses, such as one of pairs of rows.
class RowLoss {
 public:
  virtual ~RowLoss() = default;
  /// Called once in a pass, before the gradients of its logits.
  /// @return the derivative of the loss by the sum of each row's token losses
  virtual std::vector<float> weigh(TokenValues const& values) = 0;
  /// The sum of the losses of the last call of weigh(), in place of that of the token losses.
  virtual double loss() const = 0;
};

/// One micro-batch of sequences of equal length. The labels are shifted inside the model.
struct Batch {
  std::int32_t const* tokens = nullptr;  ///< [rows, sequence]
  std::int64_t rows = 0;
  std::int64_t sequence = 0;
  /// Index of the first row in the step's global batch; rows are consecutive. Dropout masks depend
  /// on it, not on the rank.
  std::int64_t first_global_row = 0;
  LogitLoss* loss = nullptr;  ///< null: cross-entropy of the next token
  /// [rows] their places in the data set, by which a loss finds labels; null: not known.
  std::int64_t const* samples = nullptr;
  /// In an evaluation it receives the number of next tokens that were the most likely one. Null:
  /// nobody wants it; else the evaluation waits for the queue. A model may leave it as it is.
  std::int64_t* hits = nullptr;
  /// [rows, sequence] each token as a label, -1 where it is not predicted; null: the tokens.
  std::int32_t const* labels = nullptr;
  /// [rows, sequence] where in its row each token's document begins, for a model that keeps
  /// documents apart; null: documents end with DocumentOptions::eod_token.
  std::int32_t const* documents = nullptr;
  /// In a training pass it receives its sums. Null: nobody wants them.
  TokenMetrics* metrics = nullptr;
  /// A loss of the rows, of which the cross-entropies are the token losses. Waits for the queue in
  /// the head. Null: the cross-entropies.
  RowLoss* row_loss = nullptr;
  bool use_adapters = true;  ///< false: LoRA's layers add nothing
};

/// Sum of the token losses (natural log) of a micro-batch over its predictions. Available once the
/// queue has executed this point.
class LossSum {
 public:
  /// @param computed the sum in device memory; null: there is none
  LossSum(std::shared_ptr<double const> value, memory::Event known,
          double const* computed = nullptr)
      : value_(std::move(value)), known_(std::move(known)), computed_(computed) {}
  /// Waits for the queue and rethrows an exception of its work.
  double value() const;
  /// The sum in device memory for later work of the queue, while this object lives; null: call
  /// value().
  double const* on_device() const { return computed_; }

 private:
  std::shared_ptr<double const> value_;
  memory::Event known_;
  double const* computed_;
};

}  // namespace tessera::model
