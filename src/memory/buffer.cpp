#include "tessera/memory/buffer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "detail/device_memory.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/limits.hpp"

namespace tessera::memory {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr int purposes = static_cast<int>(Purpose::data) + 1;

std::size_t round_up(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

/// Zeroed pages straight from the system; transparent huge pages for what is large enough to gain
/// from them.
void* map_pages(std::string const& name, std::size_t bytes) {
  require_available(name, bytes);
  std::size_t const mapped = round_up(bytes, bytes >= huge_page ? huge_page : 4096);
  std::size_t const slack = bytes >= huge_page ? huge_page : 0;
  void* raw = mmap(nullptr, mapped + slack, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED)
    throw OutOfMemoryError(concat("cannot allocate ", bytes, " bytes for ", name, ": ",
                                  with_errno("mmap", errno),
                                  "; use a smaller batch, a higher ZeRO stage or more ranks"));
  if (slack == 0) return raw;
  auto const base = reinterpret_cast<std::uintptr_t>(raw);
  auto const aligned = round_up(base, huge_page);
  if (aligned > base) munmap(raw, aligned - base);
  std::size_t const tail = base + slack - aligned;
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + mapped), tail);
  madvise(reinterpret_cast<void*>(aligned), mapped, MADV_HUGEPAGE);
  return reinterpret_cast<void*>(aligned);
}

void unmap_pages(void* data, std::size_t bytes) noexcept {
  munmap(data, round_up(bytes, bytes >= huge_page ? huge_page : 4096));
}

/// "weights 812 MiB, activations 3021 MiB", largest first.
std::string holdings(MemoryTracker const& tracker) {
  std::vector<std::pair<std::size_t, Purpose>> held;
  for (int p = 0; p < purposes; ++p)
    if (auto const bytes = tracker.current(static_cast<Purpose>(p)); bytes > 0)
      held.emplace_back(bytes, static_cast<Purpose>(p));
  std::sort(held.rbegin(), held.rend());
  std::string out;
  for (auto const& [bytes, purpose] : held)
    out += concat(out.empty() ? "" : ", ", name_of(purpose), " ", bytes >> 20, " MiB");
  return out.empty() ? "nothing" : out;
}

void* allocate_on_device(std::string const& name, std::size_t bytes) {
  auto& memory = detail::device_memory();
  void* const data = memory.allocate(bytes);
  if (!data) {
    auto const available = memory.api().memory_info();
    throw OutOfMemoryError(concat(
        "cannot allocate ", bytes, " bytes for ", name, " on the device: ", available.free_bytes,
        " of its ", available.total_bytes, " bytes are free, this process holds ",
        holdings(MemoryTracker::of_device()),
        "; use a smaller --per_device_train_batch_size, --gradient_checkpointing, a higher ZeRO "
        "stage or more ranks"));
  }
  return data;
}

void* allocate_pinned(std::string const& name, std::size_t bytes) {
  auto& memory = detail::device_memory();
  void* data = memory.reuse_pinned(bytes);
  if (!data) {
    require_available(name, bytes);
    data = memory.allocate_pinned(bytes);
  }
  TESSERA_VALIDATE(data, OutOfMemoryError, "cannot pin ", bytes, " bytes of host memory for ", name,
                   "; this process holds ", holdings(MemoryTracker::of_process()),
                   "; the limit on locked memory (ulimit -l) may be too low");
  std::memset(data, 0, bytes);
  return data;
}

void* allocate(MemorySpace space, std::string const& name, std::size_t bytes) {
  switch (space) {
    case MemorySpace::device:
      return allocate_on_device(name, bytes);
    case MemorySpace::pinned:
      return allocate_pinned(name, bytes);
    case MemorySpace::host:
      break;
  }
  return map_pages(name, bytes);
}

void give_back(MemorySpace space, void* data, std::size_t bytes) noexcept {
  switch (space) {
    case MemorySpace::device:
      return detail::device_memory().free(data);
    case MemorySpace::pinned:
      return detail::device_memory().free_pinned(data, bytes);
    case MemorySpace::host:
      break;
  }
  unmap_pages(data, bytes);
}

}  // namespace

std::string_view name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::weights:
      return "weights";
    case Purpose::gradients:
      return "gradients";
    case Purpose::master_weights:
      return "master_weights";
    case Purpose::optimizer_state:
      return "optimizer_state";
    case Purpose::communication:
      return "communication";
    case Purpose::activations:
      return "activations";
    case Purpose::workspace:
      return "workspace";
    case Purpose::data:
      return "data";
  }
  return "unknown";
}

struct MemoryTracker::Impl {
  mutable std::mutex mutex;
  std::size_t now[purposes] = {}, most[purposes] = {}, total = 0, most_total = 0;
  std::map<std::pair<Purpose, std::string>, std::size_t> by_name;
};

