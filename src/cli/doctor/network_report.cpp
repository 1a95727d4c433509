#include "doctor/network_report.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

using Words = std::vector<std::string>;

std::set<std::string> entries_of(fs::path const& directory) {
  std::set<std::string> out;
  std::error_code error;
  for (auto const& entry : fs::directory_iterator(directory, error))
    out.insert(entry.path().filename().string());
  return out;
}

/// Words between commas.
Words list_of(std::string const& value) {
  Words out;
  std::istringstream in(value);
  for (std::string word; std::getline(in, word, ',');) out.push_back(word);
  return out;
}

bool any_of(std::string const& value, Words const& wanted) {
  return std::ranges::any_of(list_of(value), [&](auto const& word) {
    return std::ranges::find(wanted, word) != wanted.end();
  });
}

/// A value that turns a fast path off. "Open MPI FAQ", "Frequently Asked Questions about UCX",
/// fi_provider(7), "MPICH environment variables".
struct Costly {
  char const* name;
  bool (*applies)(std::string const& value, NetworkDevices const& devices);
  char const* cost;
};
bool has_adapters(NetworkDevices const& devices) { return !devices.adapters.empty(); }

Costly const costly[] = {
    {"OMPI_MCA_btl",
     [](std::string const& value, NetworkDevices const&) {
       bool const shared = any_of(value, {"vader", "sm", "shared"});
       return value.starts_with('^') ? shared || any_of(value, {"^vader", "^sm"}) : !shared;
     },
     "MPI does not use shared memory between the ranks of a node; add vader (Open MPI 4) or sm"},
    {"OMPI_MCA_pml",
     [](std::string const& value, NetworkDevices const& devices) {
       return value == "ob1" && has_adapters(devices);
     },
     "MPI does not use UCX, the fast path of this node's adapters; unset it or use ucx"},
    {"OMPI_MCA_btl_vader_single_copy_mechanism",
     [](std::string const& value, NetworkDevices const&) { return value == "none"; },
     "MPI copies large messages within a node twice; needed only where ptrace is forbidden"},
    {"OMPI_MCA_mpi_yield_when_idle",
     [](std::string const& value, NetworkDevices const&) { return value == "1"; },
     "a waiting rank gives its core away: small messages take longer; for more ranks than cores"},
    {"UCX_TLS",
     [](std::string const& value, NetworkDevices const& devices) {
       return has_adapters(devices) && value != "all" && !value.starts_with('^') &&
              !any_of(value, {"rc", "rc_x", "rc_v", "rc_mlx5", "dc", "dc_x", "dc_mlx5", "ud",
                              "ud_x", "ib"});
     },
     "UCX does not use this node's adapters (rc, dc or ud); unset it"},
    {"FI_PROVIDER",
     [](std::string const& value, NetworkDevices const& devices) {
       return value == "sockets" || (value == "tcp" && has_adapters(devices));
     },
     "libfabric uses TCP sockets, many times slower than the fabric; unset it"},
    {"MPICH_NO_LOCAL", [](std::string const& value, NetworkDevices const&) { return value == "1"; },
     "MPI does not use shared memory between the ranks of a node; unset it"},
    {"TESSERA_SIMULATED_NODES", [](std::string const&, NetworkDevices const&) { return true; },
     "this machine counts as several nodes, for tests; unset it"},
    {"TESSERA_SIMULATED_NETWORK", [](std::string const&, NetworkDevices const&) { return true; },
     "messages between nodes are delayed, for tests; unset it"},
};

/// Variables whose value names interfaces or adapters.
struct DeviceVariable {
  char const* name;
  bool adapters;
  bool prefixes;  ///< NCCL's names are prefixes of device names
};
constexpr DeviceVariable device_variables[] = {{"OMPI_MCA_btl_tcp_if_include", false, false},
                                               {"OMPI_MCA_oob_tcp_if_include", false, false},
                                               {"UCX_NET_DEVICES", true, false},
                                               {"FI_TCP_IFACE", false, false},
                                               {"NCCL_SOCKET_IFNAME", false, true},
                                               {"NCCL_IB_HCA", true, true}};

/// The names in @p value that are no device of this node; subnets (10.0.0.0/8) are not looked up.
Words missing_devices(DeviceVariable const& variable, std::string const& value,
                      NetworkDevices const& devices) {
  Words out;
  if (value == "all" || value.starts_with('^')) return out;
  for (auto name : list_of(value)) {
    if (name.find('/') != std::string::npos) continue;
    if (name.starts_with('=')) name.erase(0, 1);
    name = name.substr(0, name.find(':'));  // mlx5_0:1 is port 1 of mlx5_0
    auto const known = [&](std::set<std::string> const& names) {
      return std::ranges::any_of(names, [&](auto const& device) {
        return variable.prefixes ? device.starts_with(name) : device == name;
      });
    };
    // UCX takes names of both kinds
    if (!(variable.adapters && known(devices.adapters)) && !known(devices.interfaces))
      out.push_back(name);
  }
  return out;
}

bool steers_messages(std::string const& name) {
  Words const prefixes{"OMPI_MCA_", "PRTE_MCA_", "UCX_", "FI_", "MPICH_", "I_MPI_", "NCCL_"};
  return name.starts_with("TESSERA_SIMULATED_") || name == "TESSERA_LINKS" ||
         std::ranges::any_of(prefixes, [&](auto const& p) { return name.starts_with(p); });
}

/// mpirun itself sets these for its ranks.
bool is_of_the_launcher(std::string const& name) {
  Words const prefixes{"OMPI_MCA_ess", "OMPI_MCA_orte", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir",
                       "OMPI_MCA_shmem_RUNTIME"};
  return std::ranges::any_of(prefixes, [&](auto const& p) { return name.starts_with(p); });
}

std::string names_text(std::set<std::string> const& names) {
  return names.empty() ? "none" : join({names.begin(), names.end()});
}

}  // namespace

NetworkDevices network_devices() {
  return {entries_of("/sys/class/net"), entries_of("/sys/class/infiniband")};
}

NodeSection network_section(topology::Environment const& environment,
                            NetworkDevices const& devices) {
  NodeSection section{"network", {}, {}};
  section.add("interfaces", names_text(devices.interfaces));
  section.add("InfiniBand, RoCE", names_text(devices.adapters));
  for (auto const& [name, value] : environment)
    if (steers_messages(name) && !is_of_the_launcher(name)) section.add(name, value);
  for (auto const& known : costly)
    if (auto const set = environment.find(known.name);
        set != environment.end() && known.applies(set->second, devices))
      section.problems.push_back(concat(known.name, "=", set->second, ": ", known.cost));
  for (auto const& variable : device_variables) {
    auto const set = environment.find(variable.name);
    if (set == environment.end()) continue;
    if (auto const missing = missing_devices(variable, set->second, devices); !missing.empty())
      section.problems.push_back(
          concat(variable.name, "=", set->second, ": this node has no ", join(missing), "; it has ",
                 names_text(variable.adapters ? devices.adapters : devices.interfaces)));
  }
  return section;
}

}  // namespace tessera::cli
