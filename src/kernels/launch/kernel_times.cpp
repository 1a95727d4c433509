#include "tessera/kernels/launch/kernel_times.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "launch/timed.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::kernels {
namespace {

struct Span {
  char const* kernel;
  bool in_head;
  double seconds;
  memory::StreamMark begin, end;  ///< GPU
};

struct Table {
  std::atomic<bool> measuring{false};
  std::mutex mutex;
  std::vector<Span> spans;

  static Table& of_process() {
    static Table table;
    return table;
  }
};

thread_local bool in_head = false;
thread_local bool in_kernel = false;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Finds the kind of work by the kernel's name.
Work work_of(std::string_view kernel) {
  auto const has = [&](char const* part) { return kernel.find(part) != std::string_view::npos; };
  if (has("gemm")) return Work::products;
  if (has("attention")) return Work::attention;
  if (has("cross_entropy")) return Work::head;
  for (char const* name : {"adam", "sgd", "lion", "lamb", "adagrad", "adafactor", "muon", "rmsprop",
                           "quantized", "gradient_statistics", "norm_and_overflow", "optimizer"})
    if (has(name)) return Work::optimizer;
  return Work::elementwise;
}

}  // namespace

char const* name_of(Work work) {
  constexpr char const* names[work_kinds] = {"products", "attention", "head", "element-wise",
                                             "optimizer"};
  return names[static_cast<int>(work)];
}

bool detail::Timed::measuring() {
  return Table::of_process().measuring.load(std::memory_order_relaxed);
}

void detail::Timed::begin(memory::Queue& q, char const* kernel) {
  bool const on_gpu = memory::on_gpu(q);
  if (in_kernel || (!on_gpu && q.kind() != memory::QueueKind::inline_host)) return;
  if (on_gpu) {
    start_mark_ = memory::mark(q);
    if (!start_mark_) return;
  } else {
    start_ = now();
  }
  in_kernel = true;
  queue_ = &q;
  kernel_ = kernel;
}

void detail::Timed::end() {
  in_kernel = false;
  Span span{kernel_, in_head, 0.0, start_mark_, nullptr};
  if (start_mark_)
    span.end = memory::mark(*queue_);
  else
    span.seconds = now() - start_;
  auto& table = Table::of_process();
  std::lock_guard const lock(table.mutex);
  table.spans.push_back(span);
}

KernelTimes::KernelTimes() {
  TESSERA_VALIDATE(!Table::of_process().measuring.exchange(true), InternalError,
                   "kernels are measured already");
}

KernelTimes::~KernelTimes() {
  take();
  Table::of_process().measuring = false;
}

std::vector<KernelTimes::Entry> KernelTimes::take() {
  auto& table = Table::of_process();
  std::vector<Span> spans;
  {
    std::lock_guard const lock(table.mutex);
    spans.swap(table.spans);
  }
  std::map<std::pair<std::string_view, bool>, Entry> sums;
  for (auto const& span : spans) {
    auto& entry = sums[{span.kernel, span.in_head}];
    entry.kernel = span.kernel;
    entry.work = span.in_head ? Work::head : work_of(span.kernel);
    entry.seconds += span.begin ? memory::seconds_between(span.begin, span.end) : span.seconds;
    ++entry.calls;
  }
  std::vector<Entry> out;
  for (auto& [key, entry] : sums) out.push_back(std::move(entry));
  std::stable_sort(out.begin(), out.end(),
                   [](Entry const& a, Entry const& b) { return a.seconds > b.seconds; });
  return out;
}

HeadScope::HeadScope() : before_(std::exchange(in_head, true)) {}
HeadScope::~HeadScope() { in_head = before_; }

}  // namespace tessera::kernels
