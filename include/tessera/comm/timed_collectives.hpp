#pragma once
/// Measures every collective operation, for comms_logger.

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/collectives.hpp"

namespace tessera::comm {

/// Forwards to another implementation and waits for each operation, so that its time is its own:
/// nothing overlaps, and a run is slower.
class TimedCollectives final : public Collectives {
 public:
  struct Options {
    std::vector<std::string> operations;           ///< names to measure; empty: all
    std::function<void(std::string const&)> each;  ///< called with a line for each; empty: not
  };
  TimedCollectives(std::unique_ptr<Collectives> inner, Options options);

  /// Of one operation and message size, on this rank.
  struct Entry {
    std::string operation;
    std::size_t bytes = 0;  ///< elements of all ranks times their size
    std::vector<double> seconds;
  };
  std::vector<Entry> entries() const;
  /// Lines of text: count, total and mean time, and bandwidths as DeepSpeed's comms logger has
  /// them.
  std::string table() const;

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override {
    return inner_->allocate(name, purpose, bytes);
  }
  Pending reduce_scatter(memory::TensorView in, StridedShards shards, memory::TensorView out,
                         memory::WriteMode mode, memory::Event after) override;
  Pending broadcast(memory::TensorView data, int root, memory::Event after) override;
  Pending all_gather(memory::ConstTensorView in, memory::TensorView out, StridedShards shards,
                     memory::Event after) override;
  Pending all_gather(memory::TensorView inout, StridedShards shards, memory::Event after) override;
  Pending reduce(memory::TensorView data, ReduceOp op, int root, memory::Event after) override;
  Pending all_reduce(memory::TensorView data, ReduceOp op, memory::Event after) override;
  Pending gather(memory::ConstTensorView in, memory::TensorView out, int root,
                 memory::Event after) override;
  Pending scatter(memory::ConstTensorView in, memory::TensorView out, int root,
                  memory::Event after) override;
  void wait(Pending const& pending) override { inner_->wait(pending); }
  void barrier() override { inner_->barrier(); }

 private:
  /// What is measured: the name, elements of all ranks, and their dtype.
  struct Operation {
    char const* name;
    std::int64_t numel;
    Dtype dtype;
  };
  Pending timed(Operation const& operation, memory::Event const& after,
                std::function<Pending()> const& start);

  std::unique_ptr<Collectives> inner_;
  Options options_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::size_t>, std::vector<double>> times_;
};

}  // namespace tessera::comm
