#include "transfer/buffer_pool.hpp"

#include "tessera/core/error.hpp"

namespace tessera::zero::detail {

BufferPool::Entry BufferPool::take(std::int64_t numel) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    std::int64_t const capacity = capacity_[it->index];
    bool const fits = capacity >= numel && capacity <= 2 * numel;
    if (fits && (best == free_.end() || capacity < capacity_[best->index])) best = it;
  }
  if (best == free_.end()) {
    buffers_.emplace_back(comm_, name_, memory::Purpose::communication, dtype_, numel);
    capacity_.push_back(numel);
    return {buffers_.back().view(0, numel), floor_, buffers_.size() - 1};
  }
  Entry entry{buffers_[best->index].view(0, numel), best->ready, best->index};
  free_.erase(best);
  return entry;
}

void BufferPool::give_back(Entry const& entry, memory::Event ready) {
  free_.push_back({entry.index, std::move(ready)});
}

void BufferPool::delay_free(memory::Event const& ready) {
  floor_ = ready;
  for (auto& entry : free_) entry.ready = ready;
  std::sort(free_.begin(), free_.end(),
            [](Free const& a, Free const& b) { return a.index < b.index; });
}

std::size_t BufferPool::bytes() const {
  std::size_t sum = 0;
  for (auto const& buffer : buffers_) sum += buffer.bytes();
  return sum;
}

}  // namespace tessera::zero::detail
