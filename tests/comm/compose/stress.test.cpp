/// Long random sequences of operations with skewed ranks and buffers that are overwritten
/// immediately: a missing wait between ranks shows as a wrong value. And: a rank that waits leaves
/// its core to others.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "comm_test.hpp"

namespace tessera::comm::test {
namespace {

class Stress : public ::testing::TestWithParam<Implementation> {
 protected:
  std::unique_ptr<Collectives> comm_ = make(GetParam());
  int rank_ = comm_->rank(), ranks_ = comm_->size();
};

/// One random operation on data of its own, checked, with the buffers spoilt right after it.
class RandomOperation {
 public:
  RandomOperation(Collectives& comm, std::mt19937& choice)
      : comm_(comm),
        kind_(static_cast<int>(choice() % 4)),
        numel_(numels[choice() % 5]),
        offset_(static_cast<std::int64_t>(choice() % 3)),
        in_(comm, placement(choice), Dtype::fp32, comm.size() * stride()),
        out_(comm, placement(choice), Dtype::fp32, comm.size() * stride()),
        root_(static_cast<int>(choice() % static_cast<unsigned>(comm.size()))) {}

  /// @param salt makes the values of each round different
  void run(int salt) {
    in_.fill([&](auto i) { return value(comm_.rank(), i, salt); });
    comm_.wait(start());
    check(salt);
    in_.fill([](auto) { return -1e30; });
    out_.fill([](auto) { return -1e30; });
  }

 private:
  static constexpr std::int64_t numels[] = {1, 500, 4096, 20'000, 300'001};
  static Placement placement(std::mt19937& choice) {
    return choice() % 2 ? Placement::allocated : Placement::ordinary;
  }
  static double value(int rank, std::int64_t i, int salt) {
    return static_cast<double>((i + rank * 13 + salt * 7) % 1009);
  }
  std::int64_t stride() const { return numel_ + 3; }
  StridedShards blocks() const { return {numel_, stride(), offset_}; }

  Pending start() {
    switch (kind_) {
      case 0:
        return comm_.reduce_scatter(in_.view(), blocks(), out_.view(0, numel_),
                                    memory::WriteMode::overwrite, {});
      case 1:
        return comm_.all_gather(in_.view(comm_.rank() * stride(), stride()), out_.view(), blocks(),
                                {});
      case 2:
        return comm_.all_reduce(in_.view(0, numel_), ReduceOp::sum, {});
      default:
        return comm_.broadcast(in_.view(0, numel_), root_, {});
    }
  }
  void check(int salt) const {
    auto const sum = [&](std::int64_t i) {
      double s = 0;
      for (int q = 0; q < comm_.size(); ++q) s += value(q, i, salt);
      return s;
    };
    for (std::int64_t i = 0; i < numel_; ++i) {
      if (kind_ == 0) {
        ASSERT_EQ(out_[i], sum(comm_.rank() * stride() + offset_ + i))
            << "reduce_scatter of " << numel_;
      }
      if (kind_ == 2) {
        ASSERT_EQ(in_[i], sum(i)) << "all_reduce of " << numel_;
      }
      if (kind_ == 3) {
        ASSERT_EQ(in_[i], value(root_, i, salt)) << "broadcast of " << numel_;
      }
      for (int q = 0; kind_ == 1 && q < comm_.size(); ++q) {
        std::int64_t const at = q * stride() + offset_ + i;
        ASSERT_EQ(out_[at], value(q, at, salt)) << "all_gather of " << numel_;
      }
    }
  }

  Collectives& comm_;
  int kind_;
  std::int64_t numel_, offset_;
  Array in_, out_;
  int root_;
};

TEST_P(Stress, RandomOperationsWithSkewedRanks) {
  std::mt19937 shared(17), own(static_cast<unsigned>(1000 + rank_));
  for (int i = 0; i < 25; ++i) {
    RandomOperation operation(*comm_, shared);
    for (int round = 0; round < 3; ++round) {
      if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 3000));
      operation.run(3 * i + round);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

TEST_P(Stress, AQueueFullOfSmallOperations) {
  Array data(*comm_, Placement::ordinary, Dtype::int64, 1);
  data.set(0, 1);
  std::vector<Pending> pending;
  for (int i = 0; i < 20; ++i) {
    pending.push_back(comm_->all_reduce(data.view(), ReduceOp::sum, {}));
    pending.push_back(comm_->all_reduce(data.view(), ReduceOp::min, {}));
  }
  for (auto const& p : pending) comm_->wait(p);
  double expected = 1;
  for (int i = 0; i < 20; ++i) expected *= ranks_;
  EXPECT_EQ(data[0], expected);
}

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

TEST_P(Stress, AWaitingRankLeavesItsCore) {
  comm_->barrier();
  double const before = cpu_seconds();
  if (rank_ == 0) std::this_thread::sleep_for(1s);  // the others wait for as long
  comm_->barrier();
  EXPECT_LT(cpu_seconds() - before, 0.25) << "of about one second waited";
}

std::string name(::testing::TestParamInfo<Implementation> const& info) {
  return name_of(info.param);
}
INSTANTIATE_TEST_SUITE_P(All, Stress,
                         ::testing::Values(Implementation::automatic, Implementation::mpi_only),
                         name);

}  // namespace
}  // namespace tessera::comm::test
