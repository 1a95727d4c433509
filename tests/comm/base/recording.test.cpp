/// Recorded bytes against the volumes that theory gives for each collective.
#include "recording_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

#include <gtest/gtest.h>

#include "comm_test.hpp"

namespace tessera::comm::test {
namespace {

class Recording : public ::testing::Test {
 protected:
  std::unique_ptr<RecordingCollectives> comm_ =
      make_recording(make_mpi(tessera::test::session(), 60s));
  std::size_t ranks_ = static_cast<std::size_t>(comm_->size());
  bool is_root_ = comm_->rank() == 0;
  Array data_{*comm_, Placement::ordinary, Dtype::bf16, 240};  ///< divisible by 1, 2, 3 and 4 ranks
  std::int64_t shard_ = 240 / comm_->size();

  CollectiveRecord last() const { return comm_->records().back(); }
};

TEST_F(Recording, ReduceScatterAndAllGatherSendAShardToEachPeer) {
  StridedShards const blocks{shard_, shard_, 0};
  Array out{*comm_, Placement::ordinary, Dtype::fp32, shard_};
  comm_->wait(
      comm_->reduce_scatter(data_.view(), blocks, out.view(), memory::WriteMode::overwrite, {}));
  EXPECT_EQ(last().operation, "reduce_scatter");
  EXPECT_EQ(last().numel, 240);
  EXPECT_EQ(last().dtype, Dtype::bf16) << "the wire has the input's type";
  EXPECT_EQ(last().bytes_sent, (ranks_ - 1) * static_cast<std::size_t>(shard_) * 2);
  comm_->wait(comm_->all_gather(data_.view(), blocks, {}));
  EXPECT_EQ(last().operation, "all_gather");
  EXPECT_EQ(last().bytes_sent, (ranks_ - 1) * static_cast<std::size_t>(shard_) * 2);
  for (std::size_t q = 0; q < ranks_; ++q)
    EXPECT_EQ(last().bytes_to_peer[q], q == static_cast<std::size_t>(comm_->rank())
                                           ? 0
                                           : static_cast<std::size_t>(shard_) * 2);
}

TEST_F(Recording, AllReduceIsAReduceScatterAndAnAllGather) {
  comm_->wait(comm_->all_reduce(data_.view(), ReduceOp::sum, {}));
  EXPECT_EQ(last().bytes_sent, 2 * (ranks_ - 1) * 240 * 2 / ranks_);
}

TEST_F(Recording, AllReduceOfNonDivisibleDataAddsUpOverRanks) {
  comm_->wait(comm_->all_reduce(data_.view(0, 239), ReduceOp::sum, {}));
  auto const sent = static_cast<std::int64_t>(last().bytes_sent);
  EXPECT_EQ(all_reduce_value(*comm_, sent, ReduceOp::sum),
            static_cast<std::int64_t>(2 * (ranks_ - 1) * 239 * 2));
}

TEST_F(Recording, RootedOperations) {
  Array part{*comm_, Placement::ordinary, Dtype::bf16, shard_};
  comm_->wait(comm_->broadcast(data_.view(), 0, {}));
  EXPECT_EQ(last().bytes_sent, is_root_ ? (ranks_ - 1) * 480 : 0);
  comm_->wait(comm_->scatter(data_.view(), part.view(), 0, {}));
  EXPECT_EQ(last().bytes_sent, is_root_ ? (ranks_ - 1) * static_cast<std::size_t>(shard_) * 2 : 0);
  comm_->wait(comm_->gather(part.view(), data_.view(), 0, {}));
  EXPECT_EQ(last().bytes_sent, is_root_ ? 0 : static_cast<std::size_t>(shard_) * 2);
  comm_->wait(comm_->reduce(data_.view(), ReduceOp::sum, 0, {}));
  EXPECT_EQ(last().bytes_sent, is_root_ ? 0 : 480);
}

TEST_F(Recording, AddsUpAndClears) {
  comm_->wait(comm_->all_reduce(data_.view(), ReduceOp::sum, {}));
  comm_->wait(comm_->all_reduce(data_.view(), ReduceOp::max, {}));
  EXPECT_EQ(comm_->bytes_sent(), 2 * last().bytes_sent);
  comm_->barrier();
  EXPECT_EQ(comm_->records().size(), 2u);
  comm_->clear();
  EXPECT_EQ(comm_->bytes_sent(), 0u);
}

}  // namespace
}  // namespace tessera::comm::test