MemoryTracker::MemoryTracker() : impl_(std::make_shared<Impl>()) {}
MemoryTracker& MemoryTracker::of_process() {
  static MemoryTracker& tracker = *new MemoryTracker;  // outlives every static owner of memory
  return tracker;
}
MemoryTracker& MemoryTracker::of_device() {
  static MemoryTracker& tracker = *new MemoryTracker;
  return tracker;
}
void MemoryTracker::add(Purpose purpose, std::string const& name, std::size_t bytes) {
  std::lock_guard lock(impl_->mutex);
  auto const p = static_cast<std::size_t>(purpose);
  impl_->now[p] += bytes;
  impl_->most[p] = std::max(impl_->most[p], impl_->now[p]);
  impl_->total += bytes;
  impl_->most_total = std::max(impl_->most_total, impl_->total);
  impl_->by_name[{purpose, name}] += bytes;
}
void MemoryTracker::remove(Purpose purpose, std::string const& name, std::size_t bytes) {
  std::lock_guard lock(impl_->mutex);
  impl_->now[static_cast<std::size_t>(purpose)] -= bytes;
  impl_->total -= bytes;
  auto const found = impl_->by_name.find({purpose, name});
  if (found != impl_->by_name.end() && (found->second -= bytes) == 0) impl_->by_name.erase(found);
}
std::size_t MemoryTracker::current(Purpose purpose) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->now[static_cast<std::size_t>(purpose)];
}
std::size_t MemoryTracker::peak(Purpose purpose) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->most[static_cast<std::size_t>(purpose)];
}
std::size_t MemoryTracker::current_total() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->total;
}
std::size_t MemoryTracker::peak_total() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->most_total;
}
std::vector<TrackedMemory> MemoryTracker::entries() const {
  std::lock_guard lock(impl_->mutex);
  std::vector<TrackedMemory> out;
  for (auto const& [key, bytes] : impl_->by_name) out.push_back({key.first, key.second, bytes});
  return out;
}

Buffer::Buffer(std::string name, Purpose purpose, std::size_t bytes, MemorySpace space)
    : name_(std::move(name)), purpose_(purpose), space_(space), bytes_(bytes) {
  if (bytes_ == 0) return;
  data_ = allocate(space_, name_, bytes_);
  MemoryTracker::of(space_).add(purpose_, name_, bytes_);
}
Buffer::Buffer(Buffer&& other) noexcept
    : name_(std::move(other.name_)),
      purpose_(other.purpose_),
      space_(other.space_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}
Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    name_ = std::move(other.name_);
    purpose_ = other.purpose_;
    space_ = other.space_;
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}
Buffer::~Buffer() { release(); }
void Buffer::release() noexcept {
  if (!data_) return;
  give_back(space_, data_, bytes_);
  MemoryTracker::of(space_).remove(purpose_, name_, bytes_);
  data_ = nullptr;
}
TensorView Buffer::view(Dtype dtype, std::initializer_list<std::int64_t> dims,
                        std::size_t offset) const {
  TensorView const out(static_cast<std::byte*>(data_) + offset, dtype, dims);
  TESSERA_EXPECT(offset + out.bytes() <= bytes_, name_, ": view of ", out.bytes(), " bytes at ",
                 offset, " in ", bytes_);
  return out;
}

/// Blocks are kept once made; an allocation takes the first block from the current one on that has
/// room.
struct Arena::Impl {
  std::string name;
  Purpose purpose;
  MemorySpace space;
  struct Block {
    Buffer buffer;
    std::size_t start;  ///< position of its first byte in the arena's address line
  };
  std::vector<Block> blocks;
  std::size_t position = 0;  ///< next free byte in the address line
  std::size_t peak = 0;
  std::size_t alignment() const { return space == MemorySpace::device ? 256 : 64; }
  static constexpr std::size_t smallest_block = std::size_t{8} << 20;
};

Arena::Arena(std::string name, Purpose purpose, MemorySpace space)
    : impl_(std::make_unique<Impl>()) {
  impl_->name = std::move(name);
  impl_->purpose = purpose;
  impl_->space = space;
}
Arena::~Arena() = default;
Arena::Arena(Arena&&) noexcept = default;

TensorView Arena::allocate(Dtype dtype, std::initializer_list<std::int64_t> dims) {
  TensorView const wanted(nullptr, dtype, dims);
  std::size_t const bytes = round_up(std::max<std::size_t>(wanted.bytes(), 1), impl_->alignment());
  auto& a = *impl_;
  for (auto& block : a.blocks) {
    std::size_t const at = std::max(a.position, block.start);
    if (at + bytes > block.start + block.buffer.bytes()) continue;
    a.position = at + bytes;
    a.peak = std::max(a.peak, a.position);
    return block.buffer.view(dtype, dims, at - block.start);
  }
  std::size_t const start =
      a.blocks.empty() ? 0 : a.blocks.back().start + a.blocks.back().buffer.bytes();
  a.blocks.push_back({Buffer(a.name, a.purpose,
                             round_up(std::max(bytes, Impl::smallest_block), huge_page), a.space),
                      start});
  a.position = start;
  return allocate(dtype, dims);
}
Arena::Mark Arena::mark() const { return impl_->position; }
void Arena::rollback(Mark mark) {
  TESSERA_EXPECT(mark <= impl_->position);
  impl_->position = mark;
}
std::size_t Arena::capacity() const {
  std::size_t sum = 0;
  for (auto const& block : impl_->blocks) sum += block.buffer.bytes();
  return sum;
}
std::size_t Arena::peak() const { return impl_->peak; }

}  // namespace tessera::memory
