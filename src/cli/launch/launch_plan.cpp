#include "launch/launch_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <sstream>

#include "tessera/core/error.hpp"
#include "tessera/core/words.hpp"

namespace tessera::cli {
namespace {

int natural_number(std::string const& text, std::string const& what) {
  bool const good =
      !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos;
  TESSERA_VALIDATE(good, UsageError, what, " is '", text, "'; it must be a number");
  return std::stoi(text);
}

std::vector<int> first_slots(int count) {
  std::vector<int> slots(static_cast<std::size_t>(count));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

/// "0,2,3"
std::string slot_list(std::vector<int> const& slots) {
  return fmt::format("{}", fmt::join(slots, ","));
}

/// "host1:0,2@host2": host -> slots (empty: all). Repeated hosts add up, as in DeepSpeed.
std::map<std::string, std::vector<int>> parse_filter(std::string const& text,
                                                     std::string const& flag) {
  std::map<std::string, std::vector<int>> filter;
  for (auto const& part : split(text, '@')) {
    std::size_t const colon = part.find(':');
    std::string const host = part.substr(0, colon);
    TESSERA_VALIDATE(!host.empty(), UsageError, flag, " ", text,
                     ": empty host name; write host1:0,2@host2");
    auto& slots = filter[host];
    if (colon != std::string::npos)
      for (auto const& slot : split(part.substr(colon + 1), ','))
        slots.push_back(natural_number(slot, flag + " " + text + ": a slot"));
    std::sort(slots.begin(), slots.end());
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  }
  return filter;
}

HostSlots const& known(std::vector<HostSlots> const& hosts, std::string const& host,
                       std::vector<int> const& slots, std::string const& flag) {
  auto const found =
      std::find_if(hosts.begin(), hosts.end(), [&](HostSlots const& h) { return h.host == host; });
  TESSERA_VALIDATE(found != hosts.end(), UsageError, flag, ": host ", host,
                   " is not a host of this job; use the spelling of the hostfile");
  for (int const slot : slots)
    TESSERA_VALIDATE(std::binary_search(found->slots.begin(), found->slots.end(), slot), UsageError,
                     flag, ": host ", host, " has no slot ", slot, "; its slots are ",
                     slot_list(found->slots));
  return *found;
}

std::vector<HostSlots> included(std::vector<HostSlots> const& hosts, std::string const& text) {
  auto const filter = parse_filter(text, "--include");
  std::vector<HostSlots> left;
  for (auto const& [host, slots] : filter) known(hosts, host, slots, "--include");
  for (auto const& h : hosts)
    if (auto const f = filter.find(h.host); f != filter.end())
      left.push_back({h.host, f->second.empty() ? h.slots : f->second, h.user});
  return left;
}

std::vector<HostSlots> without(std::vector<HostSlots> const& hosts, std::string const& text) {
  auto const filter = parse_filter(text, "--exclude");
  std::vector<HostSlots> left;
  for (auto const& [host, slots] : filter) known(hosts, host, slots, "--exclude");
  for (auto h : hosts) {
    auto const f = filter.find(h.host);
    if (f != filter.end()) {
      if (f->second.empty()) continue;
      std::erase_if(h.slots, [&](int slot) {
        return std::binary_search(f->second.begin(), f->second.end(), slot);
      });
    }
    if (!h.slots.empty()) left.push_back(h);
  }
  return left;
}

/// Whether slots 0..n-1 are used, so that no device list is needed.
bool leading(std::vector<int> const& slots) {
  return slots.back() + 1 == static_cast<int>(slots.size());
}

/// The slots of every host. @param why  of a launcher that takes one number of ranks per node
std::vector<int> const& equal_slots(std::vector<HostSlots> const& hosts, char const* why) {
  auto const& slots = hosts.front().slots;
  for (auto const& h : hosts)
    TESSERA_VALIDATE(h.slots == slots, UsageError, "host ", h.host, " would use slots ",
                     slot_list(h.slots), " and host ", hosts.front().host, " slots ",
                     slot_list(slots), "; ", why);
  return slots;
}

/// "host1,host2"
std::string names_of(std::vector<HostSlots> const& hosts) {
  std::vector<std::string> names;
  for (auto const& h : hosts) names.push_back(h.host);
  return join(names, ",");
}

std::vector<std::string> srun_line(LaunchRequest const& request,
                                   std::vector<HostSlots> const& hosts) {
  std::vector<std::string> words{"srun"};
  words.insert(words.end(), request.launcher_options.begin(), request.launcher_options.end());
  auto const& slots = equal_slots(hosts,
                                  "an srun step uses the same slots on every node: choose the same "
                                  "slots, or use mpirun outside the job");
  int const nodes =
      request.hosts.empty() ? request.num_nodes.value_or(0) : static_cast<int>(hosts.size());
  if (nodes > 0) words.insert(words.end(), {"--nodes=" + std::to_string(nodes)});
  bool const counted = request.num_gpus || !request.hosts.empty();
  if (counted && nodes > 0)
    words.push_back("--ntasks=" + std::to_string(nodes * static_cast<int>(slots.size())));
  if (counted) words.push_back("--ntasks-per-node=" + std::to_string(slots.size()));
  if (!request.hosts.empty()) words.push_back("--nodelist=" + names_of(hosts));
  if (!leading(slots)) words.push_back("--export=ALL,CUDA_VISIBLE_DEVICES=" + slot_list(slots));
  words.insert(words.end(), request.program.begin(), request.program.end());
  return words;
}

/// PALS gives the ranks the environment of mpiexec.
std::vector<std::string> pals_line(LaunchRequest const& request,
                                   std::vector<HostSlots> const& hosts) {
  auto const& slots =
      equal_slots(hosts, "PALS uses the same slots on every node: choose the same slots on each");
  std::vector<std::string> words{request.mpirun};
  words.insert(words.end(), request.launcher_options.begin(), request.launcher_options.end());
  words.insert(words.end(), {"-n", std::to_string(hosts.size() * slots.size()), "--ppn",
                             std::to_string(slots.size())});
  if (!request.hosts.empty()) words.insert(words.end(), {"--hosts", names_of(hosts)});
  if (!leading(slots))
    words.insert(words.end(), {"--env", "CUDA_VISIBLE_DEVICES=" + slot_list(slots)});
  words.insert(words.end(), request.program.begin(), request.program.end());
  return words;
}

/// --host of mpirun takes names only: ssh logs in as the user who starts the job.
void check_user(LaunchRequest const& request, HostSlots const& h) {
  TESSERA_VALIDATE(h.user.empty() || h.user == request.user, UsageError, "the hostfile has ",
                   h.user, '@', h.host, ", but mpirun's --host takes no user name and logs in as ",
                   request.user, "; write ", h.host,
                   " in the hostfile, and for another user the lines `Host ", h.host,
                   "` and `User ", h.user, "` in ~/.ssh/config");
}

/// "host1:4,host2:4"
std::string host_list(std::span<HostSlots const> hosts) {
  std::string list;
  for (auto const& h : hosts) list += concat(list.empty() ? "" : ",", h.host, ":", h.slots.size());
  return list;
}

/// One application context per group of consecutive hosts with the same slots. Hydra takes one list
/// of hosts, which the ranks of all contexts fill in order.
std::vector<std::string> mpirun_line(LaunchRequest const& request,
                                     std::vector<HostSlots> const& hosts) {
  bool const hydra = request.launcher == topology::Launcher::hydra, named = !request.hosts.empty();
  std::vector<std::string> words{request.mpirun};
  if (request.as_root && !hydra) words.push_back("--allow-run-as-root");
  words.insert(words.end(), request.launcher_options.begin(), request.launcher_options.end());
  if (hydra && named) words.insert(words.end(), {"-hosts", host_list(hosts)});
  for (std::size_t first = 0; first < hosts.size();) {
    std::size_t last = first;
    int ranks = 0;
    for (; last < hosts.size() && hosts[last].slots == hosts[first].slots; ++last) {
      check_user(request, hosts[last]);
      ranks += static_cast<int>(hosts[last].slots.size());
    }
    if (first > 0) words.push_back(":");
    words.insert(words.end(), {"-np", std::to_string(ranks)});
    if (named && !hydra)
      words.insert(words.end(),
                   {"--host", host_list(std::span(hosts).subspan(first, last - first))});
    if (auto const devices = slot_list(hosts[first].slots); !leading(hosts[first].slots)) {
      if (hydra)
        words.insert(words.end(), {"-env", "CUDA_VISIBLE_DEVICES", devices});
      else
        words.insert(words.end(), {"-x", "CUDA_VISIBLE_DEVICES=" + devices});
    }
    if (named && !hydra)
      for (auto const& name : request.exports) words.insert(words.end(), {"-x", name});
    words.insert(words.end(), request.program.begin(), request.program.end());
    first = last;
  }
  return words;
}

}  // namespace

std::vector<HostSlots> parse_hostfile(std::string const& text, std::string const& source) {
  std::vector<HostSlots> hosts;
  std::istringstream in{std::string(without_mark(text))};
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::istringstream fields(line.substr(0, line.find('#')));
    std::string host, slots;  // further words (max_slots=8) are for other launchers
    if (!(fields >> host)) continue;
    bool const good = fields >> slots && slots.starts_with("slots=") && slots.size() > 6 &&
                      slots.size() < 12 &&
                      slots.find_first_not_of("0123456789", 6) == std::string::npos &&
                      std::stoi(slots.substr(6)) > 0;
    TESSERA_VALIDATE(good, DataError, source, ":", number, ": '", line,
                     "' is not of the form: host slots=4");
    std::size_t const name = host.find('@') + 1;  // 0 without a user
    std::string const user = host.substr(0, name > 0 ? name - 1 : 0);
    host = host.substr(name);
    TESSERA_VALIDATE(!host.empty() && (name == 0 || !user.empty()) &&
                         host.find_first_of("@:,") == std::string::npos,
                     DataError, source, ":", number, ": '", line,
                     "' has no host name that --host of mpirun takes; write host or user@host, "
                     "without port and without IPv6 address");
    TESSERA_VALIDATE(std::none_of(hosts.begin(), hosts.end(),
                                  [&](HostSlots const& h) { return h.host == host; }),
                     DataError, source, ":", number, ": host ", host, " is listed twice");
    hosts.push_back({host, first_slots(std::stoi(slots.substr(6))), user});
  }
  TESSERA_VALIDATE(!hosts.empty(), DataError, source, " lists no hosts");
  return hosts;
}

std::vector<HostSlots> chosen_hosts(LaunchRequest const& request) {
  TESSERA_VALIDATE(request.include.empty() || request.exclude.empty(), UsageError,
                   "--include and --exclude cannot be combined; use one of them");
  TESSERA_VALIDATE((request.include.empty() && request.exclude.empty()) ||
                       (!request.num_nodes && !request.num_gpus),
                   UsageError,
                   "--num_nodes and --num_gpus cannot be combined with --include or --exclude");
  for (auto const& n : {request.num_nodes, request.num_gpus})
    TESSERA_VALIDATE(n.value_or(1) > 0, UsageError,
                     "--num_nodes and --num_gpus must be positive; one is ", n.value_or(1));
  auto hosts = request.hosts;
  if (hosts.empty()) {
    TESSERA_VALIDATE(
        request.launcher == topology::Launcher::srun || request.num_nodes.value_or(1) == 1,
        UsageError, "--num_nodes ", request.num_nodes.value_or(1),
        " needs a --hostfile outside a Slurm job");
    hosts.push_back({"localhost", first_slots(request.num_gpus.value_or(request.local_slots))});
  }
  if (!request.include.empty()) hosts = included(hosts, request.include);
  if (!request.exclude.empty()) hosts = without(hosts, request.exclude);
  TESSERA_VALIDATE(!hosts.empty(), UsageError, "--exclude ", request.exclude,
                   " leaves no hosts; exclude fewer");
  if (request.hosts.empty()) return hosts;
  if (request.num_nodes) {
    TESSERA_VALIDATE(static_cast<std::size_t>(*request.num_nodes) <= hosts.size(), UsageError,
                     "--num_nodes is ", *request.num_nodes, " but only ", hosts.size(),
                     " hosts are available");
    hosts.resize(static_cast<std::size_t>(*request.num_nodes));
  }
  for (auto& h : hosts) {
    if (!request.num_gpus) continue;
    TESSERA_VALIDATE(static_cast<std::size_t>(*request.num_gpus) <= h.slots.size(), UsageError,
                     "--num_gpus is ", *request.num_gpus, " but host ", h.host, " has ",
                     h.slots.size(), " slots");
    h.slots.resize(static_cast<std::size_t>(*request.num_gpus));
  }
  return hosts;
}

std::vector<std::string> launch_line(LaunchRequest const& request) {
  auto const hosts = chosen_hosts(request);
  switch (request.launcher) {
    case topology::Launcher::srun:
      return srun_line(request, hosts);
    case topology::Launcher::pals:
      return pals_line(request, hosts);
    default:
      return mpirun_line(request, hosts);
  }
}

}  // namespace tessera::cli
