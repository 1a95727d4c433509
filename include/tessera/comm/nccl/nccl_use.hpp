#pragma once
/// What a run asks of NCCL, and what it uses of it, for its log and status.json.

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace tessera::comm {

/// ncclConfig_t::CTAPolicy, how many multiprocessors NCCL takes: by its own model, as few as give
/// decent bandwidth, or none where copy engines can move the data.
enum class NcclCtaPolicy { library_default, efficiency, zero };

/// "default", "efficiency" or "zero", as --nccl_cta_policy has it.
char const* name_of(NcclCtaPolicy policy);
/// @throws InternalError for another name
NcclCtaPolicy nccl_cta_policy(std::string const& name);

/// What a run asks of NCCL.
struct NcclOptions {
  /// Most multiprocessors that the kernels of NCCL take, of both communicators together, each at
  /// least one; 0: NCCL's choice
  int multiprocessors = 0;
  NcclCtaPolicy cta_policy = NcclCtaPolicy::library_default;
};

/// How NCCL knows a buffer: as a symmetric window (ncclCommWindowRegister), by ncclCommRegister, or
/// not at all.
enum class NcclMemoryKind { window, registered, plain };

/// What a run uses of NCCL.
struct NcclUse {
  std::string version;    ///< version of the library: "2.28.9"
  int communicators = 0;  ///< communicators of all ranks of the job
  NcclCtaPolicy cta_policy = NcclCtaPolicy::library_default;
  /// Buffers of allocate() so far by NcclMemoryKind.
  std::array<std::int64_t, 3> buffers{};

  std::int64_t count(NcclMemoryKind kind) const { return buffers[static_cast<std::size_t>(kind)]; }
};

/// Returns what this process uses of NCCL; none before NCCL has started.
std::optional<NcclUse> nccl_use();
/// "NCCL 2.28.9 with 2 communicators, 12 buffers in symmetric windows, CTA policy zero"
std::string nccl_use_text(NcclUse const& use);

}  // namespace tessera::comm
