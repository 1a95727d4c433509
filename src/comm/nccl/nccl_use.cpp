#include "tessera/comm/nccl/nccl_use.hpp"

#include <mutex>

#include "nccl/nccl_collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::comm {
namespace {

struct Noted {
  std::mutex mutex;
  std::optional<NcclUse> use;

  static Noted& of_process() {
    static Noted noted;
    return noted;
  }
};

constexpr std::array<char const*, 3> policies{"default", "efficiency", "zero"};
constexpr std::array<char const*, 3> kinds{"in symmetric windows", "registered", "not registered"};

}  // namespace

char const* name_of(NcclCtaPolicy policy) { return policies[static_cast<std::size_t>(policy)]; }

NcclCtaPolicy nccl_cta_policy(std::string const& name) {
  for (std::size_t i = 0; i < policies.size(); ++i)
    if (name == policies[i]) return static_cast<NcclCtaPolicy>(i);
  throw InternalError(concat("no CTA policy of NCCL is named ", name));
}

void detail::note_nccl(NcclUse const& use) {
  auto& noted = Noted::of_process();
  std::lock_guard const lock(noted.mutex);
  noted.use = use;
}

void detail::note_nccl_buffer(NcclMemoryKind kind) {
  auto& noted = Noted::of_process();
  std::lock_guard const lock(noted.mutex);
  if (noted.use) ++noted.use->buffers[static_cast<std::size_t>(kind)];
}

std::optional<NcclUse> nccl_use() {
  auto& noted = Noted::of_process();
  std::lock_guard const lock(noted.mutex);
  return noted.use;
}

std::string nccl_use_text(NcclUse const& use) {
  std::string out =
      concat("NCCL ", use.version, " with ", counted(use.communicators, "communicator"));
  for (std::size_t i = 0; i < kinds.size(); ++i)
    if (use.buffers[i] > 0) out += concat(", ", counted(use.buffers[i], "buffer"), " ", kinds[i]);
  if (use.cta_policy != NcclCtaPolicy::library_default)
    out += concat(", CTA policy ", name_of(use.cta_policy));
  return out;
}

}  // namespace tessera::comm
