#include "optimizer/swapped_states.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::zero::detail {
namespace {

constexpr auto floats_of_page = static_cast<std::int64_t>(memory::swap_alignment / sizeof(float));

std::int64_t rounded_to_pages(std::int64_t numel) { return round_up(numel, floats_of_page); }

std::size_t bytes_of(std::int64_t numel) { return static_cast<std::size_t>(numel) * sizeof(float); }

/// Tiles begin at multiples of a page.
TileList cut(std::vector<SwappedStates::Region> const& regions, std::int64_t max_numel) {
  static_assert(TileList::alignment == floats_of_page);
  std::vector<std::int64_t> numel;
  for (auto const& region : regions) numel.push_back(region.numel);
  return {numel, max_numel};
}

}  // namespace

SwappedStates::SwappedStates(OptimizerSwap const& swap, std::vector<std::string> const& names,
                             std::vector<Region> const& regions)
    : tiles_(cut(regions, swap.tile_numel)),
      tile_numel_(rounded_to_pages(tiles_.largest())),
      transfers_(swap.transfers) {
  TESSERA_EXPECT(swap.buffer_count > 0 && swap.tile_numel > 0);
  std::int64_t end = 0;
  for (auto const& region : regions) {
    unit_offsets_.push_back(end);
    end += rounded_to_pages(region.numel);
  }
  for (auto const& name : names) {
    files_.push_back(
        std::make_unique<memory::SwapFile>(name, swap.transfers.directories, bytes_of(end)));
    for (std::size_t u = 0; u < regions.size(); ++u)
      files_.back()->label(bytes_of(unit_offsets_[u]), regions[u].unit);
  }
  auto const buffers = std::min(static_cast<std::size_t>(swap.buffer_count), tiles_.size());
  buffers_.resize(buffers);
  try {
    memory_ = {"tiles of swapped states", memory::Purpose::optimizer_state,
               buffers * names.size() * bytes_of(tile_numel_) + memory::swap_alignment};
  } catch (OutOfMemoryError const& error) {
    throw OutOfMemoryError(concat(error.what(), "; or lower the states' buffer_count (",
                                  swap.buffer_count, ") or the size of a tile"));
  }
}

float* SwappedStates::region(std::size_t state, UnitIndex unit) const {
  return static_cast<float*>(files_[state]->data()) + unit_offsets_[position(unit)];
}

float* SwappedStates::values(std::size_t tile, std::size_t state) const {
  auto const start = reinterpret_cast<std::uintptr_t>(memory_.data());
  auto const aligned = round_up(start, memory::swap_alignment);
  std::size_t const buffer = tile % buffers_.size();
  return reinterpret_cast<float*>(aligned) +
         static_cast<std::int64_t>(buffer * files_.size() + state) * tile_numel_;
}

std::size_t SwappedStates::file_offset(Tile const& tile) const {
  return bytes_of(unit_offsets_[position(tile.unit)] + tile.begin);
}

void SwappedStates::read_ahead() {
  for (; ahead_ < buffers_.size(); ++ahead_) {
    std::size_t const index = (next_ + ahead_) % tiles_.size();
    TileBuffer& buffer = buffer_of(index);
    if (buffer.is_taken) return;
    Tile const& tile = tiles_[index];
    buffer.is_taken = true;
    buffer.ready.clear();
    for (std::size_t k = 0; k < files_.size(); ++k) {
      auto const part = transfers_.read(*files_[k], file_offset(tile), values(index, k),
                                        bytes_of(rounded_to_pages(tile.numel)), buffer.free);
      buffer.ready.insert(buffer.ready.end(), part.begin(), part.end());
    }
  }
}

void SwappedStates::finish_transfers() {
  transfers_.wait();
  for (auto& buffer : buffers_) buffer = {};
  ahead_ = 0;
  is_mapped_ = true;
}

void SwappedStates::acquire(memory::Queue& queue, std::size_t tile) {
  TESSERA_EXPECT(tile == next_);
  if (is_mapped_)
    for (auto const& file : files_) file->flush();
  is_mapped_ = false;
  read_ahead();
  memory::order_before(queue, buffer_of(tile).ready);
}

void SwappedStates::release(memory::Queue& queue, std::size_t tile, Values values) {
  TESSERA_EXPECT(tile == next_ && ahead_ > 0);
  TileBuffer& buffer = buffer_of(tile);
  Pending const computed{queue.record()};
  buffer.free.clear();
  if (values == Values::unchanged) buffer.free = computed;
  for (std::size_t k = 0; values == Values::changed && k < files_.size(); ++k) {
    auto const part = transfers_.write(*files_[k], file_offset(tiles_[tile]), this->values(tile, k),
                                       bytes_of(rounded_to_pages(tiles_[tile].numel)), computed);
    buffer.free.insert(buffer.free.end(), part.begin(), part.end());
  }
  buffer.is_taken = false;
  next_ = (tile + 1) % tiles_.size();
  --ahead_;
  read_ahead();
}

std::size_t SwappedStates::file_bytes() const {
  std::size_t sum = 0;
  for (auto const& file : files_) sum += file->bytes();
  return sum;
}

std::size_t SwappedStates::buffer_bytes() const { return memory_.bytes(); }

SwapUse SwappedStates::use() const {
  return {transfers_.method(), std::all_of(files_.begin(), files_.end(),
                                           [](auto const& file) { return file->is_direct(); })};
}

}  // namespace tessera::zero::detail
