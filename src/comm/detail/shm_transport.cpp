#include "detail/shm_transport.hpp"

#include <algorithm>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"

namespace tessera::comm::detail {
namespace {

/// Up to here one phase, with the data in the staging half from the start, is quicker than reading
/// it in place.
constexpr std::size_t small_bytes = std::size_t{16} << 10;

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// The control segment, set up by MPI calls; not mapped on any rank when one cannot map it.
Mapping map_control(MpiComm const& comm) {
  std::size_t const bytes = NodeControl::file_bytes(comm.size());
  SharedFile file = comm.rank() == 0 ? SharedFile::create(bytes) : SharedFile();
  SharedFileAddress address = file.address();
  std::lock_guard const lock(mpi_mutex());
  MPI_Bcast(&address, sizeof address, MPI_BYTE, 0, comm.get());
  if (comm.rank() != 0) file = SharedFile::open(address);
  Mapping mapping = file.is_open() ? Mapping(file, bytes, Access::read_write) : Mapping();
  int ok = mapping.data() != nullptr ? 1 : 0, all_ok = 0;
  MPI_Allreduce(&ok, &all_ok, 1, MPI_INT, MPI_MIN, comm.get());
  return all_ok ? std::move(mapping) : Mapping();
}

}  // namespace

std::unique_ptr<ShmTransport> ShmTransport::try_make(topology::MpiSession const& session,
                                                     Deadline deadline) {
  auto const& info = session.info();
  if (info.local_size != info.world_size) return nullptr;
  MpiComm const comm(session.world());
  PeerLiveness peers = watch_peers(comm, session);
  Mapping mapping = map_control(comm);
  if (!mapping.data()) {
    log::warning(
        "the ranks of this node cannot map each other's memory (separate process namespaces, or "
        "memfd_create is not allowed); they communicate through MPI, which is slower");
    return nullptr;
  }
  return std::unique_ptr<ShmTransport>(
      new ShmTransport(std::move(peers), std::move(mapping), comm.rank(), comm.size(), deadline));
}

ShmTransport::ShmTransport(PeerLiveness peers, Mapping mapping, int rank, int size,
                           Deadline deadline)
    : peers_(std::move(peers)),
      rank_(rank),
      size_(size),
      control_(std::move(mapping), rank, size, peers_, *this, deadline),
      allocator_(control_, peers_, rank, size) {}

void ShmTransport::abandon() {
  Transport::abandon();
  control_.leave();
}

/// True when every rank's source can be read in place.
bool ShmTransport::announce_source(Operation const& o, Source const& source) {
  Announcement own;
  own.operation = o;
  if (source.data) {
    if (auto const position = allocator_.heap().find(source.data))
      own.segment = position->number, own.offset = position->offset;
  }
  control_.announce(own);
  for (int q = 0; q < size_; ++q)
    if (provides(source, q) && control_.announced(q).segment < 0) return false;
  return true;
}

ShmTransport::Piece ShmTransport::direct_piece(Operation const& o) const {
  Piece piece{0, o.numel, std::vector<std::byte const*>(to_size(size_), nullptr),
              to_size(o.stride) * o.element()};
  for (int q = 0; q < size_; ++q) {
    auto const& a = control_.announced(q);
    if (a.segment >= 0)
      piece.base[to_size(q)] = allocator_.heap().of_rank(q, {a.segment, a.offset});
  }
  return piece;
}

/// Copies this rank's part into a staging half; the peers' can be read after the phase that
/// follows.
ShmTransport::Piece ShmTransport::stage(Operation const& o, Source const& source,
                                        std::int64_t first, std::int64_t count) {
  int const half = control_.next_half();
  Piece piece{first, count, {}, to_size(count) * o.element()};
  for (int q = 0; q < size_; ++q) piece.base.push_back(control_.staging(q, half));
  if (!source.data || !provides(source, rank_)) return piece;
  for (std::int64_t b = 0; b < source.blocks; ++b) {
    std::byte const* const from = source.data + to_size(b * source.stride + first) * o.element();
    copy_bytes(control_.staging(rank_, half) + to_size(b) * piece.block_bytes, from,
               piece.block_bytes);
  }
  return piece;
}

template <class Consume>
void ShmTransport::exchange(Operation const& o, Source const& source, Consume&& consume) {
  std::size_t const row =
      to_size(source.blocks) * o.element();  // staged bytes per element of a block
  if (to_size(o.numel) * row <= small_bytes) {
    Piece const piece = stage(o, source, 0, o.numel);
    (void)announce_source(o, {});
    return consume(piece);
  }
  if (announce_source(o, source)) {
    consume(direct_piece(o));
    return control_.synchronise(o);
  }
  auto const most =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(NodeControl::half_bytes / row));
  for (std::int64_t first = 0; first < o.numel; first += most) {
    Piece const piece = stage(o, source, first, std::min(most, o.numel - first));
    control_.synchronise(o);
    consume(piece);
  }
}

void ShmTransport::broadcast(Operation const& o, std::byte* data) {
  exchange(o, {data, 1, 0, o.root}, [&](Piece const& p) {
    if (rank_ != o.root)
      copy_bytes(data + to_size(p.first) * o.element(), p.at(o.root),
                 to_size(p.count) * o.element());
  });
}

