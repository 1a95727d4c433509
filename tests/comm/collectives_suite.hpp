#pragma once
/// One suite for the interface, instantiated for every implementation, element type and kind of
/// memory. Oracle: serial formulas.
#include "tessera/comm/base/collectives.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <thread>
#include <tuple>

#include "comm_test.hpp"
#include "fake_device.hpp"

namespace tessera::comm::test {
namespace {

using Parameter = std::tuple<Implementation, Dtype, Placement>;

/// Implementations live as long as the suite: hundreds of operations run on each, as in training.
inline std::map<Implementation, std::unique_ptr<Collectives>>& implementations() {
  static std::map<Implementation, std::unique_ptr<Collectives>> all;
  return all;
}

/// What the implementations for a device run on; outlives them.
inline std::unique_ptr<tessera::test::FakeDevice>& fake_device() {
  static std::unique_ptr<tessera::test::FakeDevice> device;
  return device;
}

class CollectivesSuite : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    if ((implementation() == Implementation::loopback ||
         implementation() == Implementation::single_rank) &&
        tessera::test::session().info().world_size > 1)
      GTEST_SKIP() << "for one rank";
    auto& slot = implementations()[std::get<0>(GetParam())];
    if (is_on_device() && !fake_device())
      fake_device() = std::make_unique<tessera::test::FakeDevice>();
    if (!slot) slot = make(std::get<0>(GetParam()));
    comm_ = slot.get();
    rank_ = comm_->rank();
    ranks_ = comm_->size();
  }
  static void TearDownTestSuite() {
    implementations().clear();
    forget_events();
    fake_device().reset();
  }

  Implementation implementation() const { return std::get<0>(GetParam()); }
  bool is_on_device() const {
    return implementation() == Implementation::staged ||
           implementation() == Implementation::single_rank ||
           implementation() == Implementation::nccl;
  }
  /// NCCL's arithmetic, not the host's: operands in device memory.
  bool by_nccl() const {
    return implementation() == Implementation::nccl &&
           std::get<2>(GetParam()) == Placement::allocated;
  }
  /// Sums by kernels of the device, for which there are fewer dtypes.
  bool by_kernels() const {
    return by_nccl() || (implementation() == Implementation::single_rank &&
                         std::get<2>(GetParam()) == Placement::allocated);
  }
  Dtype dtype() const { return std::get<1>(GetParam()); }
  /// The sum over ranks before it is rounded to the result's type; NCCL's is formed in the type on
  /// the wire.
  double sum(std::int64_t i) const {
    if (!by_nccl()) return serial_sum(ranks_, i, dtype());
    std::vector<int> members(static_cast<std::size_t>(ranks_));
    std::iota(members.begin(), members.end(), 0);
    return sum_on_wire(members, i, dtype());
  }
  /// The serial reference of a reduction over all ranks.
  double reduced(ReduceOp op, std::int64_t i) const {
    if (op == ReduceOp::sum) return sum(i);
    double result = element(0, i);
    for (int q = 1; q < ranks_; ++q)
      result =
          op == ReduceOp::max ? std::max(result, element(q, i)) : std::min(result, element(q, i));
    return result;
  }
  bool is_float() const {
    return dtype() == Dtype::fp32 || dtype() == Dtype::fp16 || dtype() == Dtype::bf16;
  }
  Array array(std::int64_t numel) { return array(dtype(), numel); }
  Array array(Dtype d, std::int64_t numel) {
    return Array(*comm_, std::get<2>(GetParam()), d, numel);
  }
  Array input(std::int64_t numel) {
    Array a = array(numel);
    a.fill([&](auto i) { return element(rank_, i); });
    return a;
  }
  /// More than the chunks in which large data moves, not divisible by anything.
  std::vector<std::int64_t> sizes() const {
    std::int64_t const largest =
        dtype() == Dtype::fp32 || dtype() == Dtype::bf16 ? 700'001 : 150'001;
    return {0, 1, 7, 1000, largest};
  }

