#include "tessera/topology/device_binding.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>

#include "tessera/core/error.hpp"

namespace tessera::topology {
namespace {

std::string value_of(Environment const& environment, std::string_view name) {
  auto const found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

std::vector<std::string> words_of(std::string const& text) {
  std::vector<std::string> out(1);
  for (char const c : text) {
    if (c == ',')
      out.emplace_back();
    else if (!std::isspace(static_cast<unsigned char>(c)))
      out.back() += c;
  }
  return out;
}

bool is_number(std::string const& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// The devices that a list makes visible, and a problem with the list.
struct VisibleList {
  std::vector<std::string> shown;
  std::string problem;
};
VisibleList read_list(std::string const& text) {
  VisibleList out;
  for (auto const& word : words_of(text)) {
    bool const mig = word.starts_with("MIG-"),
               known = mig || is_number(word) || word.starts_with("GPU-");
    if (!known) {
      out.problem = concat("CUDA_VISIBLE_DEVICES=", text, ": '", word,
                           "' is not a device, and CUDA ignores the rest of the list");
      break;
    }
    if (std::find(out.shown.begin(), out.shown.end(), word) != out.shown.end()) {
      out.shown.clear();
      out.problem = concat("CUDA_VISIBLE_DEVICES=", text, " lists device ", word,
                           " twice, so CUDA makes none visible; remove the duplicate");
      break;
    }
    out.shown.push_back(word);
    if (mig && out.shown.size() > 1)
      out.problem = concat("CUDA_VISIBLE_DEVICES=", text,
                           ": a process sees at most one MIG instance; give each rank its own");
  }
  return out;
}

std::string ranks_text(std::vector<int> const& ranks) {
  std::string out;
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i)
    out += concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return ranks.size() > 8 ? out + concat(" and ", ranks.size() - 8, " more") : out;
}

std::int64_t common(std::vector<int> const& a, std::vector<int> const& b) {
  std::vector<int> out;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return static_cast<std::int64_t>(out.size());
}

/// The device of each rank up to this one; the rank's own number where devices are equally near.
int nearest_free(int rank, NodeCores const& cores) {
  std::vector<bool> taken(cores.near_device.size());
  int chosen = 0;
  for (int r = 0; r <= rank; ++r) {
    chosen = -1;
    std::int64_t most = -1;
    for (std::size_t i = 0; i < taken.size(); ++i) {
      auto const device = (static_cast<std::size_t>(r) + i) % taken.size();
      if (taken[device]) continue;
      auto const near =
          common(cores.of_rank[static_cast<std::size_t>(r)], cores.near_device[device]);
      if (near > most) most = near, chosen = static_cast<int>(device);
    }
    taken[static_cast<std::size_t>(chosen)] = true;
  }
  return chosen;
}

}  // namespace

DeviceBinding bind_device(LocalRank rank, int visible, NodeCores const& cores) {
  if (visible <= 0) return {};
  if (visible == 1) return {0, ""};
  if (rank.count <= visible) {
    bool const known = cores.of_rank.size() == static_cast<std::size_t>(rank.count) &&
                       cores.near_device.size() == static_cast<std::size_t>(visible);
    return {known ? nearest_free(rank.index, cores) : rank.index, ""};
  }
  return {rank.index % visible,
          concat(rank.count, " ranks of a node share ", visible, " GPUs; start ", visible,
                 " ranks per node, or request ", rank.count, " GPUs")};
}

std::vector<std::string> device_view_findings(Environment const& environment) {
  std::vector<std::string> out;
  auto const visible = environment.find("CUDA_VISIBLE_DEVICES");
  if (visible != environment.end()) {
    std::string const& text = visible->second;
    if (words_of(text)[0].empty()) {
      out.push_back("CUDA_VISIBLE_DEVICES is empty, which hides all GPUs; unset it");
    } else {
      auto const list = read_list(text);
      if (!list.problem.empty()) out.push_back(list.problem);
      for (char const* name : {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}) {
        std::string const given = value_of(environment, name);
        if (given.empty()) continue;
        if (auto const count = words_of(given).size(); count > list.shown.size())
          out.push_back(concat("Slurm allocated ", count, " GPUs (", name, "=", given,
                               ") and this process sees ", list.shown.size(),
                               " (CUDA_VISIBLE_DEVICES=", text,
                               "): correct with --gpus-per-task, otherwise GPUs are idle"));
        break;
      }
    }
  }
  std::string const order = value_of(environment, "CUDA_DEVICE_ORDER");
  if (!order.empty() && order != "PCI_BUS_ID" && order != "FASTEST_FIRST")
    out.push_back(concat("CUDA_DEVICE_ORDER=", order, ": it must be FASTEST_FIRST or PCI_BUS_ID"));
  else if (order != "PCI_BUS_ID" && visible != environment.end() &&
           is_number(words_of(visible->second)[0]))
    out.push_back(
        "CUDA numbers devices fastest first, nvidia-smi by PCI address; on nodes with different "
        "GPUs, set CUDA_DEVICE_ORDER=PCI_BUS_ID");
  return out;
}

DeviceSharing device_sharing(std::vector<RankDevice> const& of_rank) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> ranks_on;
  for (std::size_t r = 0; r < of_rank.size(); ++r)
    ranks_on[{of_rank[r].node, of_rank[r].bus}].push_back(static_cast<int>(r));
  for (auto const& [device, ranks] : ranks_on) {
    if (ranks.size() < 2) continue;
    std::set<std::string> uuids;
    for (int const r : ranks) uuids.insert(of_rank[static_cast<std::size_t>(r)].uuid);
    bool const instances = uuids.size() == ranks.size();
    std::string notice =
        concat("ranks ", ranks_text(ranks),
               instances ? " use MIG instances of one GPU (" : " share one GPU (", device.second,
               "): all collectives go through host memory, which is much slower than NCCL");
    if (!instances)
      notice +=
          "; to give each rank its own GPU, use srun --gpus-per-task=1, fewer ranks per node, or "
          "make all GPUs visible to all ranks";
    return {true, notice};
  }
  return {};
}

std::vector<int> cores_to_use(std::vector<int> const& allowed, std::vector<int> const& online,
                              std::vector<int> const& near) {
  if (allowed != online) return allowed;
  std::vector<int> out;
  std::set_intersection(allowed.begin(), allowed.end(), near.begin(), near.end(),
                        std::back_inserter(out));
  return out.empty() ? allowed : out;
}

}  // namespace tessera::topology
