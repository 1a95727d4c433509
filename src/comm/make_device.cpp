#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "detail/device_collectives.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::comm {
namespace {

/// Tells nodes apart where host names do not (containers): the same for all processes since the node was started.
std::string boot_of_node() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

/// Whether two ranks have the same device.
bool devices_are_shared(Collectives& host) {
  std::string const mine = boot_of_node() + " " + memory::describe_device(memory::Runtime::device()).bus;
  auto const all = gather_bytes(host, mine, 0);
  bool const distinct = std::set<std::string>(all.begin(), all.end()).size() == all.size();
  return !agree(host, host.rank() != 0 || distinct);
}

}  // namespace

std::unique_ptr<Collectives> make_device(std::unique_ptr<Collectives> host, Deadline deadline, DeviceTransport transport) {
  if (transport == DeviceTransport::automatic)
    transport = devices_are_shared(*host) ? DeviceTransport::staged : DeviceTransport::nccl;
  return transport == DeviceTransport::staged ? detail::make_staged(std::move(host), deadline) : detail::make_nccl(std::move(host), deadline);
}

}  // namespace tessera::comm