  void reduce_scatter_as_formula(StridedShards shards, Dtype out_dtype, memory::WriteMode mode) {
    Array in = input((ranks_ - 1) * shards.stride + shards.offset + shards.count);
    Array out = array(out_dtype, shards.count);
    out.fill([](auto i) { return static_cast<double>(i % 5); });
    comm_->wait(comm_->reduce_scatter(in.view(), shards, out.view(), mode, {}));
    for (std::int64_t i = 0; i < shards.count; ++i) {
      double expected = sum(rank_ * shards.stride + shards.offset + i);
      if (mode == memory::WriteMode::add)
        expected = accumulated(expected + static_cast<double>(i % 5), dtype());
      ASSERT_EQ(out[i], rounded(expected, out_dtype)) << "element " << i << " of " << shards.count;
    }
    for (std::int64_t i = 0; i < in.numel(); ++i)
      ASSERT_EQ(in[i], element(rank_, i)) << "input element " << i << " was changed";
  }

  Collectives* comm_ = nullptr;
  int rank_ = 0, ranks_ = 1;
};

TEST_P(CollectivesSuite, ReduceScatterSumsBlocks) {
  for (auto const n : sizes())
    reduce_scatter_as_formula({n, n, 0}, dtype(), memory::WriteMode::overwrite);
}

TEST_P(CollectivesSuite, ReduceScatterTakesPiecesOfRegions) {
  for (auto const mode : {memory::WriteMode::overwrite, memory::WriteMode::add}) {
    if (mode == memory::WriteMode::add && by_kernels() && !is_float())
      continue;  // refused: see the suite of NCCL's contract
    reduce_scatter_as_formula({100, 1003, 903}, dtype(), mode);
    reduce_scatter_as_formula({90'001, 100'003, 17}, dtype(), mode);
  }
}

TEST_P(CollectivesSuite, ReduceScatterConvertsToTheOutputsType) {
  if (!is_float()) return;
  for (Dtype const out : {Dtype::fp32, Dtype::fp16, Dtype::bf16})
    for (auto const mode : {memory::WriteMode::overwrite, memory::WriteMode::add})
      reduce_scatter_as_formula({5003, 5007, 3}, out, mode);
}

TEST_P(CollectivesSuite, ReduceScatterIntoItsOwnRegion) {
  for (auto const n : sizes()) {
    for (std::int64_t const shift :
         {0, 5}) {  // the result in the block's place, and packed before it
      StridedShards const shards{n, n + 9, shift};
      Array in = input(ranks_ * shards.stride);
      comm_->wait(comm_->reduce_scatter(in.view(), shards, in.view(rank_ * shards.stride, n),
                                        memory::WriteMode::overwrite, {}));
      for (std::int64_t i = 0; i < n; ++i)
        ASSERT_EQ(in[rank_ * shards.stride + i],
                  rounded(sum(rank_ * shards.stride + shift + i), dtype()))
            << i;
    }
  }
}

TEST_P(CollectivesSuite, AllGatherInPlace) {
  for (auto const n : sizes()) {
    for (std::int64_t const gap : {0, 11}) {
      StridedShards const shards{n, n + gap, gap / 2};
      Array data = array(ranks_ * shards.stride);
      auto const inside = [&](std::int64_t i, int rank) {
        std::int64_t const at = i - rank * shards.stride - shards.offset;
        return at >= 0 && at < shards.count;
      };
      data.fill([&](auto i) { return inside(i, rank_) ? element(rank_, i) : 99.0; });
      comm_->wait(comm_->all_gather(data.view(), shards, {}));
      for (std::int64_t i = 0; i < data.numel(); ++i) {
        auto const owner = static_cast<int>(shards.stride > 0 ? i / shards.stride : 0);
        ASSERT_EQ(data[i], inside(i, owner) ? element(owner, i) : 99.0) << i;
      }
    }
  }
}

TEST_P(CollectivesSuite, AllGatherFromASeparateShard) {
  for (auto const n : sizes()) {
    StridedShards const shards{n, n + 4, 3};
    Array shard = input(n + 4), whole = array(ranks_ * shards.stride);
    comm_->wait(comm_->all_gather(shard.view(), whole.view(), shards, {}));
    for (int q = 0; q < ranks_; ++q)
      for (std::int64_t i = 0; i < n; ++i)
        ASSERT_EQ(whole[q * shards.stride + shards.offset + i], element(q, shards.offset + i)) << i;
  }
}

