#include "tessera/checkpoint/format/nonfinite.hpp"

#include <algorithm>
#include <cstring>

#include "format/detail/json_reader.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint {
namespace {

/// Bits of the smallest positive fp32 value that rounds to infinity.
std::int32_t infinite_from(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp16:
      return 0x477ff000;  // 65520, halfway between the largest value and 2^16
    case Dtype::bf16:
      return 0x7f7f8000;
    default:
      return 0x7f800000;
  }
}

}  // namespace

std::int64_t count_nonfinite(float const* values, std::int64_t numel, Dtype dtype) {
  constexpr std::int64_t tile = std::int64_t{1} << 20;  // its count fits 32 bits: wider lanes
  std::int32_t const limit = infinite_from(dtype);
  std::int64_t total = 0;
  for (std::int64_t at = 0; at < numel; at += tile) {
    std::int64_t const end = std::min(at + tile, numel);
    std::int32_t count = 0;
    for (std::int64_t i = at; i < end; ++i) {
      std::int32_t bits;
      std::memcpy(&bits, values + i, sizeof bits);
      count += (bits & 0x7fffffff) >= limit ? 1 : 0;
    }
    total += count;
  }
  return total;
}

void NonFiniteTally::add(std::string const& tensor, std::string const& state, std::int64_t count) {
  if (count == 0) return;
  auto const known = std::find_if(list_.rbegin(), list_.rend(), [&](NonFinite const& one) {
    return one.tensor == tensor && one.state == state;
  });
  if (known != list_.rend())
    known->count += count;
  else
    list_.push_back({tensor, state, count});
}

std::string text_of(std::vector<NonFinite> const& list) {
  constexpr std::size_t most = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(list.size(), most); ++i)
    text += concat(i ? ", " : "", list[i].state, list[i].state.empty() ? "" : " of ",
                   detail::printable(list[i].tensor), " (", list[i].count,
                   plural(list[i].count, " value"), ")");
  if (list.size() > most) text += concat(" and ", list.size() - most, " more");
  return text;
}

ConfigTree to_tree(std::vector<NonFinite> const& list) {
  ConfigTree tree = ConfigTree::array();
  for (auto const& one : list)
    tree.push_back(
        ConfigTree().set("tensor", one.tensor).set("state", one.state).set("count", one.count));
  return tree;
}

std::vector<NonFinite> nonfinite_from(ConfigTree const& tree) {
  std::vector<NonFinite> list;
  for (auto const& one : tree.as_array())
    list.push_back(
        {one.at("tensor").as_string(), one.at("state").as_string(), one.at("count").as_int()});
  return list;
}

}  // namespace tessera::checkpoint