void ShmTransport::reduce(Operation const& o, std::byte* data) {
  exchange(o, {data, 1, 0, -1}, [&](Piece const& p) {
    if (rank_ == o.root) reduce_slice(o, p, {0, p.count}, data + to_size(p.first) * o.element());
  });
}

void ShmTransport::reduce_scatter(Operation const& o, std::byte const* in, Target const& out) {
  Source const source{in + to_size(o.offset) * o.element(), size_, o.stride, -1};
  std::vector<std::byte const*> parts(to_size(size_));
  exchange(o, source, [&](Piece const& p) {
    for (int q = 0; q < size_; ++q) parts[to_size(q)] = p.at(q, rank_);
    parts[to_size(rank_)] = source.data + to_size(rank_ * o.stride + p.first) * o.element();
    reduce_arrays(ReduceOp::sum, o.dtype, parts, p.count,
                  {out.data + to_size(p.first) * size_of(out.dtype), out.dtype, out.accumulate});
  });
}

void ShmTransport::all_gather(Operation const& o, std::byte const* in, std::byte* out) {
  auto const place = [&](int q) { return out + to_size(q * o.stride + o.offset) * o.element(); };
  exchange(o, {in ? in : place(rank_), 1, 0, -1}, [&](Piece const& p) {
    std::size_t const at = to_size(p.first) * o.element(), bytes = to_size(p.count) * o.element();
    for (int i = 1; i < size_; ++i) {  // every rank starts at another one
      int const q = (rank_ + i) % size_;
      copy_bytes(place(q) + at, p.at(q), bytes);
    }
    if (in) copy_bytes(place(rank_) + at, in + at, bytes);
  });
}

void ShmTransport::scatter(Operation const& o, std::byte const* in, std::byte* out) {
  Operation blocks = o;
  blocks.stride = o.numel;
  exchange(blocks, {rank_ == o.root ? in : nullptr, size_, o.numel, o.root}, [&](Piece const& p) {
    copy_bytes(out + to_size(p.first) * o.element(), p.at(o.root, rank_),
               to_size(p.count) * o.element());
  });
}

void ShmTransport::gather(Operation const& o, std::byte const* in, std::byte* out) {
  exchange(o, {in, 1, 0, -1}, [&](Piece const& p) {
    for (int q = 0; rank_ == o.root && q < size_; ++q)
      copy_bytes(out + to_size(q * o.numel + p.first) * o.element(), p.at(q),
                 to_size(p.count) * o.element());
  });
}

void ShmTransport::reduce_slice(Operation const& o, Piece const& piece, Slice slice,
                                std::byte* to) const {
  std::vector<std::byte const*> parts;
  for (auto const* base : piece.base) parts.push_back(base + to_size(slice.begin) * o.element());
  reduce_arrays(o.op, o.dtype, parts, slice.count, {to, o.dtype, false});
}

/// The slices that the ranks have reduced, each from its rank.
void ShmTransport::copy_slices(Operation const& o, Piece const& piece, std::byte* to) const {
  for (int i = 0; i < size_; ++i) {
    int const q = (rank_ + i) % size_;
    Slice const slice = slice_of(piece.count, size_, q);
    std::size_t const at = to_size(slice.begin) * o.element();
    copy_bytes(to + at, piece.at(q) + at, to_size(slice.count) * o.element());
  }
}

void ShmTransport::all_reduce(Operation const& o, std::byte* data) {
  if (o.bytes() <= small_bytes) return reduce_small(o, data);
  if (announce_source(o, {data, 1, 0, -1})) return reduce_direct(o, data);
  reduce_staged(o, data);
}

/// Every rank reduces everything: one phase.
void ShmTransport::reduce_small(Operation const& o, std::byte* data) {
  exchange(o, {data, 1, 0, -1}, [&](Piece const& p) { reduce_slice(o, p, {0, p.count}, data); });
}

/// Each rank reduces its slice of all ranks' data in place, then copies the peers' slices.
void ShmTransport::reduce_direct(Operation const& o, std::byte* data) {
  Piece piece = direct_piece(o);
  piece.base[to_size(rank_)] = data;
  Slice const own = slice_of(o.numel, size_, rank_);
  reduce_slice(o, piece, own, data + to_size(own.begin) * o.element());
  control_.synchronise(o);
  copy_slices(o, piece, data);
  control_.synchronise(o);
}

/// The same in staging halves, piece by piece.
void ShmTransport::reduce_staged(Operation const& o, std::byte* data) {
  auto const most = static_cast<std::int64_t>(NodeControl::half_bytes / o.element());
  for (std::int64_t first = 0; first < o.numel; first += most) {
    std::int64_t const count = std::min(most, o.numel - first);
    Piece const piece = stage(o, {data, 1, 0, -1}, first, count);
    control_.synchronise(o);
    Slice const own = slice_of(count, size_, rank_);
    std::byte* const half = const_cast<std::byte*>(piece.at(rank_));
    reduce_slice(o, piece, own, half + to_size(own.begin) * o.element());
    control_.synchronise(o);
    copy_slices(o, piece, data + to_size(first) * o.element());
  }
}

void ShmTransport::barrier(Operation const& o) {
  Announcement own;
  own.operation = o;
  control_.announce(own);
}

}  // namespace tessera::comm::detail
