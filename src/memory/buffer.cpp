#include "tessera/memory/buffer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "detail/device_memory.hpp"
#include "detail/numa_policy.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/limits.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::memory {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

std::string text(std::size_t bytes) { return human_bytes(static_cast<std::int64_t>(bytes)); }

/// Zeroed pages by mmap; transparent huge pages from 2 MiB on.
void* map_pages(std::string const& name, std::size_t bytes) {
  std::size_t const mapped = round_up(bytes, bytes >= huge_page ? huge_page : 4096);
  std::size_t const slack = bytes >= huge_page ? huge_page : 0;
  void* raw = mmap(nullptr, mapped + slack, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED)
    throw OutOfMemoryError(concat("cannot allocate ", text(bytes), " for ", name, ": ",
                                  with_errno("mmap", errno),
                                  "; use a smaller batch, a higher ZeRO stage or more ranks"));
  detail::prefer_numa_nodes(raw, mapped + slack);
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

void* allocate_on_device(std::string const& name, std::size_t bytes) {
  auto& memory = detail::device_memory();
  void* const data = bytes <= left_of_limit(MemorySpace::device) ? memory.allocate(bytes) : nullptr;
  if (data) return data;
  auto const available = memory.info();
  throw OutOfMemoryError(concat(
      "cannot allocate ", text(bytes), " for ", name,
      " on the device: ", text(available.free_bytes), " of its ", text(available.total_bytes),
      " are free, this process holds ", bytes_by_purpose(MemorySpace::device),
      "; use a smaller --per_device_train_batch_size, --gradient_checkpointing, "
      "offload_optimizer, a higher ZeRO stage or more ranks",
      memory_limit(MemorySpace::device) > 0 ? ", or raise --device_memory" : ""));
}

void* allocate_pinned(std::string const& name, std::size_t bytes) {
  auto& memory = detail::device_memory();
  void* data = memory.reuse_pinned(bytes);
  detail::NumaScope const near;  // the driver, or the memset below, touches the pages
  if (!data) {
    require_available(name, bytes);
    data = memory.allocate_pinned(bytes);
  }
  TESSERA_VALIDATE(data, OutOfMemoryError, "cannot pin ", text(bytes), " of host memory for ", name,
                   "; this process holds ", bytes_by_purpose(MemorySpace::pinned),
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
  require_available(name, bytes);
  return map_pages(name, bytes);
}

void deallocate(MemorySpace space, void* data, std::size_t bytes) noexcept {
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

/// An address that nothing may access, or lazily committed pages for a small buffer.
void* plan_pages(std::string const& name, std::size_t bytes) {
  if (bytes < BufferPlanning::smallest_without_memory) return map_pages(name, bytes);
  static std::atomic<std::uintptr_t> next{std::uintptr_t{1} << 44};
  return reinterpret_cast<void*>(next.fetch_add(round_up(bytes, huge_page)));
}

}  // namespace

Buffer::Buffer(std::string name, Purpose purpose, std::size_t bytes, MemorySpace space)
    : name_(std::move(name)), purpose_(purpose), space_(space), bytes_(bytes) {
  if (bytes_ == 0) return;
  planned_ = BufferPlanning::active();
  data_ = planned_ ? plan_pages(name_, bytes_) : allocate(space_, name_, bytes_);
  MemoryTracker::of(space_).add(purpose_, name_, bytes_);
}
Buffer::Buffer(Buffer&& other) noexcept
    : name_(std::move(other.name_)),
      purpose_(other.purpose_),
      space_(other.space_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      planned_(other.planned_) {}
Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    name_ = std::move(other.name_);
    purpose_ = other.purpose_;
    space_ = other.space_;
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    planned_ = other.planned_;
  }
  return *this;
}
Buffer::~Buffer() { release(); }
void Buffer::release() noexcept {
  if (!data_) return;
  if (!planned_)
    deallocate(space_, data_, bytes_);
  else if (bytes_ < BufferPlanning::smallest_without_memory)
    unmap_pages(data_, bytes_);
  MemoryTracker::of(space_).remove(purpose_, name_, bytes_);
  data_ = nullptr;
}
bool Buffer::populate() const noexcept {
  if (!data_ || planned_ || space_ != MemorySpace::host) return true;
#ifdef MADV_POPULATE_WRITE
  return madvise(data_, bytes_, MADV_POPULATE_WRITE) == 0;
#else
  return false;
#endif
}
TensorView Buffer::view(Dtype dtype, std::initializer_list<std::int64_t> dims,
                        std::size_t offset_bytes) const {
  TensorView const out(static_cast<std::byte*>(data_) + offset_bytes, dtype, dims);
  TESSERA_EXPECT(offset_bytes + out.bytes() <= bytes_, name_, ": view of ", out.bytes(),
                 " bytes at byte ", offset_bytes, " of ", bytes_);
  return out;
}

namespace {

constexpr std::size_t min_chunk_bytes = std::size_t{8} << 20;

std::size_t chunk_bytes(std::size_t bytes) {
  return round_up(std::max(bytes, min_chunk_bytes), huge_page);
}

}  // namespace

std::size_t arena_bytes(std::size_t peak) { return peak == 0 ? 0 : chunk_bytes(peak); }

/// Chunks live as long as the arena. An allocation takes the first chunk, from the current position
/// on, with enough free bytes.
struct Arena::Impl {
  std::string name;
  Purpose purpose;
  MemorySpace space;
  struct Chunk {
    Buffer buffer;
    std::size_t start;  ///< offset of its first byte; offsets continue from chunk to chunk
  };
  std::vector<Chunk> chunks;
  std::size_t position = 0;  ///< offset of the next free byte
  std::size_t peak = 0;
  bool has_memory = !ArenaPlanning::active();
  std::size_t alignment() const { return space == MemorySpace::device ? 256 : 64; }

  std::size_t take(std::size_t at, std::size_t bytes) {
    position = at + bytes;
    peak = std::max(peak, position);
    return at;
  }
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
  if (!a.has_memory) {
    constexpr std::uintptr_t first_address = std::uintptr_t{1} << 40;
    auto const address = first_address + a.take(a.position, bytes);
    return {reinterpret_cast<void*>(address), dtype, dims};
  }
  for (auto& chunk : a.chunks) {
    std::size_t const at = std::max(a.position, chunk.start);
    if (at + bytes <= chunk.start + chunk.buffer.bytes())
      return chunk.buffer.view(dtype, dims, a.take(at, bytes) - chunk.start);
  }
  std::size_t const start =
      a.chunks.empty() ? 0 : a.chunks.back().start + a.chunks.back().buffer.bytes();
  a.chunks.push_back({Buffer(a.name, a.purpose, chunk_bytes(bytes), a.space), start});
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
  for (auto const& chunk : impl_->chunks) sum += chunk.buffer.bytes();
  return sum;
}
std::size_t Arena::peak() const { return impl_->peak; }

Buffer make_host_buffer(std::string const& name, Purpose purpose, std::size_t bytes,
                        MemorySpace space) {
  if (space == MemorySpace::pinned) {
    try {
      return {name, purpose, bytes, space};
    } catch (OutOfMemoryError const& e) {
      log::warning(concat(e.what(), "; uses pageable memory for it, whose copies are slower"));
    }
  }
  return {name, purpose, bytes, MemorySpace::host};
}

}  // namespace tessera::memory
