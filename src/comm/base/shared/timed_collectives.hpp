#pragma once
/// Measures every collective operation, for comms_logger.

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/core/config_tree.hpp"

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

  /// Holds the times of one operation and message size on this rank.
  struct Entry {
    std::string operation;
    std::string group;      ///< name of the group; empty: all ranks of the job
    std::size_t bytes = 0;  ///< elements of all ranks times their size; all_to_all_v: what is sent
    int ranks = 1;
    std::vector<double> seconds;
  };
  std::vector<Entry> entries() const;
  /// Lines of text: count, total and mean time, and bandwidths as DeepSpeed's comms logger has
  /// them.
  std::string table() const;
  /// For each operation of all ranks but all_to_all_v the time that ranks waited for the last one,
  /// and for each rank how often it was that one. The time of a call on a rank beyond that of the
  /// rank with the shortest is waiting ("straggler effect" in DeepSpeed).
  struct Stragglers {
    struct Row {
      std::string operation;
      std::size_t bytes = 0, count = 0;
      double least_seconds = 0.0;    ///< sum over the calls
      double waiting_seconds = 0.0;  ///< sum over the calls, mean of the ranks
    };
    std::vector<Row> rows;
    std::vector<std::int64_t> last_of;  ///< counts of each rank: how often it came last
    std::size_t calls = 0;
    /// Lines of text; empty without rows.
    std::string table() const;
  };
  /// Returns the stragglers; there are no rows when the ranks have not measured the same calls.
  /// Collective; not measured itself.
  Stragglers stragglers();
  /// entries() and @p stragglers as one object, times in seconds.
  ConfigTree json(Stragglers const& stragglers) const;

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  /// What the groups do is in the entries of this object.
  std::unique_ptr<Collectives> split(topology::RankGroup const& group) override;
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override {
    return inner_->allocate(name, purpose, bytes);
  }
  Pending reduce_scatter(memory::TensorView in, StridedShards shards, memory::TensorView out,
                         memory::WriteMode mode, memory::Event after) override;
  Pending receive(memory::TensorView data, int from, memory::Event after) override;
  Pending all_to_all(memory::ConstTensorView in, memory::TensorView out,
                     memory::Event after) override;
  Pending broadcast(memory::TensorView data, int root, memory::Event after) override;
  Pending all_gather(memory::ConstTensorView in, memory::TensorView out, StridedShards shards,
                     memory::Event after) override;
  Pending all_gather(memory::TensorView inout, StridedShards shards, memory::Event after) override;
  Pending send(memory::ConstTensorView data, int to, memory::Event after) override;
  Pending all_to_all(memory::ConstTensorView in, Parts const& send, memory::TensorView out,
                     Parts const& receive, memory::Event after) override;
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

  struct Log {
    std::mutex mutex;
    struct Times {
      int ranks = 1;
      std::vector<double> seconds;
    };
    /// By operation, group and bytes.
    std::map<std::tuple<std::string, std::string, std::size_t>, Times> times;
  };
  TimedCollectives(std::unique_ptr<Collectives> inner, Options options, std::string group,
                   std::shared_ptr<Log> log);

  std::unique_ptr<Collectives> inner_;
  Options options_;
  std::string group_;
  std::shared_ptr<Log> log_;
};

}  // namespace tessera::comm
