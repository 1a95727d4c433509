#include "tessera/plan/shard_groups.hpp"

#include <fmt/format.h>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::plan {
namespace {

std::int64_t size_of_group(Planner const& planner, PlannedChoice const& p) {
  return p.choice.shard_group > 0 ? p.choice.shard_group : planner.request().cluster.ranks();
}

std::int64_t bytes_per_rank(Planner const& planner, PlannedChoice const& p) {
  return planner.computes_on_device() ? p.device_bytes : p.host_bytes;
}

}  // namespace

std::vector<std::int64_t> shard_group_sizes(Cluster const& cluster) {
  std::int64_t const ranks = cluster.ranks();
  std::vector<std::int64_t> out;
  for (std::int64_t size = cluster.nodes == 1 ? 2 : cluster.ranks_per_node; size < ranks; size *= 2)
    if (size >= 2 && ranks % size == 0) out.push_back(size);
  return out;
}

std::vector<PlannedChoice> weigh_shard_groups(Planner& planner, Choice choice) {
  std::vector<PlannedChoice> out;
  auto sizes = shard_group_sizes(planner.request().cluster);
  sizes.push_back(0);
  for (auto const size : sizes) {
    choice.shard_group = size;
    auto const& planned = planner.evaluate(choice);
    if (planned.refused.empty()) out.push_back(planned);
  }
  return out;
}

PlannedChoice const* best_shard_group(std::vector<PlannedChoice> const& groups) {
  return recommended(groups);
}

std::string shard_groups_text(Planner const& planner, std::vector<PlannedChoice> const& groups) {
  if (groups.size() < 2) return "";
  auto const* const best = best_shard_group(groups);
  auto out = fmt::format("Shard groups (mics_shard_size) on {}:\n",
                         counted(planner.request().cluster.ranks(), "rank"));
  for (auto const& p : groups) {
    auto const what = p.choice.shard_group > 0
                          ? counted(p.choice.shard_group, "rank")
                          : concat("all ", counted(size_of_group(planner, p), "rank"));
    out += fmt::format("  {:>16} {:>12} per rank", what, human_bytes(bytes_per_rank(planner, p)));
    if (p.time) out += fmt::format(" {:>10.4g} s per step", p.time->seconds);
    out += fmt::format(", {} to other nodes{}\n",
                       human_bytes(static_cast<std::int64_t>(p.wire.inter_node)),
                       !p.fits      ? "  too large"
                       : &p == best ? "  <- recommended"
                                    : "");
  }
  return out;
}

ConfigTree shard_groups_json(Planner const& planner, std::vector<PlannedChoice> const& groups) {
  ConfigTree::Array out;
  auto const* const best = best_shard_group(groups);
  for (auto const& p : groups) {
    auto entry = ConfigTree::object()
                     .set("ranks", size_of_group(planner, p))
                     .set("bytes", bytes_per_rank(planner, p))
                     .set("fits", p.fits)
                     .set("inter_node", p.wire.inter_node)
                     .set("recommended", &p == best);
    if (p.time) entry.set("step", p.time->seconds);
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace tessera::plan
