#include "tessera/checkpoint/tools/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "format/detail/text.hpp"
#include "tessera/core/error.hpp"
#include "tools/detail/state_reader.hpp"

namespace tessera::checkpoint {
namespace {

using detail::StateReader;

constexpr std::int64_t chunk_numel = std::int64_t{1} << 20;

std::size_t index_of(std::vector<std::string> const& list, std::string const& name) {
  return static_cast<std::size_t>(std::find(list.begin(), list.end(), name) - list.begin());
}

/// Sums of one tensor's state, in double precision.
class Sums {
 public:
  void add(float const* a, float const* b, std::int64_t numel) {
    for (std::int64_t i = 0; i < numel; ++i) {
      double const x = a[i], y = b[i];
      squares_ += x * x;
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      double const d = std::isfinite(x) && std::isfinite(y)
                           ? std::abs(x - y)
                           : std::numeric_limits<double>::infinity();
      ++different_;
      max_ = std::max(max_, d);
      sum_ += d;
      squared_ += d * d;
    }
  }
  void put(TensorDifference& out) const {
    out.different = different_;
    out.max = max_;
    out.mean = out.numel > 0 ? sum_ / static_cast<double>(out.numel) : 0;
    // nothing differs, or the norm of nothing: 0 rather than 0/0
    out.relative = squared_ == 0 ? 0
                   : std::isfinite(squares_) && squares_ > 0
                       ? std::sqrt(squared_ / squares_)
                       : std::numeric_limits<double>::infinity();
  }

 private:
  std::int64_t different_ = 0;
  double max_ = 0, sum_ = 0, squared_ = 0, squares_ = 0;
};

class Comparison {
 public:
  Comparison(CompareOptions const& options, StateReader& a, StateReader& b)
      : options_(options), a_(a), b_(b) {}

  CompareReport run() {
    CompareReport report;
    report.a = {a_.path(), a_.format(), a_.step(), {}, {}};
    report.b = {b_.path(), b_.format(), b_.step(), {}, {}};
    report.states = choose_states(report);
    auto const pairs = pair_up(report);
    std::int64_t total = 0, done = 0;
    for (auto const& [t, u] : pairs)
      for (auto const& state : report.states)
        total += has(t, u, state) ? a_.tensors()[t].numel * 8 : 0;
    for (auto const& [t, u] : pairs)
      for (auto const& state : report.states)
        if (has(t, u, state)) report.tensors.push_back(compare_tensor(t, u, state, done, total));
    return report;
  }

 private:
  std::vector<std::string> choose_states(CompareReport& report) const {
    for (auto const& name : a_.states())
      if (index_of(b_.states(), name) == b_.states().size()) report.a.only_states.push_back(name);
    for (auto const& name : b_.states())
      if (index_of(a_.states(), name) == a_.states().size()) report.b.only_states.push_back(name);
    std::vector<std::string> chosen;
    for (auto const& name : options_.states) {
      for (auto const* side : {&a_, &b_})
        TESSERA_VALIDATE(index_of(side->states(), name) < side->states().size(), UsageError,
                         side->path().string(), " has no state '", name, "', only ",
                         detail::list_text(side->states()));
      chosen.push_back(name);
    }
    for (auto const& name : a_.states())
      if (options_.states.empty() && index_of(b_.states(), name) < b_.states().size())
        chosen.push_back(name);
    return chosen;
  }

  /// Tensors of both, by name or by a tied name of either.
  std::vector<std::pair<std::size_t, std::size_t>> pair_up(CompareReport& report) const {
    std::unordered_map<std::string, std::size_t> by_name;
    for (std::size_t u = 0; u < b_.tensors().size(); ++u) {
      by_name.emplace(b_.tensors()[u].name, u);
      for (auto const& alias : b_.tensors()[u].aliases) by_name.emplace(alias, u);
    }
    std::vector<bool> used(b_.tensors().size(), false);
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t t = 0; t < a_.tensors().size(); ++t) {
      auto const& tensor = a_.tensors()[t];
      auto found = by_name.find(tensor.name);
      for (auto const& alias : tensor.aliases)
        if (found == by_name.end()) found = by_name.find(alias);
      if (found == by_name.end()) {
        report.a.only_tensors.push_back(tensor.name);
        continue;
      }
      used[found->second] = true;
      auto const& other = b_.tensors()[found->second];
      if (other.shape != tensor.shape)
        report.other_shapes.push_back({tensor.name, tensor.shape, other.shape});
      else
        pairs.emplace_back(t, found->second);
    }
    for (std::size_t u = 0; u < used.size(); ++u)
      if (!used[u]) report.b.only_tensors.push_back(b_.tensors()[u].name);
    return pairs;
  }

  bool has(std::size_t t, std::size_t u, std::string const& state) const {
    return index_of(a_.states(), state) < a_.tensors()[t].states &&
           index_of(b_.states(), state) < b_.tensors()[u].states;
  }

  TensorDifference compare_tensor(std::size_t t, std::size_t u, std::string const& state,
                                  std::int64_t& done, std::int64_t total) {
    TensorDifference out{a_.tensors()[t].name, state, a_.tensors()[t].numel, 0, 0, 0, 0};
    Sums sums;
    left_.resize(static_cast<std::size_t>(chunk_numel));
    right_.resize(left_.size());
    for (std::int64_t first = 0; first < out.numel; first += chunk_numel) {
      std::int64_t const count = std::min(chunk_numel, out.numel - first);
      a_.read(t, index_of(a_.states(), state), first, count, left_.data());
      b_.read(u, index_of(b_.states(), state), first, count, right_.data());
      sums.add(left_.data(), right_.data(), count);
      done += count * 8;
      if (options_.progress) options_.progress(done, total);
    }
    sums.put(out);
    return out;
  }

  CompareOptions const& options_;
  StateReader& a_;
  StateReader& b_;
  std::vector<float> left_, right_;
};

}  // namespace

double CompareReport::max() const {
  double largest = 0;
  for (auto const& tensor : tensors) largest = std::max(largest, tensor.max);
  return largest;
}

CompareReport compare(CompareOptions const& options) {
  auto const a = detail::open_states(options.a, options.tag_a, options.when_damaged),
             b = detail::open_states(options.b, options.tag_b, options.when_damaged);
  return Comparison(options, *a, *b).run();
}

}  // namespace tessera::checkpoint
