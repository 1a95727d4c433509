#include "sequences/packing.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>

namespace tessera::data::detail {

std::vector<PackedRow> pack_best_fit(std::span<std::size_t const> lengths, std::size_t row_length,
                                     Overflow overflow) {
  std::vector<Fragment> fragments;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::size_t const end =
        overflow == Overflow::truncate ? std::min(lengths[i], row_length) : lengths[i];
    for (std::size_t begin = 0; begin < end; begin += row_length)
      fragments.push_back({i, begin, std::min(begin + row_length, end)});
  }
  auto const length_of = [](Fragment const& f) { return f.end - f.begin; };
  std::ranges::stable_sort(fragments, std::greater<>(), length_of);
  std::vector<PackedRow> rows;
  std::map<std::size_t, std::deque<std::size_t>> rows_by_room;
  for (Fragment const& fragment : fragments) {
    auto const found = rows_by_room.lower_bound(length_of(fragment));
    std::size_t row = rows.size(), room = row_length;
    if (found == rows_by_room.end()) {
      rows.emplace_back();
    } else {
      room = found->first;
      row = found->second.front();
      found->second.pop_front();
      if (found->second.empty()) rows_by_room.erase(found);
    }
    rows[row].push_back(fragment);
    room -= length_of(fragment);
    if (room > 0) rows_by_room[room].push_back(row);
  }
  return rows;
}

std::vector<PackedRow> pack_wrapped(std::span<std::size_t const> lengths, std::size_t row_length) {
  std::vector<PackedRow> rows;
  std::size_t room = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    for (std::size_t begin = 0; begin < lengths[i];) {
      if (room == 0) {
        rows.emplace_back();
        room = row_length;
      }
      std::size_t const end = std::min(begin + room, lengths[i]);
      rows.back().push_back({i, begin, end});
      room -= end - begin;
      begin = end;
    }
  }
  return rows;
}

}  // namespace tessera::data::detail
