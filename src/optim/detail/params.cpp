#include "detail/params.hpp"

#include <algorithm>
#include <cmath>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::optim::detail {

std::string join(Names names) {
  std::string out;
  for (auto name : names) out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

Params::Params(ConfigTree const& tree, std::string where, Names known)
    : tree_(tree), where_(std::move(where)) {
  TESSERA_VALIDATE(tree.is_null() || tree.is_object(), ConfigError, where_, " is ",
                   tree.type_name(), "; it must be an object");
  if (tree.is_null()) return;
  std::vector<std::string> unknown;
  for (auto const& [key, value] : tree.as_object())
    if (std::find(known.begin(), known.end(), key) == known.end())
      unknown.push_back(where_ + "." + key);
  TESSERA_VALIDATE(unknown.empty(), ConfigError, tessera::join(unknown),
                   unknown.size() == 1 ? " is" : " are", " not known here; known are ",
                   join(known));
}

ConfigTree const* Params::value(std::string_view key) const {
  auto const* found = tree_.find(key);
  return found && !found->is_null() ? found : nullptr;
}

void Params::refuse(std::string_view key, std::string const& why) const {
  throw ConfigError(concat(where_, ".", key, " ", why));
}

std::optional<double> Params::number(std::string_view key) const {
  auto const* found = value(key);
  if (!found) return std::nullopt;
  if (found->is_array() && found->size() > 0) {
    auto const& list = found->as_array();
    if (std::any_of(list.begin(), list.end(), [&](auto const& x) { return !(x == list.front()); }))
      refuse(
          key,
          concat(
              "is ", found->dump(),
              "; rates that differ between parameter groups are not supported, give one number"));
    found = &list.front();
  }
  if (!found->is_number()) refuse(key, concat("is ", found->dump(), "; it must be a number"));
  double const x = found->as_double();
  if (!std::isfinite(x)) refuse(key, "is not finite");
  return x;
}

std::optional<std::int64_t> Params::integer(std::string_view key, std::int64_t least) const {
  auto const x = number(key);
  if (!x) return std::nullopt;
  if (*x != std::floor(*x) || *x < static_cast<double>(least) || *x > 0x1p62)
    refuse(key, concat("is ", *x, "; it must be an integer of at least ", least));
  return static_cast<std::int64_t>(*x);
}

bool Params::flag(std::string_view key, bool otherwise) const {
  auto const* found = value(key);
  if (found && !found->is_bool())
    refuse(key, concat("is ", found->dump(), "; it must be true or false"));
  return found ? found->as_bool() : otherwise;
}

std::string Params::text(std::string_view key, Names choices, std::string otherwise) const {
  auto const* found = value(key);
  if (!found) return otherwise;
  if (!found->is_string() ||
      std::find(choices.begin(), choices.end(), found->as_string()) == choices.end())
    refuse(key, concat("is ", found->dump(), "; known are ", join(choices)));
  return found->as_string();
}

double Params::required_number(std::string_view key) const {
  auto const x = number(key);
  if (!x) refuse(key, "is missing; this schedule needs it");
  return *x;
}
std::int64_t Params::required_integer(std::string_view key, std::int64_t least) const {
  auto const x = integer(key, least);
  if (!x) refuse(key, "is missing; this schedule needs it");
  return *x;
}

}  // namespace tessera::optim::detail
