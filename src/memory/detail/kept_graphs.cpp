#include "detail/kept_graphs.hpp"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

namespace tessera::memory::detail {
namespace {

std::size_t hash_of(LaunchRecord const& launches) {
  auto const& bytes = launches.bytes();
  return std::hash<std::string_view>()({reinterpret_cast<char const*>(bytes.data()), bytes.size()});
}

}  // namespace

KeptGraph* KeptGraphs::find(LaunchRecord const& launches) {
  auto const found = std::find_if(graphs_.begin(), graphs_.end(), [&](KeptGraph const& kept) {
    return kept.launches.equals(launches);
  });
  launches_repeat_ = found != graphs_.end() || graphs_.empty();
  if (found == graphs_.end()) return nullptr;
  std::rotate(graphs_.begin(), found, found + 1);
  return &graphs_.front();
}

KeptGraph& KeptGraphs::place_for(LaunchRecord const& launches) {
  if (!find(launches)) {
    std::size_t const hash = hash_of(launches);
    bool const came_back = std::find(seen_.begin(), seen_.end(), hash) != seen_.end();
    if (came_back) limit_ = std::min(limit_ + 1, max_graphs);
    seen_.push_back(hash);
    if (seen_.size() > remembered) seen_.pop_front();
    if (graphs_.size() < limit_) graphs_.emplace_back();
    std::rotate(graphs_.begin(), graphs_.end() - 1, graphs_.end());
  }
  graphs_.front().launches.add_unknown();
  return graphs_.front();
}

}  // namespace tessera::memory::detail
