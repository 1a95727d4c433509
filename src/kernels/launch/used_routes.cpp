#include "tessera/kernels/launch/used_routes.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "launch/timed.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::kernels {
namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::pair<std::string_view, std::string_view>, std::int64_t> calls;

  static Counts& of_process() {
    static Counts& counts = *new Counts;  // kernels of static objects may still run at the end
    return counts;
  }
};

}  // namespace

void detail::note_route(char const* computation, char const* route) {
  if (memory::ArenaPlanning::active()) return;  // nothing is computed
  auto& counts = Counts::of_process();
  std::lock_guard const lock(counts.mutex);
  ++counts.calls[{computation, route}];
}

std::vector<UsedRoute> used_routes() {
  auto& counts = Counts::of_process();
  std::vector<UsedRoute> out;
  {
    std::lock_guard const lock(counts.mutex);
    for (auto const& [key, calls] : counts.calls)
      out.push_back({std::string(key.first), std::string(key.second), calls});
  }
  std::stable_sort(out.begin(), out.end(), [](UsedRoute const& a, UsedRoute const& b) {
    return a.computation != b.computation ? a.computation < b.computation : a.calls > b.calls;
  });
  return out;
}

void reset_used_routes() {
  auto& counts = Counts::of_process();
  std::lock_guard const lock(counts.mutex);
  counts.calls.clear();
}

std::string used_routes_text() {
  auto const routes = used_routes();
  std::string out;
  for (std::size_t i = 0; i < routes.size(); ++i) {
    auto const is_same = [&](UsedRoute const& r) { return r.computation == routes[i].computation; };
    bool const first = i == 0 || !is_same(routes[i - 1]);
    if (first)
      out += concat(i == 0 ? "" : "; ", routes[i].computation, " ");
    else
      out += ", ";
    out += routes[i].route;
    if (std::count_if(routes.begin(), routes.end(), is_same) > 1)
      out += concat(" (", routes[i].calls, ")");
  }
  return out;
}

}  // namespace tessera::kernels
