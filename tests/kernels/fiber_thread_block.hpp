#pragma once
/// A block of a device on one host thread: every thread of the block is a fiber that runs until it
/// waits for the others. The very instance of a rule that a device runs, with its barriers and
/// exchanges, in an order that the test chooses: what a rule reads before it is written shows every
/// time (scratch begins as NaN), not once in a while.

#include <gtest/gtest.h>
#include <ucontext.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "launch/warp.hpp"

namespace tessera::kernels::test {

enum class FiberOrder { ascending, descending };

template <int Threads>
class FiberThreadBlock {
 public:
  explicit FiberThreadBlock(FiberOrder order = FiberOrder::ascending)
      : order_(order), stacks_(new std::byte[Threads * stack_bytes]) {}

  /// What a rule takes for its team.
  class Team {
   public:
    Team(FiberThreadBlock& block, int rank) : block_(block), rank_(rank) {}
    int rank() const { return rank_; }
    float* scratch() const { return block_.scratch_.data(); }
    void barrier() const { block_.meet(block_.all_, Threads); }
    template <int N>
    void exchange(float const (&value)[N], int mask, float (&other)[N]) const {
      static_assert(N <= most_values);
      int const warp = rank_ / warp_size;
      Meeting& meeting = block_.warps_[static_cast<std::size_t>(warp)];
      auto& slots = block_.slots_[meeting.round % 2];
      std::memcpy(slots[static_cast<std::size_t>(rank_)].data(), value, sizeof value);
      block_.meet(meeting, warp_size);
      std::memcpy(other, slots[static_cast<std::size_t>(rank_ ^ mask)].data(), sizeof other);
    }

   private:
    FiberThreadBlock& block_;
    int rank_;
  };

  /// The rule for every index, each with scratch of its own.
  template <class Rule>
  void run(Rule const& rule, std::int64_t teams) {
    for (std::int64_t index = 0; index < teams; ++index) {
      scratch_.assign(Rule::scratch_floats, std::nanf(""));
      run_lanes([&](int rank) { rule(Team(*this, rank), index); });
    }
  }

 private:
  static constexpr int most_values = 16, warp_size = kernels::detail::warp_size;
  static constexpr std::size_t stack_bytes = 128 << 10;
  struct Meeting {
    int arrived = 0;
    unsigned round = 0;
  };

  void meet(Meeting& meeting, int count) {
    unsigned const round = meeting.round;
    if (++meeting.arrived == count) {
      meeting.arrived = 0;
      ++meeting.round;
      return;
    }
    while (meeting.round == round)
      swapcontext(&lanes_[static_cast<std::size_t>(current_)], &scheduler_);
  }

  void run_lanes(std::function<void(int)> lane) {
    lane_ = std::move(lane);
    int running = Threads;
    for (int i = 0; i < Threads; ++i) start(i);
    for (int turns = 0; running > 0; ++turns) {
      ASSERT_LT(turns, 100000) << "threads of the block wait for threads that have ended";
      for (int i = 0; i < Threads; ++i) {
        current_ = order_ == FiberOrder::ascending ? i : Threads - 1 - i;
        if (ended_[static_cast<std::size_t>(current_)]) continue;
        swapcontext(&scheduler_, &lanes_[static_cast<std::size_t>(current_)]);
        if (ended_[static_cast<std::size_t>(current_)]) --running;
      }
    }
  }
  void start(int i) {
    auto const at = static_cast<std::size_t>(i);
    ended_[at] = false;
    getcontext(&lanes_[at]);
    lanes_[at].uc_stack.ss_sp = stacks_.get() + at * stack_bytes;
    lanes_[at].uc_stack.ss_size = stack_bytes;
    lanes_[at].uc_link = &scheduler_;
    auto const self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&lanes_[at], reinterpret_cast<void (*)()>(&FiberThreadBlock::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  }
  static void enter(unsigned high, unsigned low) {
    auto& self = *reinterpret_cast<FiberThreadBlock*>(std::uintptr_t{high} << 32 | low);
    int const rank = self.current_;
    self.lane_(rank);
    self.ended_[static_cast<std::size_t>(rank)] = true;
  }

  FiberOrder order_;
  std::unique_ptr<std::byte[]> stacks_;
  std::vector<ucontext_t> lanes_{Threads};
  std::vector<bool> ended_ = std::vector<bool>(Threads);
  ucontext_t scheduler_{};
  int current_ = 0;
  std::function<void(int)> lane_;
  std::vector<float> scratch_;
  Meeting all_;
  std::vector<Meeting> warps_{(Threads + warp_size - 1) / warp_size};
  std::vector<std::array<float, most_values>> slots_[2]{
      std::vector<std::array<float, most_values>>(Threads),
      std::vector<std::array<float, most_values>>(Threads)};
};

}  // namespace tessera::kernels::test
