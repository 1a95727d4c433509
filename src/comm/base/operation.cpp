#include "base/operation.hpp"

#include "tessera/core/error.hpp"

namespace tessera::comm::detail {

char const* name_of(Kind kind) {
  static constexpr char const* names[] = {
      "broadcast",  "all_reduce", "reduce", "reduce_scatter", "all_gather", "scatter", "gather",
      "all_to_all", "all_to_all", "send",   "receive",        "split",      "barrier", "allocate"};
  return names[static_cast<std::size_t>(kind)];
}

std::string describe(Operation const& o) {
  std::string text = concat(name_of(o.kind), " number ", o.sequence);
  if (o.group[0] != 0) text += concat(" of ", o.group.data());
  if (o.kind == Kind::barrier || o.kind == Kind::split) return text;
  if (o.kind == Kind::allocate) return concat(text, " (", o.bytes(), " bytes)");
  bool const by_shards = o.kind == Kind::reduce_scatter || o.kind == Kind::all_gather;
  text += concat(" (", o.numel, " ", tessera::name_of(o.dtype), " elements, ", o.bytes(),
                 " bytes per rank");
  if (by_shards && (o.offset != 0 || o.stride != o.numel))
    text += concat(", stride ", o.stride, ", offset ", o.offset);
  if (o.kind == Kind::all_reduce || o.kind == Kind::reduce)
    text += o.op == ReduceOp::sum ? ", sum" : o.op == ReduceOp::max ? ", max" : ", min";
  if (o.root >= 0)
    text += concat(o.kind == Kind::send      ? ", to group rank "
                   : o.kind == Kind::receive ? ", from group rank "
                                             : ", root ",
                   o.root);
  return text + ")";
}

bool shards_fit(StridedShards const& s, int ranks, std::int64_t numel) {
  bool const in_order =
      s.count >= 0 && s.offset >= 0 && (s.count + s.offset <= s.stride || ranks == 1);
  return in_order && (ranks - 1) * s.stride + s.offset + s.count <= numel;
}

std::string describe(StridedShards const& s, int ranks) {
  return concat("the shards of ", ranks, " ranks (offset ", s.offset, " + count ", s.count,
                " within stride ", s.stride, ")");
}

void require_parts(Operation const& o, Parts const& parts, int ranks, std::int64_t numel) {
  auto const n = static_cast<std::size_t>(ranks);
  bool fit = parts.counts.size() == n && parts.offsets.size() == n;
  for (std::size_t q = 0; fit && q < n; ++q)
    fit = parts.counts[q] >= 0 && parts.offsets[q] >= 0 &&
          parts.offsets[q] + parts.counts[q] <= numel;
  TESSERA_VALIDATE(fit, InternalError, describe(o), ": there must be ", ranks,
                   " parts, each within ", numel, " elements");
}

}  // namespace tessera::comm::detail
