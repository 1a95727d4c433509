#include "tessera/checkpoint/tools/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "format/detail/json_reader.hpp"
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

using Readers = std::vector<std::unique_ptr<StateReader>>;
using Names = std::vector<std::string>;

bool contains(Names const& list, std::string const& name) {
  return index_of(list, name) < list.size();
}

Names states_of(Readers const& readers) {
  Names names;
  for (auto const& reader : readers)
    names.insert(names.end(), reader->states().begin(), reader->states().end());
  return names;
}

/// Names of @p all that are not in @p others.
Names without(Names all, Names const& others) {
  std::erase_if(all, [&](auto const& name) { return contains(others, name); });
  return all;
}

/// The states of two sources, or those of them whose tensors have one shape.
Names choose_states(CompareOptions const& options, Readers const& a, Readers const& b) {
  for (auto const& name : options.states)
    for (auto const* side : {&a, &b})
      TESSERA_VALIDATE(contains(states_of(*side), name), UsageError, side->front()->path().string(),
                       " has no state '", name, "', only ", detail::list_text(states_of(*side)));
  auto const all = states_of(a);
  return options.states.empty() ? without(all, without(all, states_of(b))) : options.states;
}

/// Tensors of two readers that have states of the same names.
class Comparison {
 public:
  Comparison(CompareOptions const& options, StateReader& a, StateReader& b, Names const& states)
      : options_(options), a_(a), b_(b) {
    for (auto const& name : states)
      if (contains(a.states(), name) && contains(b.states(), name)) states_.push_back(name);
    pair_up();
  }

  /// Names and shapes of tensors that only one of them has.
  CompareReport const& tensors() const { return report_; }
  bool has_states() const { return !states_.empty(); }
  std::int64_t bytes() const {
    std::int64_t total = 0;
    for (auto const& [t, u] : pairs_)
      for (auto const& state : states_) total += has(t, u, state) ? a_.tensors()[t].numel * 8 : 0;
    return total;
  }
  /// @param done bytes read so far, of @p total
  void run(std::vector<TensorDifference>& out, std::int64_t& done, std::int64_t total) {
    for (auto const& [t, u] : pairs_)
      for (auto const& state : states_)
        if (has(t, u, state)) out.push_back(compare_tensor(t, u, state, done, total));
  }

 private:
  /// Tensors of both, by name or by a tied name of either.
  void pair_up() {
    std::unordered_map<std::string, std::size_t> by_name;
    for (std::size_t u = 0; u < b_.tensors().size(); ++u) {
      by_name.emplace(b_.tensors()[u].name, u);
      for (auto const& alias : b_.tensors()[u].aliases) by_name.emplace(alias, u);
    }
    std::vector<bool> used(b_.tensors().size(), false);
    for (std::size_t t = 0; t < a_.tensors().size(); ++t) {
      auto const& tensor = a_.tensors()[t];
      auto found = by_name.find(tensor.name);
      for (auto const& alias : tensor.aliases)
        if (found == by_name.end()) found = by_name.find(alias);
      if (found == by_name.end()) {
        report_.a.only_tensors.push_back(tensor.name);
        continue;
      }
      used[found->second] = true;
      auto const& other = b_.tensors()[found->second];
      if (other.shape != tensor.shape)
        report_.other_shapes.push_back({tensor.name, tensor.shape, other.shape});
      else
        pairs_.emplace_back(t, found->second);
    }
    for (std::size_t u = 0; u < used.size(); ++u)
      if (!used[u]) report_.b.only_tensors.push_back(b_.tensors()[u].name);
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
  Names states_;  ///< to compare
  std::vector<std::pair<std::size_t, std::size_t>> pairs_;
  CompareReport report_;
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
  auto const states = choose_states(options, a, b);
  std::vector<Comparison> comparisons;
  for (auto const& left : a)
    for (auto const& right : b) {
      Comparison one(options, *left, *right, states);
      if (comparisons.empty() || one.has_states()) comparisons.push_back(std::move(one));
    }
  CompareReport report = comparisons[0].tensors();
  report.a = {a[0]->path(), a[0]->format(), a[0]->step(), report.a.only_tensors,
              without(states_of(a), states_of(b))};
  report.b = {b[0]->path(), b[0]->format(), b[0]->step(), report.b.only_tensors,
              without(states_of(b), states_of(a))};
  report.states = states;
  std::int64_t total = 0, done = 0;
  for (auto const& comparison : comparisons) total += comparison.bytes();
  for (auto& comparison : comparisons) comparison.run(report.tensors, done, total);
  return report;
}

}  // namespace tessera::checkpoint
