#pragma once
/// A file that the ranks of one fake communicator map: who is there, what each calls, and one piece
/// of each rank's data at a time.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tessera::test {

class Exchange {
 public:
  static constexpr std::size_t piece_bytes = std::size_t{1} << 20;
  static constexpr std::size_t card_bytes = 4096;

  Exchange(std::string path, int ranks, int rank)
      : path_(std::move(path)), ranks_(ranks), rank_(rank) {
    bytes_ = static_cast<std::size_t>(ranks) * (sizeof(Seat) + card_bytes + piece_bytes);
    int const file = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes_)) != 0)
      throw std::runtime_error("cannot make " + path_);
    void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) throw std::runtime_error("cannot map " + path_);
    base_ = static_cast<std::byte*>(at);
  }
  ~Exchange() {
    unlink(path_.c_str());
    munmap(base_, bytes_);
  }
  Exchange(Exchange const&) = delete;
  Exchange& operator=(Exchange const&) = delete;

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

  void join() { seat(rank_).joined = 1; }
  void leave() { seat(rank_).left = 1; }
  bool all_joined() const {
    return all([](Seat const& s) { return s.joined == 1; });
  }
  bool all_left() const {
    return all([](Seat const& s) { return s.left == 1; });
  }

  /// A rank's color and key in split number @p number of this communicator, from 1.
  void offer_split(int number, int color, int key) {
    auto& mine = seat(rank_);
    mine.colors[number % splits_kept] = color;
    mine.keys[number % splits_kept] = key;
    mine.splits = number;
  }
  bool all_offered(int number) const {
    return all([number](Seat const& s) { return s.splits >= number; });
  }
  /// The ranks of a color in the order of their keys.
  std::vector<int> members(int number, int color) const {
    std::vector<int> out;
    auto const at = number % splits_kept;
    for (int q = 0; q < ranks_; ++q)
      if (seat(q).colors[at] == color) out.push_back(q);
    std::stable_sort(out.begin(), out.end(),
                     [&](int a, int b) { return seat(a).keys[at] < seat(b).keys[at]; });
    return out;
  }

  /// A rank's bytes of window number @p number of this communicator, from 1.
  void offer_window(int number, std::size_t bytes) {
    auto& mine = seat(rank_);
    mine.window_bytes[number % splits_kept] = bytes;
    mine.windows = number;
  }
  bool all_offered_window(int number) const {
    return all([number](Seat const& s) { return s.windows >= number; });
  }
  /// After all have offered it, and before this rank offers the next.
  bool window_has_one_size(int number) const {
    auto const at = number % splits_kept;
    return all([&](Seat const& s) { return s.window_bytes[at] == seat(rank_).window_bytes[at]; });
  }

  /// A rank's card and piece may be written between two meetings and read after the second.
  std::byte* card(int rank) const {
    return base_ + static_cast<std::size_t>(ranks_) * sizeof(Seat) +
           static_cast<std::size_t>(rank) * card_bytes;
  }
  std::byte* piece(int rank) const {
    return base_ + static_cast<std::size_t>(ranks_) * (sizeof(Seat) + card_bytes) +
           static_cast<std::size_t>(rank) * piece_bytes;
  }
  /// Until every rank has come as often as this one; false when given up.
  bool meet(std::atomic<bool> const& give_up) {
    auto const mine = ++seat(rank_).arrived;
    for (int looks = 0; !all([mine](Seat const& s) { return s.arrived >= mine; }); ++looks) {
      if (give_up) return false;
      if (looks < 50)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return !give_up;
  }

 private:
  static constexpr int splits_kept = 4;
  struct alignas(64) Seat {
    std::atomic<std::uint64_t> arrived;
    std::atomic<int> joined, left;
    std::atomic<int> splits, colors[splits_kept], keys[splits_kept];
    std::atomic<int> windows;
    std::atomic<std::size_t> window_bytes[splits_kept];
  };
  Seat& seat(int rank) const { return reinterpret_cast<Seat*>(base_)[rank]; }
  template <class Test>
  bool all(Test test) const {
    for (int q = 0; q < ranks_; ++q)
      if (!test(seat(q))) return false;
    return true;
  }

  std::string path_;
  int ranks_, rank_;
  std::size_t bytes_ = 0;
  std::byte* base_ = nullptr;
};

}  // namespace tessera::test
