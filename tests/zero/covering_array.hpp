#pragma once
/// Configurations that contain every allowed pair of levels of different factors, as few as a
/// greedy search finds. Cohen et al., "The AETG System: An Approach to Testing Based on
/// Combinatorial Design", IEEE Transactions on Software Engineering 23 (1997).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tessera::test {

/// The level of each factor.
using Configuration = std::vector<int>;

struct Level {
  int factor = 0;
  int level = 0;
  bool operator==(Level const&) const = default;
};

/// A pair of levels that no accepted configuration contains.
struct RefusedPair {
  Level first, second;
  /// Reasons of the configuration that has level 0 of all other factors, and of those that differ
  /// from it in one of these.
  std::set<std::string> reasons;
};

struct CoveringArray {
  std::vector<Configuration> configurations;
  std::vector<RefusedPair> refused;
  std::size_t covered_pairs = 0;
};

/// Says why a configuration is refused; empty: it is accepted.
using Judge = std::function<std::string(Configuration const&)>;

class CoveringArraySearch {
 public:
  CoveringArraySearch(std::vector<int> levels, Judge judge)
      : levels_(std::move(levels)), judge_(std::move(judge)) {
    for (int const count : levels_) {
      first_.push_back(total_);
      total_ += count;
    }
    states_.assign(static_cast<std::size_t>(total_ * total_), State::unknown);
  }

  CoveringArray run(std::size_t min_configurations) {
    CoveringArray out;
    auto const pairs = all_pairs();
    for (auto const& [a, b] : pairs)
      if (state(a, b) == State::unknown) find_witness(a, b, out);
    cover(pairs, 0, out);
    out.covered_pairs = pairs.size() - out.refused.size();
    while (!pairs.empty() && out.configurations.size() < min_configurations) {
      for (auto& s : states_)
        if (s == State::covered) s = State::open;
      cover(pairs, min_configurations, out);
    }
    return out;
  }

 private:
  enum class State : std::uint8_t { unknown, open, covered, refused };
  static constexpr int candidates = 40;

  int factors() const { return static_cast<int>(levels_.size()); }
  int levels(int factor) const { return levels_[static_cast<std::size_t>(factor)]; }
  State& state(Level a, Level b) {
    if (a.factor > b.factor) std::swap(a, b);
    auto const at = [&](Level l) { return first_[static_cast<std::size_t>(l.factor)] + l.level; };
    return states_[static_cast<std::size_t>(at(a) * total_ + at(b))];
  }

  std::vector<std::pair<Level, Level>> all_pairs() const {
    std::vector<std::pair<Level, Level>> out;
    for (int a = 0; a < factors(); ++a)
      for (int b = a + 1; b < factors(); ++b)
        for (int i = 0; i < levels(a); ++i)
          for (int j = 0; j < levels(b); ++j) out.push_back({{a, i}, {b, j}});
    return out;
  }

  template <class Visit>
  void for_each_pair(Configuration const& c, Visit const& visit) {
    for (int a = 0; a < factors(); ++a)
      for (int b = a + 1; b < factors(); ++b)
        visit(state({a, c[static_cast<std::size_t>(a)]}, {b, c[static_cast<std::size_t>(b)]}));
  }
  /// Pairs that are covered stay so.
  void mark(Configuration const& c, State to) {
    for_each_pair(c, [&](State& s) { s = std::max(s, to); });
  }
  std::size_t newly_covered(Configuration const& c) {
    std::size_t count = 0;
    for_each_pair(c, [&](State const& s) { count += s == State::open; });
    return count;
  }

  /// Adds configurations until all pairs are covered, or (not 0) there are @p most of them.
  void cover(std::vector<std::pair<Level, Level>> const& pairs, std::size_t most,
             CoveringArray& out) {
    for (auto const& [a, b] : pairs) {
      if (most > 0 && out.configurations.size() >= most) return;
      if (state(a, b) != State::open) continue;
      out.configurations.push_back(best_with(a, b));
      mark(out.configurations.back(), State::covered);
    }
  }

