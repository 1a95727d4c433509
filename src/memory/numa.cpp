#include "tessera/memory/buffer.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <limits>
#include <mutex>

#include "detail/numa_policy.hpp"

// The system calls have no wrappers in the C library; their numbers are those of mempolicy(7).
namespace tessera::memory {
namespace {

constexpr int mode_default = 0, mode_preferred = 1, mode_preferred_many = 5;
constexpr int bits_per_word = std::numeric_limits<unsigned long>::digits;
constexpr int max_nodes = 1024;  ///< no kernel supports more

/// A mode with its nodes, as the system calls take it.
struct Policy {
  int mode = mode_default;
  std::vector<unsigned long> mask;

  unsigned long const* nodes() const { return mask.empty() ? nullptr : mask.data(); }
  /// The kernel reads one bit less than it is told.
  unsigned long bits() const {
    return mask.empty() ? 0 : mask.size() * static_cast<unsigned long>(bits_per_word) + 1;
  }
};

std::vector<unsigned long> mask_of(std::vector<int> const& nodes) {
  std::vector<unsigned long> mask(max_nodes / bits_per_word, 0);
  for (int const node : nodes)
    mask[static_cast<std::size_t>(node / bits_per_word)] |= 1UL << (node % bits_per_word);
  return mask;
}

bool apply(Policy const& policy, void* data, std::size_t bytes) {
  return syscall(SYS_mbind, data, bytes, policy.mode, policy.nodes(), policy.bits(), 0U) == 0;
}
bool apply(Policy const& policy) {
  return syscall(SYS_set_mempolicy, policy.mode, policy.nodes(), policy.bits()) == 0;
}

struct Chosen {
  std::mutex mutex;
  std::vector<int> nodes;
  Policy policy;
};
Chosen& chosen() {
  static Chosen& it = *new Chosen;  // buffers of static lifetime may use it
  return it;
}
Policy current_policy() {
  std::lock_guard const lock(chosen().mutex);
  return chosen().policy;
}

/// Whether the system takes @p policy: on a page that nobody touches.
bool is_supported(Policy const& policy) {
  auto const page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const data =
      mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return false;
  bool const taken = apply(policy, data, page);
  munmap(data, page);
  return taken;
}

/// Kernels before 5.15 prefer one node only.
Policy policy_for(std::vector<int> const& nodes) {
  Policy const many{mode_preferred_many, mask_of(nodes)};
  if (nodes.size() > 1 || is_supported(many)) return many;
  return {mode_preferred, many.mask};
}

}  // namespace

bool use_numa_nodes(std::vector<int> const& nodes) {
  for (int const node : nodes)
    if (node < 0 || node >= max_nodes) return false;
  Policy const policy = nodes.empty() ? Policy{} : policy_for(nodes);
  if (!nodes.empty() && !is_supported(policy)) return false;
  std::lock_guard const lock(chosen().mutex);
  chosen().nodes = nodes;
  chosen().policy = policy;
  return true;
}

std::vector<int> numa_nodes() {
  std::lock_guard const lock(chosen().mutex);
  return chosen().nodes;
}

namespace detail {

void prefer_numa_nodes(void* data, std::size_t bytes) noexcept {
  auto const policy = current_policy();
  if (policy.mode != mode_default) apply(policy, data, bytes);  // only a preference
}

NumaScope::NumaScope() noexcept {
  auto const policy = current_policy();
  if (policy.mode == mode_default) return;
  std::vector<unsigned long> before(max_nodes / bits_per_word, 0);
  int mode = mode_default;
  if (syscall(SYS_get_mempolicy, &mode, before.data(), static_cast<unsigned long>(max_nodes),
              nullptr, 0UL) != 0 ||
      !apply(policy))
    return;
  mode_ = mode;
  nodes_ = before;
}
NumaScope::~NumaScope() {
  if (mode_ < 0) return;
  apply(mode_ == mode_default ? Policy{} : Policy{mode_, nodes_});
}

}  // namespace detail
}  // namespace tessera::memory
