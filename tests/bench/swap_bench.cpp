/// The stream of tiles between swap files and memory against plain io_uring loops of the same block
/// size and depth:
///   bench.swap [MIB=1024] [ROUNDS=5] [DIRECTORY=.] [BLOCK_KIB=1024] [DEPTH=8]
/// Prints one JSON line: medians of seconds over rounds in which the alternatives alternate, GB/s,
/// and the ratios stream over raw for reads, writes and both directions together.
#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "interleaved.hpp"
#include "optimizer/swapped_states.hpp"
#include "raw_io.hpp"

namespace {

using namespace tessera;
namespace fs = std::filesystem;
using zero::detail::SwappedStates;

struct Shape {
  std::size_t bytes = 0, block = 0;
  int depth = 0;
};

/// Drives may treat zeros and repeated pages in a way of their own.
void fill(void* memory, std::size_t bytes) {
  auto* const words = static_cast<std::uint64_t*>(memory);
  std::mt19937_64 random(bytes);
  for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) words[i] = random();
}

/// Bytes of the tiles in memory. The loops use as much: a drive of a virtual machine writes to
/// memory that is in a cache much faster.
constexpr std::size_t memory_bytes = std::size_t{64} << 20;

/// A file of its own, read or written from the first to the last block with one ring.
class RawFile {
 public:
  RawFile(fs::path const& directory, Shape const& shape)
      : shape_(shape),
        memory_("raw", memory::Purpose::workspace,
                std::max(memory_bytes, shape.block * static_cast<std::size_t>(shape.depth))) {
    bench::must(memory_.bytes() % shape.block == 0, "block size");
    file_ = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_DIRECT, 0600);
    bench::must(file_ >= 0, "open");
    bench::must(::posix_fallocate(file_, 0, static_cast<off_t>(shape.bytes)) == 0, "fallocate");
    bench::must(io_uring_queue_init(static_cast<unsigned>(shape.depth), &ring_, 0) == 0, "ring");
    fill(memory_.data(), memory_.bytes());
    move(IORING_OP_WRITE);
  }
  ~RawFile() {
    io_uring_queue_exit(&ring_);
    ::close(file_);
  }
  void move(int operation) {
    std::size_t next = 0;
    for (int i = 0; i < shape_.depth && next < shape_.bytes; ++i, next += shape_.block)
      submit(operation, next);
    for (std::size_t done = 0; done < shape_.bytes;) {
      io_uring_submit_and_wait(&ring_, 1);
      io_uring_cqe* entry = nullptr;
      while (io_uring_peek_cqe(&ring_, &entry) == 0) {
        bench::must(entry->res == static_cast<int>(shape_.block), "transfer");
        io_uring_cqe_seen(&ring_, entry);
        done += shape_.block;
        if (next < shape_.bytes) submit(operation, next);
        next += next < shape_.bytes ? shape_.block : 0;
      }
    }
  }

 private:
  void submit(int operation, std::size_t offset) {
    auto* const entry = io_uring_get_sqe(&ring_);
    io_uring_prep_rw(operation, entry, file_,
                     static_cast<char*>(memory_.data()) + offset % memory_.bytes(),
                     static_cast<unsigned>(shape_.block), offset);
  }
  Shape shape_;
  memory::Buffer memory_;  ///< huge pages, as those of the stream
  int file_ = -1;
  io_uring ring_{};
};

/// The tiles of one state, as an update moves them, without the update.
class Stream {
 public:
  Stream(fs::path const& directory, Shape const& shape)
      : states_(options(directory, shape), {"state"},
                {{"unit", static_cast<std::int64_t>(shape.bytes / sizeof(float))}}) {
    fill(states_.region(0, memory::first_unit), shape.bytes);
  }
  void run(SwappedStates::Values values) {
    for (std::size_t t = 0; t < states_.tiles().size(); ++t) {
      states_.acquire(*queue_, t);
      states_.release(*queue_, t, values);
    }
    states_.finish_transfers();
  }

 private:
  static zero::OptimizerSwap options(fs::path const& directory, Shape const& shape) {
    zero::OptimizerSwap swap;
    swap.transfers.directories = {directory};
    swap.transfers.block_size = shape.block;
    swap.transfers.queue_depth = shape.depth;
    return swap;
  }
  std::unique_ptr<memory::Queue> queue_ = memory::make_inline_queue("compute");
  SwappedStates states_;
};

/// Tiles that are written only, such as weights after an update.
class Writes {
 public:
  Writes(fs::path const& directory, Shape const& shape)
      : file_("weights", {directory}, shape.bytes),
        transfers_({{directory}, shape.block, shape.depth}),
        memory_("tiles", memory::Purpose::workspace, memory_bytes) {
    fill(memory_.data(), memory_.bytes());
  }
  void run() {
    memory::SwapTransfers::Pending pending[buffers];
    for (std::size_t at = 0, i = 0; at < file_.bytes(); at += tile, i = (i + 1) % buffers)
      pending[i] = transfers_.write(file_, at, static_cast<std::byte*>(memory_.data()) + i * tile,
                                    std::min(tile, file_.bytes() - at), pending[i]);
    transfers_.wait();
  }

 private:
  static constexpr std::size_t buffers = 4, tile = memory_bytes / buffers;
  memory::SwapFile file_;
  memory::SwapTransfers transfers_;
  memory::Buffer memory_;
};

double median(std::vector<bench::Timing> const& timings, std::size_t i) {
  return timings[i].median;
}

void run(fs::path const& directory, Shape const& shape, int rounds) {
  RawFile a(directory, shape), b(directory, shape);
  Stream stream(directory, shape);
  Writes writes(directory, shape);
  stream.run(SwappedStates::Values::changed);
  auto const timings = bench::interleaved(
      {[&] { a.move(IORING_OP_READ); }, [&] { stream.run(SwappedStates::Values::unchanged); },
       [&] { b.move(IORING_OP_WRITE); }, [&] { writes.run(); },
       [&] {
         std::thread other([&] { b.move(IORING_OP_WRITE); });
         a.move(IORING_OP_READ);
         other.join();
       },
       [&] { stream.run(SwappedStates::Values::changed); }},
      rounds);
  std::printf(
      "{\"benchmark\": \"swap\", \"mib\": %zu, \"rounds\": %d, \"block\": %zu, \"depth\": %d",
      shape.bytes >> 20, rounds, shape.block, shape.depth);
  char const* const names[] = {"read", "write", "both"};
  for (std::size_t i = 0; i < 3; ++i) {
    double const raw = median(timings, 2 * i), own = median(timings, 2 * i + 1);
    double const gigabytes = static_cast<double>(shape.bytes) * (i == 2 ? 2e-9 : 1e-9);
    std::printf(", \"%s_raw_gb_s\": %.3f, \"%s_stream_gb_s\": %.3f, \"%s_stream_over_raw\": %.3f",
                names[i], gigabytes / raw, names[i], gigabytes / own, names[i], raw / own);
  }
  std::printf("}\n");
}

}  // namespace

int main(int argc, char** argv) {
  auto const number = [&](int i, int preset) { return argc > i ? std::atoi(argv[i]) : preset; };
  try {
    Shape const shape{static_cast<std::size_t>(number(1, 1024)) << 20,
                      static_cast<std::size_t>(number(4, 1024)) << 10, number(5, 8)};
    run(argc > 3 ? argv[3] : ".", shape, number(2, 5));
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
