#include "tessera/comm/compose/device_collectives.hpp"

#include <string>
#include <utility>
#include <vector>

#include "base/queued_collectives.hpp"
#include "nccl/nccl_collectives.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/process.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/topology/device_binding.hpp"

namespace tessera::comm {
namespace {

/// True when two ranks have the same device; logs which ranks share it. Collective.
bool devices_are_shared(Collectives& host) {
  auto const device = memory::describe_device(memory::Runtime::device());
  auto const nodes = gather_bytes(host, boot_id(), 0), buses = gather_bytes(host, device.bus, 0),
             uuids = gather_bytes(host, device.uuid, 0);
  std::vector<topology::RankDevice> of_rank;
  for (std::size_t r = 0; r < nodes.size(); ++r) of_rank.push_back({nodes[r], buses[r], uuids[r]});
  auto const sharing = topology::device_sharing(of_rank);
  if (sharing.shared) log::warning(sharing.notice);
  return !agree(host, !sharing.shared);
}

void warn_without_nccl(Collectives& host, NcclOptions const& options) {
  if (options.cta_policy == NcclCtaPolicy::library_default || host.rank() != 0) return;
  log::warning(concat("--nccl_cta_policy ", name_of(options.cta_policy), " has no effect: ",
                      host.size() == 1 ? "one rank computes without NCCL"
                                       : "ranks that share a device communicate without NCCL"));
}

}  // namespace

std::unique_ptr<Collectives> make_device(std::unique_ptr<Collectives> host, Deadline deadline,
                                         DeviceTransport transport, NcclOptions const& options) {
  if (transport == DeviceTransport::automatic)
    transport = host->size() == 1 ? DeviceTransport::single_rank
                : memory::device_is_simulated() || devices_are_shared(*host)
                    ? DeviceTransport::staged
                    : DeviceTransport::nccl;
  if (transport != DeviceTransport::nccl) warn_without_nccl(*host, options);
  if (transport == DeviceTransport::single_rank) return detail::make_single_rank(std::move(host));
  return transport == DeviceTransport::staged
             ? detail::make_staged(std::move(host), deadline)
             : detail::make_nccl(std::move(host), deadline, options);
}

}  // namespace tessera::comm
