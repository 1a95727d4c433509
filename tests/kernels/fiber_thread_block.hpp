#pragma once
/// A block of a device on one host thread: every thread of the block is a fiber that runs until it
/// waits for the others. The very instance of a rule that a device runs, with its barriers and
/// exchanges, in an order that the test chooses: what a rule reads before it is written shows every
/// time (scratch begins as NaN), not once in a while.

#include <gtest/gtest.h>
#include <setjmp.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "launch/thread_blocks.hpp"
#include "launch/warp.hpp"

namespace tessera::kernels::test {

enum class FiberOrder { ascending, descending };

class FiberBlock {
 public:
  /// @param warp  threads that exchange values with each other: 32 on NVIDIA's devices, 64 on some
  ///              of AMD's
  explicit FiberBlock(int threads, FiberOrder order = FiberOrder::ascending,
                      int warp = detail::warp_size)
      : threads_(threads),
        warp_(warp),
        order_(order),
        stacks_(new std::byte[at(threads) * stack_bytes]),
        fibers_(at(threads)),
        warps_(at((threads + warp - 1) / warp)),
        shared_(at(threads)) {
    for (auto& slots : slots_) slots.resize(at(threads));
  }

  /// What a rule takes for its team.
  class Team final : public detail::BlockThread {
   public:
    Team(FiberBlock& block, int rank) : block_(block), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return block_.threads_; }
    float* scratch() const override { return block_.scratch_.data(); }
    void barrier() const override { block_.meet(block_.all_); }
    void* slot(int rank) const override { return block_.shared_[at(rank)].data(); }

   protected:
    void swap_in_warp(void const* value, int mask, void* other, std::size_t bytes) const override {
      Meeting& meeting = block_.warps_[at(rank_ / block_.warp_)];
      auto& slots = block_.slots_[meeting.round % 2];
      std::memcpy(slots[at(rank_)].data(), value, bytes);
      block_.meet(meeting);
      std::memcpy(other, slots[at(rank_ ^ mask)].data(), bytes);
    }

   private:
    FiberBlock& block_;
    int rank_;
  };

  /// The rule for every index, each with scratch of its own.
  template <class Rule>
  void run(Rule const& rule, std::int64_t teams) {
    run_blocks(teams, Rule::scratch_floats,
               [&](Team const& team, std::int64_t index) { rule(team, index); });
  }
  void run_blocks(std::int64_t blocks, std::size_t scratch_floats,
                  std::function<void(Team const&, std::int64_t)> const& call) {
    for (std::int64_t index = 0; index < blocks; ++index) {
      scratch_.assign(scratch_floats, std::nanf(""));
      run_fibers([&](int rank) { call(Team(*this, rank), index); });
    }
  }

 private:
  static constexpr std::size_t stack_bytes = 128 << 10;
  using Slot = std::array<std::byte, detail::BlockThread::slot_bytes>;
  struct Meeting {
    int arrived = 0, expected = 0;
    unsigned round = 0;
    /// Whether the round is over: threads that have ended are not waited for.
    bool complete() {
      if (arrived == 0 || arrived < expected) return false;
      arrived = 0;
      ++round;
      return true;
    }
  };
  struct Fiber {
    ucontext_t context{};
    jmp_buf jump{};
    bool entered = false, ended = false;
  };
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  void meet(Meeting& meeting) {
    unsigned const round = meeting.round;
    ++meeting.arrived;
    if (meeting.complete()) return;
    while (meeting.round == round) leave();
  }

  /// From a fiber to the scheduler, and back. Jumps need no system calls; the address sanitizer
  /// knows swapcontext only.
  void leave() {
    Fiber& fiber = fibers_[at(current_)];
#ifdef __SANITIZE_ADDRESS__
    swapcontext(&fiber.context, &scheduler_);
#else
    if (_setjmp(fiber.jump) == 0) _longjmp(scheduler_jump_, 1);
#endif
  }
  void resume(Fiber& fiber) {
#ifdef __SANITIZE_ADDRESS__
    swapcontext(&scheduler_, &fiber.context);
#else
    if (_setjmp(scheduler_jump_) != 0) return;
    if (std::exchange(fiber.entered, true)) _longjmp(fiber.jump, 1);
    setcontext(&fiber.context);
#endif
  }

