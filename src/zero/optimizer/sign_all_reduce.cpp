#include "optimizer/sign_all_reduce.hpp"

#include <algorithm>
#include <utility>

#include "optimizer/parameter_sums.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/kernels/quantization/sign_codes.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {

SignAllReduce::SignAllReduce(StoreContext const& context, optim::Compression::Scales scales,
                             memory::MemorySpace space)
    : context_(context), ranks_(context.plan.ranks()), rank_(context.comm.rank()) {
  std::int64_t bytes = 0;
  for (auto const& unit : context_.plan.units()) {
    layouts_.push_back(layout_of(unit, scales));
    layouts_.back().offset = bytes;
    bytes += layouts_.back().message * ranks_;
  }
  if (ranks_ > 1) {
    sent_ = make_comm_buffer(context_, "signs that are sent", Dtype::uint8, bytes, space);
    received_ = make_comm_buffer(context_, "signs that are received", Dtype::uint8, bytes, space);
  }
  sums_ = {"sums of squares of a scale", memory::Purpose::workspace, 2 * sizeof(double), space};
}

SignAllReduce::Layout SignAllReduce::layout_of(UnitLayout const& unit,
                                               optim::Compression::Scales scales) const {
  bool const shares = scales == optim::Compression::Scales::per_unit;
  Layout out;
  out.shard_numel = unit.shard_numel;
  out.scales = shares ? 1 : unit.parameters.size();
  out.message = static_cast<std::int64_t>(out.scales * sizeof(float)) + unit.shard_numel / 8;
  TESSERA_EXPECT(unit.shard_numel % kernels::signs_per_word == 0);
  for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
    auto const& parameter = unit.parameters[p];
    for (int server = 0; server < ranks_; ++server) {
      std::int64_t const begin = std::max(parameter.offset.value(), server * unit.shard_numel),
                         end = std::min(parameter.end().value(), (server + 1) * unit.shard_numel);
      if (begin < end) out.pieces.push_back({begin, end - begin, shares ? 0 : p, server});
    }
  }
  return out;
}

memory::TensorView SignAllReduce::messages(Layout const& layout, CommBuffer const& buffer) const {
  return buffer.view(layout.offset, layout.message * ranks_);
}

float* SignAllReduce::scale_at(Layout const& layout, CommBuffer const& buffer, int rank,
                               std::size_t scale) const {
  return static_cast<float*>(buffer.at(layout.offset + rank * layout.message)) + scale;
}

std::uint32_t* SignAllReduce::words_at(Layout const& layout, CommBuffer const& buffer, int rank,
                                       Piece const& piece) const {
  std::int64_t const in_shard = piece.begin - piece.server * layout.shard_numel;
  return static_cast<std::uint32_t*>(
             buffer.at(layout.offset + rank * layout.message +
                       static_cast<std::int64_t>(layout.scales * sizeof(float)))) +
         in_shard / kernels::signs_per_word;
}

void SignAllReduce::encode(Layout const& layout, float* values, std::int64_t first, int server) {
  auto& queue = context_.compute;
  auto* const sums = static_cast<double*>(sums_.data());
  bool const to_all = server < 0;
  for (std::size_t scale = 0; scale < layout.scales; ++scale) {
    std::vector<kernels::GradientRun> runs;
    std::int64_t numel = 0;
    for (auto const& piece : layout.pieces) {
      if (piece.scale != scale || (!to_all && piece.server != server)) continue;
      runs.push_back({values + (piece.begin - first), piece.numel});
      numel += piece.numel;
    }
    if (numel == 0) continue;
    kernels::gradient_statistics(queue, sums, runs, Dtype::fp32);
    kernels::sign_scale(
        queue,
        {scale_at(layout, sent_, to_all ? 0 : server, scale), layout.message, to_all ? ranks_ : 1},
        sums, numel);
  }
  for (auto const& piece : layout.pieces)
    if (to_all || piece.server == server)
      kernels::encode_signs(queue, words_at(layout, sent_, piece.server, piece),
                            values + (piece.begin - first), piece.numel,
                            scale_at(layout, sent_, piece.server, piece.scale));
}

void SignAllReduce::send(UnitIndex unit, float* values) {
  auto& layout = layouts_[position(unit)];
  encode(layout, values, 0, -1);
  layout.pending = context_.comm.all_to_all(messages(layout, sent_), messages(layout, received_),
                                            context_.compute.record());
}

void SignAllReduce::finish(Layout& layout) {
  auto const pending = std::exchange(layout.pending, {});
  pending.order_before(context_.compute);
  if (memory::memory_space_of(context_.compute) == memory::MemorySpace::host)
    context_.comm.wait(pending);
}

void SignAllReduce::reduce(UnitIndex unit, float* server_error) {
  auto& layout = layouts_[position(unit)];
  finish(layout);
  std::int64_t const first = rank_ * layout.shard_numel;
  for (auto const& piece : layout.pieces)
    if (piece.server == rank_)
      kernels::add_mean_of_signs(
          context_.compute, server_error + (piece.begin - first), piece.numel,
          {words_at(layout, received_, 0, piece), scale_at(layout, received_, 0, piece.scale),
           layout.message, ranks_});
  encode(layout, server_error, first, rank_);
  layout.pending = context_.comm.all_gather(
      messages(layout, sent_), {layout.message, layout.message, 0}, context_.compute.record());
}

void SignAllReduce::receive(UnitIndex unit, float* out) {
  auto& layout = layouts_[position(unit)];
  finish(layout);
  for (auto const& piece : layout.pieces)
    kernels::decode_signs(context_.compute, out + piece.begin, piece.numel,
                          words_at(layout, sent_, piece.server, piece),
                          scale_at(layout, sent_, piece.server, piece.scale));
}

}  // namespace tessera::zero::detail
