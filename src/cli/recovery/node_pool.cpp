#include "recovery/node_pool.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

constexpr int max_failures_in_a_row = 3;
constexpr std::chrono::hours left_out_for{1};

}  // namespace

NodePool::NodePool(std::vector<HostSlots> const& nodes, int spares)
    : wanted_(static_cast<int>(nodes.size()) - spares) {
  TESSERA_VALIDATE(spares >= 0 && wanted_ > 0, UsageError, "--spares ", spares, " of ",
                   nodes.size(), " nodes leaves none to train on");
  for (auto const& host : nodes) {
    TESSERA_VALIDATE(host.slots.size() == nodes.front().slots.size(), UsageError, "node ",
                     host.host, " has ", host.slots.size(), " ranks and ", nodes.front().host,
                     " has ", nodes.front().slots.size(),
                     "; a node can replace another one only if all have the same number");
    nodes_.push_back({host});
  }
}

std::vector<HostSlots> NodePool::choose(Time now) const {
  std::vector<Node const*> usable;
  for (auto const& node : nodes_)
    if (!node.is_lost && !node.is_excluded) usable.push_back(&node);
  std::ranges::stable_sort(usable, {}, &Node::failures);
  auto const good = [now](Node const* node) {
    return node->in_a_row < max_failures_in_a_row || now - node->last_failure > left_out_for;
  };
  if (std::ranges::any_of(usable, good))
    std::erase_if(usable, [&](Node const* node) { return !good(node); });
  if (usable.size() > static_cast<std::size_t>(wanted_))
    usable.resize(static_cast<std::size_t>(wanted_));
  std::ranges::sort(usable);  // the order of the allocation
  std::vector<HostSlots> chosen;
  for (auto const* node : usable) chosen.push_back(node->host);
  return chosen;
}

void NodePool::rank_failed(std::string const& host, Time now) {
  auto* const failed = find(host);
  if (!failed) return;
  for (auto& node : nodes_)
    if (&node != failed && node.in_a_row < max_failures_in_a_row) node.in_a_row = 0;
  if (now - failed->last_failure > left_out_for) failed->in_a_row = 0;
  failed->last_failure = now;
  ++failed->failures;
  ++failed->in_a_row;
}

void NodePool::lost(std::string const& host) {
  if (auto* const node = find(host)) node->is_lost = true;
}

void NodePool::found(std::string const& host) {
  if (auto* const node = find(host)) node->is_lost = false;
}

void NodePool::exclude(std::string const& host) {
  if (auto* const node = find(host)) node->is_excluded = true;
}

std::vector<std::string> NodePool::lost_hosts() const {
  std::vector<std::string> hosts;
  for (auto const& node : nodes_)
    if (node.is_lost) hosts.push_back(node.host.host);
  return hosts;
}

NodePool::Node* NodePool::find(std::string const& host) {
  auto const found =
      std::ranges::find_if(nodes_, [&](Node const& node) { return node.host.host == host; });
  return found == nodes_.end() ? nullptr : &*found;
}

}  // namespace tessera::cli
