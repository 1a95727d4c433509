/// Errors that all ranks share: mismatched calls, failed input, no memory, no sharing; and that
/// they stay.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <functional>
#include <thread>

#include "comm_test.hpp"

namespace tessera::comm::test {
namespace {

std::string message_of(std::function<void()> const& body) {
  try {
    body();
  } catch (std::exception const& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Mismatch, NamesBothRanksAndOperations) {
  auto const comm = make(Implementation::automatic);
  Array a(*comm, Placement::ordinary, Dtype::fp32, 100);
  auto const pending = comm->rank() == 1 ? comm->all_reduce(a.view(), ReduceOp::max, {})
                                         : comm->broadcast(a.view(), 0, {});
  std::string const message = message_of([&] { comm->wait(pending); });
  EXPECT_NE(message.find("rank 0 calls broadcast number 1 (100 fp32 elements, 400 bytes"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("rank 1 calls all_reduce number 1 (100 fp32 elements, 400 bytes"),
            std::string::npos)
      << message;
  EXPECT_THROW(comm->barrier(), InternalError) << "the error stays";
}

TEST(Mismatch, SeesDifferentSizes) {
  auto const comm = make(Implementation::automatic);
  Array a(*comm, Placement::ordinary, Dtype::bf16, 100'000);
  EXPECT_THROW(comm->wait(comm->broadcast(a.view(0, comm->rank() == 1 ? 90'000 : 100'000), 0, {})),
               InternalError);
}

TEST(Failure, OfTheInputEndsTheOperationOnAllRanks) {
  auto const comm = make(Implementation::automatic);
  Array a(*comm, Placement::ordinary, Dtype::fp32, 100);
  auto const producer = memory::make_worker_queue("producer");
  if (comm->rank() == 0) producer->submit([] { throw DataError("the input is broken"); });
  auto const pending = comm->broadcast(a.view(), 0, producer->record());
  if (comm->rank() == 0) {
    EXPECT_THROW(comm->wait(pending), DataError);
    EXPECT_THROW(comm->barrier(), DataError) << "later operations report the first error";
  } else {
    std::string const message = message_of([&] { comm->wait(pending); });
    EXPECT_NE(message.find("rank 0"), std::string::npos) << message;
    EXPECT_NE(message.find("takes part in no further operation"), std::string::npos) << message;
  }
}

TEST(Failure, DestructorGivesUpWhatNobodyAnswers) {
  auto comm = make(Implementation::automatic);
  Array a(*comm, Placement::ordinary, Dtype::fp32, 10);
  auto const start = std::chrono::steady_clock::now();
  Pending const alone = comm->rank() == 0 ? comm->broadcast(a.view(), 0, {}) : Pending();
  comm.reset();
  EXPECT_TRUE(alone.event().done());
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
}

TEST(Allocate, IsCountedAndReturned) {
  auto const comm = make(Implementation::automatic);
  auto& tracker = memory::MemoryTracker::of_process();
  std::size_t const before = tracker.current(memory::Purpose::gradients);
  auto owner = comm->allocate("test.gradients", memory::Purpose::gradients, 12'345);
  EXPECT_EQ(tracker.current(memory::Purpose::gradients), before + 12'345);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(owner.get()) % 64, 0u);
  for (int i = 0; i < 12'345; ++i) ASSERT_EQ(static_cast<char const*>(owner.get())[i], 0);
  owner.reset();
  EXPECT_EQ(tracker.current(memory::Purpose::gradients), before);
}

TEST(Allocate, OwnersOutliveTheirCollectives) {
  auto comm = make(Implementation::automatic);
  auto const owner = comm->allocate("test.survivor", memory::Purpose::workspace, 100'000);
  comm.reset();
  static_cast<char*>(owner.get())[99'999] = 1;
}

TEST(Allocate, MoreThanTheMachineHasIsAnErrorOnEveryRankAndTheStreamContinues) {
  for (auto const which : {Implementation::automatic, Implementation::mpi_only}) {
    auto const comm = make(which);
    std::string const message = message_of([&] {
      (void)comm->allocate("test.too_much", memory::Purpose::weights, std::size_t{1} << 46);
    });
    EXPECT_NE(message.find("test.too_much"), std::string::npos) << message;
    EXPECT_NE(message.find("64.0 TiB"), std::string::npos) << message;
    EXPECT_TRUE(agree(*comm, true));
  }
}

TEST(Allocate, FallsBackToOrdinaryMemoryOnAllRanksWhenOneCannotShare) {
  auto const comm = make(Implementation::automatic);
  constexpr std::int64_t n = 200'000;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  if (comm->rank() == 1) {
    rlimit const small{4096, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  Array data(*comm, Placement::allocated, Dtype::fp32, n * comm->size());
  setrlimit(RLIMIT_FSIZE, &before);
  data.fill([&](auto i) { return element(comm->rank(), i); });
  comm->wait(comm->all_gather(data.view(), {n, n, 0}, {}));
  for (std::int64_t i = 0; i < data.numel(); ++i)
    ASSERT_EQ(data[i], element(static_cast<int>(i / n), i));
}

}  // namespace
}  // namespace tessera::comm::test
