#include "fake_launch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tessera/core/dtype.hpp"

namespace tessera::test {
namespace {

using GiveUp = std::atomic<bool> const;

/// What a rank calls, for the others to compare. One card holds the calls of a group.
struct Card {
  std::uint64_t number;
  int calls, registered;
  struct {
    int kind, type, op, peer;
    std::size_t count;
    std::int64_t send_at, receive_at;
  } call[100];
};
static_assert(sizeof(Card) <= Exchange::card_bytes);

Card& card(Exchange& x, int rank) { return *reinterpret_cast<Card*>(x.card(rank)); }
bool is_message(int kind) {
  return kind == static_cast<int>(NcclKind::send) || kind == static_cast<int>(NcclKind::receive);
}

template <class F>
void with_type(ncclDataType_t type, F&& f) {
  switch (type) {
    case ncclFloat16:
      return f(float16{});
    case ncclBfloat16:
      return f(bfloat16{});
    case ncclFloat64:
      return f(double{});
    case ncclInt32:
      return f(std::int32_t{});
    case ncclInt64:
      return f(std::int64_t{});
    case ncclUint8:
      return f(std::uint8_t{});
    default:
      return f(float{});
  }
}

template <class T>
T combined(T a, T b, ncclRedOp_t op) {
  if constexpr (std::is_integral_v<T>) {
    if (op == ncclSum)
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                            static_cast<std::make_unsigned_t<T>>(b));
    return op == ncclMax ? std::max(a, b) : std::min(a, b);
  } else if constexpr (std::is_same_v<T, double>) {
    return op == ncclSum ? a + b : op == ncclMax ? std::fmax(a, b) : std::fmin(a, b);
  } else {
    auto const x = static_cast<float>(a), y = static_cast<float>(b);
    return T(op == ncclSum ? x + y : op == ncclMax ? std::fmax(x, y) : std::fmin(x, y));
  }
}

/// op over ranks [from, from + width) of element i of their pieces, in the order of the host's
/// transports: a binary tree. @param width power of two; ranks beyond the last are left out
template <class T>
T combined_pieces(Exchange const& x, int from, int width, std::size_t i, ncclRedOp_t op) {
  if (width == 1) return reinterpret_cast<T const*>(x.piece(from))[i];
  int const half = width / 2;
  T const first = combined_pieces<T>(x, from, half, i, op);
  return from + half < x.ranks()
             ? combined(first, combined_pieces<T>(x, from + half, half, i, op), op)
             : first;
}

/// to[i] = op over ranks of their piece's element i.
void combine_pieces(Exchange const& x, std::byte* to, std::size_t n, ncclDataType_t type,
                    ncclRedOp_t op) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    int const width = static_cast<int>(std::bit_ceil(static_cast<unsigned>(x.ranks())));
    for (std::size_t i = 0; i < n; ++i)
      reinterpret_cast<T*>(to)[i] = combined_pieces<T>(x, 0, width, i, op);
  });
}

std::byte const* bytes_of(void const* data) { return static_cast<std::byte const*>(data); }
std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

/// @param to null: not wanted here
bool reduce(Exchange& x, GiveUp& give_up, void const* from, void* to, NcclCall const& c) {
  std::size_t const each = Exchange::piece_bytes / size_of(c.type);
  for (std::size_t at = 0; at < c.count; at += each) {
    std::size_t const n = std::min(each, c.count - at), begin = at * size_of(c.type);
    std::memcpy(x.piece(x.rank()), bytes_of(from) + begin, n * size_of(c.type));
    if (!x.meet(give_up)) return false;
    if (to) combine_pieces(x, bytes_of(to) + begin, n, c.type, c.op);
    if (!x.meet(give_up)) return false;
  }
  return true;
}