TEST_P(CollectivesSuite, AllReduceSumMaxMin) {
  for (auto const n : sizes()) {
    for (ReduceOp const op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
      Array data = input(n);
      comm_->wait(comm_->all_reduce(data.view(), op, {}));
      for (std::int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(data[i], rounded(reduced(op, i), dtype())) << i << " of " << n;
      }
    }
  }
}

TEST_P(CollectivesSuite, ReduceOnEveryRoot) {
  for (int root = 0; root < ranks_; ++root) {
    for (auto const n : sizes()) {
      for (ReduceOp const op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
        if (op != ReduceOp::sum && n > 1000) continue;
        Array data = input(n);
        comm_->wait(comm_->reduce(data.view(), op, root, {}));
        for (std::int64_t i = 0; i < n; ++i)
          ASSERT_EQ(data[i], rank_ == root ? rounded(reduced(op, i), dtype()) : element(rank_, i))
              << i << " of " << n << " on root " << root;
      }
    }
  }
}

TEST_P(CollectivesSuite, BroadcastFromEveryRoot) {
  for (int root = 0; root < ranks_; ++root) {
    for (auto const n : sizes()) {
      Array data = input(n);
      comm_->wait(comm_->broadcast(data.view(), root, {}));
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(data[i], element(root, i)) << i;
    }
  }
}

TEST_P(CollectivesSuite, ScatterAndGatherAreInverse) {
  for (int root = 0; root < ranks_; ++root) {
    for (auto const n : sizes()) {
      Array whole = array(n * ranks_), part = array(n);
      whole.fill([&](auto i) { return element(root, i); });
      comm_->wait(comm_->scatter(whole.view(), part.view(), root, {}));
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(part[i], element(root, rank_ * n + i)) << i;
      part.fill([&](auto i) { return part[i] + 1; });
      comm_->wait(comm_->gather(part.view(), whole.view(), root, {}));
      for (std::int64_t i = 0; i < whole.numel(); ++i)
        ASSERT_EQ(whole[i], element(root, i) + (rank_ == root ? 1 : 0)) << i;
    }
  }
}

TEST_P(CollectivesSuite, NotANumberSurvivesMaxAndMin) {
  if ((!is_float() && dtype() != Dtype::fp64) || by_nccl())
    return;  // NCCL's max and min pass NaN over
  for (ReduceOp const op : {ReduceOp::max, ReduceOp::min}) {
    for (int bad = 0; bad < ranks_; ++bad) {
      Array data = input(100);
      if (rank_ == bad) data.set(37, std::numeric_limits<double>::quiet_NaN());
      comm_->wait(comm_->all_reduce(data.view(), op, {}));
      EXPECT_TRUE(std::isnan(data[37]));
      EXPECT_FALSE(std::isnan(data[36]));
    }
  }
}

TEST_P(CollectivesSuite, OperationsRunInCallOrderAndAfterTheirEvent) {
  constexpr std::int64_t n = 3000;
  Array data = array(n * ranks_);
  auto const producer = memory::make_worker_queue("producer");
  std::vector<Pending> pending;
  for (int step = 0; step < 5; ++step) {
    producer->submit([&, step] {
      std::this_thread::sleep_for(2ms);  // what does not wait is too early
      for (std::int64_t i = rank_ * n; i < (rank_ + 1) * n; ++i)
        data.set(i, (step == 0 ? 0.0 : data[i]) + rank_ + 1);
    });
    pending.push_back(comm_->all_gather(data.view(), {n, n, 0}, producer->record()));
    pending.back().order_before(*producer);
  }
  for (auto const& p : pending) comm_->wait(p);
  for (std::int64_t i = 0; i < n * ranks_; ++i)
    ASSERT_EQ(data[i], 5.0 * static_cast<double>(i / n + 1)) << i;
}

inline std::string name_of_case(::testing::TestParamInfo<Parameter> const& info) {
  return name_of(std::get<0>(info.param)) + "_" +
         std::string(tessera::name_of(std::get<1>(info.param))) + "_" +
         (std::get<2>(info.param) == Placement::allocated ? "Allocated" : "Ordinary");
}

}  // namespace
}  // namespace tessera::comm::test