  /// Level 0 of all factors but @p fixed.
  Configuration plain_with(std::vector<Level> const& fixed) const {
    Configuration out(levels_.size());
    for (auto const& l : fixed) out[static_cast<std::size_t>(l.factor)] = l.level;
    return out;
  }
  bool accepts(Configuration const& c, std::set<std::string>* reasons = nullptr) {
    auto const refusal = judge_(c);
    if (reasons) reasons->insert(refusal);
    if (refusal.empty()) mark(c, State::open);
    return refusal.empty();
  }

  /// An accepted configuration with both levels and level 0 of the other factors, or other levels
  /// of one or two of these. Without one the pair is refused.
  void find_witness(Level a, Level b, CoveringArray& out) {
    std::set<std::string> reasons;
    if (accepts(plain_with({a, b}), &reasons)) return witnesses_.push_back(plain_with({a, b}));
    std::vector<Level> others;
    for (int f = 0; f < factors(); ++f)
      for (int l = 1; l < levels(f) && f != a.factor && f != b.factor; ++l)
        others.push_back({f, l});
    for (auto const& x : others)
      if (auto const c = plain_with({a, b, x}); accepts(c, &reasons))
        return witnesses_.push_back(c);
    for (auto const& x : others)
      for (auto const& y : others)
        if (x.factor < y.factor)
          if (auto const c = plain_with({a, b, x, y}); accepts(c)) return witnesses_.push_back(c);
    state(a, b) = State::refused;
    out.refused.push_back({a, b, std::move(reasons)});
  }

  /// The accepted candidate with most open pairs, @p a and @p b among them; without one a witness.
  Configuration best_with(Level a, Level b) {
    std::vector<std::pair<std::size_t, Configuration>> found;
    for (int k = 0; k < candidates; ++k) {
      auto const c = candidate(a, b);
      if (!c.empty()) found.emplace_back(newly_covered(c), c);
    }
    std::stable_sort(found.begin(), found.end(),
                     [](auto const& x, auto const& y) { return x.first > y.first; });
    for (auto const& [count, c] : found)
      if (accepts(c)) return c;
    return *std::find_if(witnesses_.begin(), witnesses_.end(), [&](Configuration const& c) {
      return c[static_cast<std::size_t>(a.factor)] == a.level &&
             c[static_cast<std::size_t>(b.factor)] == b.level;
    });
  }

  /// Takes factors in a random order, and of each the level that covers most open pairs with the
  /// levels that are chosen. Empty: a factor has no level that goes with these.
  Configuration candidate(Level a, Level b) {
    std::vector<Level> chosen{a, b};
    std::vector<int> order(levels_.size());
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_() % i]);
    for (int const factor : order) {
      if (factor == a.factor || factor == b.factor) continue;
      int best = -1, most = -1;
      int const start = static_cast<int>(random_() % static_cast<unsigned>(levels(factor)));
      for (int k = 0; k < levels(factor); ++k) {
        int const level = (start + k) % levels(factor);
        int open = 0;
        bool fits = true;
        for (auto const& c : chosen) {
          State const s = state(c, {factor, level});
          fits &= s != State::refused;
          open += s == State::open;
        }
        if (fits && open > most) best = level, most = open;
      }
      if (best < 0) return {};
      chosen.push_back({factor, best});
    }
    return plain_with(chosen);
  }

  std::vector<int> levels_, first_;
  int total_ = 0;
  Judge judge_;
  std::vector<State> states_;
  std::vector<Configuration> witnesses_;
  std::minstd_rand random_{1};  ///< the standard defines its numbers
};

/// Deterministic. @param levels the number of levels of each factor  @param judge of complete
/// configurations; level 0 of a factor should go with most levels of the others
/// @param min_configurations with more than the pairs need, pairs are covered again
inline CoveringArray covering_array(std::vector<int> const& levels, Judge const& judge,
                                    std::size_t min_configurations = 0) {
  return CoveringArraySearch(levels, judge).run(min_configurations);
}

}  // namespace tessera::test