/// @param to null: not wanted here
bool spread(Exchange& x, GiveUp& give_up, void const* from, void* to, std::size_t bytes, int root) {
  for (std::size_t at = 0; at < bytes; at += Exchange::piece_bytes) {
    std::size_t const n = std::min(Exchange::piece_bytes, bytes - at);
    if (x.rank() == root) std::memcpy(x.piece(root), bytes_of(from) + at, n);
    if (!x.meet(give_up)) return false;
    if (to && (x.rank() != root || to != from)) std::memcpy(bytes_of(to) + at, x.piece(root), n);
    if (!x.meet(give_up)) return false;
  }
  return true;
}

bool collective(Exchange& x, GiveUp& give_up, NcclCall const& c) {
  std::size_t const bytes = c.count * size_of(c.type);
  bool done = true;
  switch (c.kind) {
    case NcclKind::broadcast:
      return spread(x, give_up, c.send, c.receive, bytes, c.peer);
    case NcclKind::all_reduce:
      return reduce(x, give_up, c.send, c.receive, c);
    case NcclKind::reduce:
      return reduce(x, give_up, c.send, x.rank() == c.peer ? c.receive : nullptr, c);
    case NcclKind::reduce_scatter:
      for (int r = 0; done && r < x.ranks(); ++r)
        done = reduce(x, give_up, bytes_of(c.send) + static_cast<std::size_t>(r) * bytes,
                      x.rank() == r ? c.receive : nullptr, c);
      return done;
    case NcclKind::all_gather:
      for (int r = 0; done && r < x.ranks(); ++r)
        done = spread(x, give_up, c.send, bytes_of(c.receive) + static_cast<std::size_t>(r) * bytes,
                      bytes, r);
      return done;
    default:
      return false;
  }
}

/// The k-th message from rank a to rank b, on the card of one of the two; -1: there is none.
int find_message(Card const& on, NcclKind kind, int other, int k) {
  for (int i = 0; i < on.calls; ++i)
    if (on.call[i].kind == static_cast<int>(kind) && on.call[i].peer == other && k-- == 0) return i;
  return -1;
}

/// Every message of the group, in an order that all ranks know.
bool messages(Exchange& x, GiveUp& give_up, NcclLaunch const& launch,
              std::vector<Card> const& cards, std::string& wrong) {
  for (int a = 0; a < x.ranks(); ++a) {
    for (int b = 0; b < x.ranks(); ++b) {
      for (int k = 0;; ++k) {
        auto const& from = cards[static_cast<std::size_t>(a)];
        auto const& to = cards[static_cast<std::size_t>(b)];
        int const sent = find_message(from, NcclKind::send, b, k),
                  taken = find_message(to, NcclKind::receive, a, k);
        if (sent < 0 && taken < 0) break;
        if (sent < 0 || taken < 0 || from.call[sent].count != to.call[taken].count ||
            from.call[sent].type != to.call[taken].type) {
          wrong = "a send and its receive do not match";
          return false;
        }
        void const* const data =
            x.rank() == a ? launch.calls[static_cast<std::size_t>(sent)].send : nullptr;
        void* const out =
            x.rank() == b ? launch.calls[static_cast<std::size_t>(taken)].receive : nullptr;
        if (!spread(
                x, give_up, data, out,
                from.call[sent].count * size_of(static_cast<ncclDataType_t>(from.call[sent].type)),
                a))
          return false;
      }
    }
  }
  return true;
}

void write_card(Exchange& x, NcclLaunch const& launch) {
  Card& mine = card(x, x.rank());
  mine = {launch.number, static_cast<int>(launch.calls.size()), launch.registered ? 1 : 0, {}};
  for (std::size_t i = 0; i < launch.calls.size(); ++i) {
    auto const& c = launch.calls[i];
    mine.call[i] = {
        static_cast<int>(c.kind), c.type, c.op, c.peer, c.count, c.send_at, c.receive_at};
  }
}

