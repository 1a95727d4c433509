#pragma once
/// Planned work of many ranks, run by events.

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "tessera/train/setup/memory_plan.hpp"

namespace tessera::plan {

/// Ranks that do the same at the same time. Every rank does the planned work; classes differ in
/// speed.
struct RankClass {
  std::int64_t ranks = 1;
  double compute = 1.0;  ///< factor of the time of all work but collectives
  double network = 1.0;  ///< factor of the time of collectives
  bool operator==(RankClass const&) const = default;
};

/// Events of all classes in the order of time. Work starts when what it waits for has finished. A
/// collective starts when every class has reached it and the network is free: collectives take it
/// one after the other, in the order in which they become ready. It ends on all ranks together, at
/// the speed of the slowest class. As ranks of a class have the same events, one of them is
/// simulated: the result is that of all ranks, bit for bit.
class Simulation {
 public:
  struct Work {
    train::PlannedSteps const& steps;
    std::vector<double> seconds;  ///< seconds of each piece, without waiting
    /// Part of a rank's compute speed that a collective takes while it runs.
    double collective_share = 0.0;
  };
  Simulation(Work work, std::vector<RankClass> const& classes);

  /// The end of the last piece on the compute queue in the first or second step, of all classes.
  double first_step_end() const { return ends_[0]; }
  double second_step_end() const { return ends_[1]; }
  std::int64_t events() const { return events_; }

 private:
  static constexpr int network = -1;
  struct Finish {
    double time;
    int work, rank_class;
    std::uint32_t version;
    bool operator>(Finish const& other) const {
      if (time != other.time) return time > other.time;
      return work != other.work ? work > other.work : rank_class > other.rank_class;
    }
  };
  /// The piece of a class on its compute queue.
  struct Computing {
    int work = -1;
    double remaining = 0.0, since = 0.0, rate = 1.0;
    std::uint32_t version = 0;
  };
  struct Ready {
    double time;
    int work;
    bool operator>(Ready const& other) const {
      return time != other.time ? time > other.time : work > other.work;
    }
  };
  bool is_compute(int work) const;
  void find_followers();
  void start(int rank_class, int work, double time);
  void finish(int rank_class, int work, double time);
  void start_collective(double time);
  void set_rates(double rate, double time);
  void schedule(int rank_class, double time);

  Work work_;
  std::vector<RankClass> classes_;
  /// The pieces that wait for piece i: followers_[first_follower_[i]] to that of i + 1.
  std::vector<int> followers_, first_follower_;
  std::vector<std::uint16_t> missing_;  ///< [class][work] pieces that it still waits for
  std::vector<int> arrived_;            ///< [work] classes that have reached a collective
  std::vector<Computing> computing_;    ///< [class]
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> events_queue_;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> waiting_;
  int compute_queue_ = 0;
  double slowest_network_ = 1.0;
  bool network_busy_ = false;
  double ends_[2] = {0.0, 0.0};
  std::int64_t events_ = 0;
};

/// Puts the expected slowest of @p ranks whose speeds differ by @p jitter (standard deviation, in
/// parts of the time) into a class of one rank. @p ranks x jitter 0: one class.
std::vector<RankClass> classes_with_jitter(std::int64_t ranks, double jitter);

}  // namespace tessera::plan
