#include "tessera/config/option_table.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

std::string normalized(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, '-', '_');
  return out;
}

/// Optimal string alignment distance: insertions, deletions, replacements and swaps of neighbors.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

std::string_view name_of(Origin origin) {
  constexpr char const* names[] = {"default", "accelerate", "run file",
                                   "flag",    "deepspeed",  "derived"};
  return names[static_cast<int>(origin)];
}

void OptionTable::group(std::string title, Resume resume_class) {
  group_ = std::move(title);
  resume_class_ = resume_class;
}

Option& OptionTable::add(OptionType type, std::string name, ConfigTree default_value,
                         std::string meaning) {
  Option option;
  option.name = std::move(name);
  option.type = type;
  option.default_value = type == OptionType::real && default_value.is_number()
                             ? ConfigTree(default_value.as_double())
                             : std::move(default_value);
  option.meaning = std::move(meaning);
  option.resume_class = resume_class_;
  return add(std::move(option));
}

Option& OptionTable::add(Option option) {
  bool const is_new = index_.emplace(normalized(option.name), options_.size()).second;
  TESSERA_EXPECT(is_new, "option ", option.name, " appears twice in its table");
  option.group = group_;
  return options_.emplace_back(std::move(option));
}

void OptionTable::convert_values(std::string_view prefix) {
  for (auto& option : options_) {
    if (!option.name.starts_with(prefix)) continue;
    option.converts = true;
    if (!option.automatic) option.automatic = "the default";
  }
}

Option const* OptionTable::find(std::string_view name) const {
  std::string const key = normalized(name);
  if (auto const found = index_.find(key); found != index_.end()) return &options_[found->second];
  for (auto const& option : options_)
    if (std::ranges::find(option.aliases, key, normalized) != option.aliases.end()) return &option;
  return nullptr;
}

std::vector<std::string> OptionTable::names() const {
  std::vector<std::string> out;
  for (auto const& option : options_) {
    out.push_back(option.name);
    out.insert(out.end(), option.aliases.begin(), option.aliases.end());
  }
  return out;
}

std::string nearest_name(std::string_view name, std::vector<std::string> const& names) {
  std::string const wanted = normalized(name);
  std::size_t const allowed = std::max<std::size_t>(1, wanted.size() / 3);
  std::string best;
  std::size_t best_distance = allowed + 1;
  for (auto const& candidate : names) {
    std::size_t const distance = edit_distance(wanted, normalized(candidate));
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  if (best.empty() && wanted.size() >= 4)  // an abbreviation
    for (auto const& candidate : names)
      if (candidate.starts_with(wanted) && (best.empty() || candidate.size() < best.size()))
        best = candidate;
  return best;
}

}  // namespace tessera::config