/// NCCL_WIN_COLL_SYMMETRIC: every rank passes the same place of the same window.
bool symmetric(Card const& a, Card const& b) {
  auto const differ = [](std::int64_t x, std::int64_t y) { return x >= 0 && y >= 0 && x != y; };
  for (int i = 0; i < a.calls; ++i)
    if (differ(a.call[i].send_at, b.call[i].send_at) ||
        differ(a.call[i].receive_at, b.call[i].receive_at))
      return false;
  return true;
}

/// Whether ranks call different operations. Places in windows are compared elsewhere.
bool different_calls(Card const& a, Card const& b) {
  for (int i = 0; i < a.calls; ++i) {
    auto const &x = a.call[i], &y = b.call[i];
    if (x.kind != y.kind || x.type != y.type || x.op != y.op || x.peer != y.peer ||
        x.count != y.count)
      return true;
  }
  return false;
}

/// What is different between the ranks' calls; empty: nothing.
std::string difference(std::vector<Card> const& cards) {
  for (auto const& other : cards) {
    auto const& first = cards[0];
    if (other.number != first.number)
      return "ranks start operations of several communicators in different orders";
    if (other.registered != first.registered)
      return "some ranks pass registered memory and some do not";
    bool const messages = other.calls > 0 && is_message(other.call[0].kind);
    if (messages != (first.calls > 0 && is_message(first.call[0].kind)))
      return "ranks call different operations";
    if (!messages && (other.calls != first.calls || different_calls(other, first)))
      return "ranks call different operations, sizes, types or roots";
    if (!messages && !symmetric(other, first))
      return "ranks pass different places of symmetric windows";
  }
  return {};
}

}  // namespace

std::string name_of(NcclKind kind) {
  static char const* const names[] = {"Broadcast", "AllReduce", "Reduce", "ReduceScatter",
                                      "AllGather", "Send",      "Recv"};
  return names[static_cast<int>(kind)];
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

NcclRange read_by(NcclCall const& c, int ranks, int rank) {
  std::size_t const bytes = c.count * size_of(c.type);
  if (c.kind == NcclKind::receive || (c.kind == NcclKind::broadcast && rank != c.peer)) return {};
  return {bytes_of(c.send),
          c.kind == NcclKind::reduce_scatter ? bytes * static_cast<std::size_t>(ranks) : bytes};
}

NcclRange written_by(NcclCall const& c, int ranks, int rank) {
  std::size_t const bytes = c.count * size_of(c.type);
  if (c.kind == NcclKind::send || (c.kind == NcclKind::reduce && rank != c.peer)) return {};
  return {bytes_of(c.receive),
          c.kind == NcclKind::all_gather ? bytes * static_cast<std::size_t>(ranks) : bytes};
}

bool overlap(NcclRange a, NcclRange b) {
  return a.bytes > 0 && b.bytes > 0 && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

bool placed_well(NcclCall const& c, int ranks, int rank) {
  auto const in = read_by(c, ranks, rank), out = written_by(c, ranks, rank);
  if (!overlap(in, out)) return true;
  std::size_t const block = static_cast<std::size_t>(rank) * c.count * size_of(c.type);
  switch (c.kind) {
    case NcclKind::reduce_scatter:
      return out.begin == in.begin + block;
    case NcclKind::all_gather:
      return in.begin == out.begin + block;
    default:
      return in.begin == out.begin;
  }
}

void carry_out(NcclLaunch const& launch, Exchange& x, std::atomic<bool> const& give_up,
               std::function<void(std::string)> const& breach) {
  write_card(x, launch);
  if (!x.meet(give_up)) return;
  std::vector<Card> cards;
  for (int q = 0; q < x.ranks(); ++q) cards.push_back(card(x, q));
  if (!x.meet(give_up)) return;
  std::string wrong = difference(cards);
  if (wrong.empty() && !launch.calls.empty() && is_message(static_cast<int>(launch.calls[0].kind)))
    messages(x, give_up, launch, cards, wrong);
  else if (wrong.empty())
    for (auto const& c : launch.calls)
      if (!collective(x, give_up, c)) return;
  if (!wrong.empty()) breach(wrong);
}

}  // namespace tessera::test