  void run_fibers(std::function<void(int)> work) {
    work_ = std::move(work);
    int running = threads_;
    all_ = {0, threads_, 0};
    for (auto& warp : warps_) warp = {};
    for (int i = 0; i < threads_; ++i) {
      if (!started_) start(i);
      ++warps_[at(i / warp_)].expected;
      fibers_[at(i)].ended = false;
    }
    started_ = true;
    for (int turns = 0; running > 0; ++turns) {
      if (turns == 100000) {
        started_ = false;
        FAIL() << "threads of the block wait for threads that have ended";
      }
      for (int i = 0; i < threads_; ++i) {
        current_ = order_ == FiberOrder::ascending ? i : threads_ - 1 - i;
        Fiber& next = fibers_[at(current_)];
        if (next.ended) continue;
        resume(next);
        if (!next.ended) continue;
        --running;
        Meeting& warp = warps_[at(current_ / warp_)];
        --warp.expected;
        warp.complete();
      }
    }
  }
  void start(int i) {
    Fiber& fiber = fibers_[at(i)];
    fiber.entered = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stacks_.get() + at(i) * stack_bytes;
    fiber.context.uc_stack.ss_size = stack_bytes;
    auto const self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(&FiberBlock::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  }
  /// A fiber lives as long as the block, for one index after the other.
  static void enter(unsigned high, unsigned low) {
    auto& self = *reinterpret_cast<FiberBlock*>(std::uintptr_t{high} << 32 | low);
    for (int const rank = self.current_;; self.leave()) {
      self.work_(rank);
      self.fibers_[at(rank)].ended = true;
    }
  }

  int threads_, warp_;
  FiberOrder order_;
  std::unique_ptr<std::byte[]> stacks_;
  std::vector<Fiber> fibers_;
  bool started_ = false;
  ucontext_t scheduler_{};
  jmp_buf scheduler_jump_{};
  int current_ = 0;
  std::function<void(int)> work_;
  std::vector<float> scratch_;
  Meeting all_;
  std::vector<Meeting> warps_;
  std::vector<Slot> slots_[2], shared_;
};

template <int Threads>
class FiberThreadBlock : public FiberBlock {
 public:
  explicit FiberThreadBlock(FiberOrder order = FiberOrder::ascending, int warp = detail::warp_size)
      : FiberBlock(Threads, order, warp) {}
};

/// While it lives, launches on streams run in blocks of fibers with the team sizes of a GPU.
class FiberDevice : public detail::ThreadBlocks {
 public:
  explicit FiberDevice(FiberOrder order = FiberOrder::ascending, int warp = detail::warp_size,
                       int threads_per_row = 128, bool every_queue = false)
      : order_(order), warp_(warp), threads_per_row_(threads_per_row), every_queue_(every_queue) {
    of_test = this;
  }
  ~FiberDevice() override { of_test = nullptr; }
  FiberDevice(FiberDevice const&) = delete;
  FiberDevice& operator=(FiberDevice const&) = delete;

  std::int64_t blocks() const { return blocks_; }

  int threads_per_row() const override { return threads_per_row_; }
  bool take_every_queue() const override { return every_queue_; }
  void run(int threads, std::int64_t blocks, std::size_t scratch_floats,
           Call const& call) override {
    blocks_ += blocks;
    thread_local std::map<std::tuple<int, FiberOrder, int>, std::unique_ptr<FiberBlock>> of_thread;
    auto& block = of_thread[{threads, order_, warp_}];
    if (!block) block = std::make_unique<FiberBlock>(threads, order_, warp_);
    block->run_blocks(blocks, scratch_floats, call);
  }

 private:
  FiberOrder order_;
  int warp_, threads_per_row_;
  bool every_queue_;
  std::atomic<std::int64_t> blocks_{0};
};

}  // namespace tessera::kernels::test
