#include "decoder/host_checkpoints.hpp"

#include <chrono>

#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/planning.hpp"
#include "tessera/memory/stream_queue.hpp"

namespace tessera::model::detail {

/// A pass that ended early leaves copies in flight.
HostCheckpoints::~HostCheckpoints() {
  if (!copies_) return;
  try {
    copies_->record().wait_for(std::chrono::seconds(10));
  } catch (...) {
  }
}

std::size_t HostCheckpoints::bytes(Blocks const& blocks, std::int64_t positions, Dtype dtype) {
  std::size_t const kept = blocks.first + slots - 1;
  if (blocks.end <= kept) return 0;
  return (blocks.end - kept) * static_cast<std::size_t>(positions * blocks.width) * size_of(dtype);
}

void HostCheckpoints::begin(PassContext const& pass, Blocks const& blocks) {
  blocks_ = blocks;
  slots_.clear();
  for (std::size_t i = 0; i < std::min(slots, blocks.end + 1); ++i)
    slots_.push_back(pass.allocate_stream(pass.positions(), blocks.width));
  copied_.assign(blocks.end, {});
  if (memory::ArenaPlanning::active()) return;
  if (!copies_) copies_ = memory::make_stream_queue("activation checkpoints");
  auto const last_copy = copies_->record();
  pass.compute.wait(last_copy);
  std::size_t const needed = bytes(blocks, pass.positions(), pass.stream_dtype);
  if (needed <= host_.bytes()) return;
  last_copy.wait("copies of activation checkpoints", std::chrono::minutes(10));
  host_ = memory::make_host_buffer("activation checkpoints", memory::Purpose::activations, needed,
                                   memory::MemorySpace::pinned);
}

TensorView HostCheckpoints::input_buffer(PassContext const& pass, std::size_t i) const {
  if (i >= slots && leaves(i - slots)) pass.compute.wait(copied_[i - slots]);
  return slots_[i % slots];
}

void* HostCheckpoints::host(std::size_t i) const {
  return static_cast<std::byte*>(host_.data()) + (i - blocks_.first) * slots_[0].bytes();
}

void HostCheckpoints::leave(PassContext const& pass, std::size_t i) {
  if (!copies_ || !leaves(i)) return;
  copies_->wait(pass.compute.record());
  memory::copy(*copies_, host(i), slots_[i % slots].data(), slots_[0].bytes());
  copied_[i] = copies_->record();
}

void HostCheckpoints::come_back(PassContext const& pass, std::size_t i) {
  if (!copies_ || !leaves(i)) return;
  copies_->wait(pass.compute.record());
  memory::copy(*copies_, slots_[i % slots].data(), host(i), slots_[0].bytes());
  copied_[i] = copies_->record();
}

void HostCheckpoints::arrive(PassContext const& pass, std::size_t i) const {
  if (leaves(i)) pass.compute.wait(copied_[i]);
}

}  // namespace tessera::model::detail
