#pragma once
/// Where the time of kernels goes. On the host it is that of the calling thread; on a GPU that of
/// the stream, by events of the device, without waiting for each kernel.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::kernels {

/// Kinds of kernels; head is the loss over the vocabulary.
enum class Work { products, attention, head, elementwise, optimizer };
inline constexpr int work_kinds = 5;
char const* name_of(Work work);

/// Measures kernels and matrix products on inline queues and on streams of a GPU while it lives,
/// but not those in device graphs. One at a time.
class KernelTimes {
 public:
  KernelTimes();
  ~KernelTimes();
  KernelTimes(KernelTimes const&) = delete;

  /// All calls of one kernel.
  struct Entry {
    std::string kernel;  ///< "tessera::kernels::layer_norm"
    Work work;
    double seconds = 0.0;
    std::int64_t calls = 0;
  };
  /// Since the last call, the longest first. On a GPU it waits for the kernels.
  std::vector<Entry> take();
};

/// While it lives, kernels that this thread enqueues belong to the head, whatever they compute.
class HeadScope {
 public:
  HeadScope();
  ~HeadScope();
  HeadScope(HeadScope const&) = delete;

 private:
  bool before_;
};

}  // namespace tessera::kernels
