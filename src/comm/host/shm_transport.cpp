#include "host/shm_transport.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "host/process_transport.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"

namespace tessera::comm::detail {
namespace {

/// Word that the other ranks read from rank 0's memory to check whether ranks can access each
/// other's memory.
constexpr std::uint64_t first_word = 0x7465737365726121u;

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Maps the control segment on all ranks, by MPI calls. Mapped on no rank when one rank fails.
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

std::unique_ptr<ShmTransport> ShmTransport::try_make(std::unique_ptr<MpiComm>& comm,
                                                     GroupMembers& members,
                                                     topology::MpiSession const& session,
                                                     Deadline deadline, PathLimits const& limits) {
  if (members.by_node.size() != 1) return nullptr;
  Mapping mapping = map_control(*comm);
  if (!mapping.data()) {
    log::warning(
        "the ranks of this node cannot map each other's memory (separate PID namespaces, or "
        "memfd_create is not permitted); they communicate through MPI, which is slower");
    return nullptr;
  }
  return std::unique_ptr<ShmTransport>(new ShmTransport(
      std::move(comm), std::move(members), std::move(mapping), session, deadline, limits));
}

ShmTransport::ShmTransport(std::unique_ptr<MpiComm> comm, GroupMembers members, Mapping mapping,
                           topology::MpiSession const& session, Deadline deadline,
                           PathLimits const& limits)
    : ProcessTransport(std::move(comm), std::move(members), session, deadline,
                       NodeTransport::automatic),
      group_{rank(), size(), {}},
      control_(std::move(mapping), group_, this->members().peers, *this, deadline,
               session.ranks_have_own_cores() ? Waiting::poll : Waiting::yield),
      allocator_(control_, this->members().peers, group_),
      limits_(limits) {}

void ShmTransport::abandon() {
  Transport::abandon();
  control_.leave();
}

int ShmTransport::access_words(int q) const {
  PeerAddress const words = control_.posted(q).memory;
  std::uint64_t theirs = 0;
  int const error = read_peer_memory(words, reinterpret_cast<std::byte*>(&theirs), sizeof theirs);
  if (error != 0) return error;
  // another process of this namespace may have that number
  if (theirs != first_word + to_size(q)) return ESRCH;
  std::uint64_t const& own = words_.front();
  return write_peer_memory({words.pid, words.address + (to_size(group_.rank) + 1) * sizeof own},
                           reinterpret_cast<std::byte const*>(&own), sizeof own);
}

bool ShmTransport::can_access_peers(Operation const& o) {
  if (can_access_peers_) return *can_access_peers_;
  words_.assign(to_size(group_.size) + 1, 0);
  words_.front() = first_word + to_size(group_.rank);
  PostedOperation own;
  own.operation = o;
  own.memory = address_in_this_process(words_.data());
  control_.post(own);
  for (int q = 0; q < group_.size && own.status == 0; ++q) own.status = access_words(q);
  control_.post(own);
  int error = 0;
  for (int q = 0; q < group_.size; ++q)
    if (error == 0) error = control_.posted(q).status;
  if (error != 0 && group_.rank == 0)
    log::info(
        concat("the ranks of this node cannot access each other's private memory "
               "(process_vm_readv, process_vm_writev: ",
               std::strerror(error),
               "); collectives copy it twice, but not memory that the engine shares"));
  can_access_peers_ = error == 0;
  return *can_access_peers_;
}

void ShmTransport::fail(Operation const& o, char const* access, int q, std::size_t bytes,
                        int error) {
  control_.synchronize(o);  // throws when the peer has ended
  throw InternalError(concat(describe(o), ": ", access, " ", bytes, " bytes of ",
                             members().peers.describe(q), " failed: ", std::strerror(error)));
}

bool ShmTransport::post_source(Operation const& o, Source const& source) {
  std::size_t const staged = o.kind == Kind::all_reduce ? limits_.staged_reduction : limits_.staged;
  bool const reads_private = source.reach == Reach::any &&
                             to_size(source.shards) * o.bytes() > staged && can_access_peers(o);
  PostedOperation own;
  own.operation = o;
  if (source.data) {
    if (auto const position = allocator_.heap().find(source.data))
      own.segment = position->number, own.offset_bytes = position->offset_bytes;
    else if (reads_private)
      own.memory = address_in_this_process(source.data);
  }
  control_.post(own);
  for (int q = 0; q < group_.size; ++q) {
    auto const& a = control_.posted(q);
    if (provides(source, q) && a.segment < 0 && a.memory.address == 0) return false;
  }
  return true;
}

ShmTransport::Chunk ShmTransport::direct_chunk(Operation const& o) const {
  Chunk chunk{0, o.numel, std::vector<std::byte const*>(to_size(group_.size), nullptr),
              to_size(o.stride) * o.element_bytes(), std::vector<char>(to_size(group_.size), 0)};
  for (int q = 0; q < group_.size; ++q) {
    auto const& a = control_.posted(q);
    if (a.segment >= 0)
      chunk.base[to_size(q)] = allocator_.heap().peer_address(q, {a.segment, a.offset_bytes});
    else
      chunk.base[to_size(q)] = reinterpret_cast<std::byte const*>(a.memory.address);
    chunk.is_private[to_size(q)] = a.segment < 0 && q != group_.rank;
  }
  return chunk;
}

void ShmTransport::copy(Operation const& o, Part const& from, std::byte* to, std::size_t bytes) {
  int const q = from.private_to;
  if (q < 0) return copy_bytes(to, from.data, bytes);
  PeerAddress address = control_.posted(q).memory;
  address.address = reinterpret_cast<std::uintptr_t>(from.data);
  int const error = read_peer_memory(address, to, bytes);
  if (error != 0) fail(o, "reading", q, bytes, error);
}

/// Private memory is copied tile by tile into the second-level cache and reduced there.
void ShmTransport::reduce(Operation const& o, std::vector<Part> const& parts, std::int64_t count,
                          Target const& target) {
  auto const is_private = [](Part const& part) { return part.private_to >= 0; };
  bool const direct = std::none_of(parts.begin(), parts.end(), is_private);
  std::int64_t const tile =
      direct ? count : static_cast<std::int64_t>(limits_.copied_tile / o.element_bytes());
  if (!direct) copies_.resize(parts.size() * limits_.copied_tile);
  std::vector<std::byte const*> sources(parts.size());
  for (std::int64_t first = 0; first < count; first += tile) {
    std::int64_t const n = std::min(tile, count - first);
    std::size_t const at = to_size(first) * o.element_bytes();
    for (std::size_t q = 0; q < parts.size(); ++q) {
      sources[q] = parts[q].data + at;
      if (!is_private(parts[q])) continue;
      std::byte* const here = copies_.data() + q * limits_.copied_tile;
      copy(o, {sources[q], parts[q].private_to}, here, to_size(n) * o.element_bytes());
      sources[q] = here;
    }
    reduce_arrays(
        o.op, o.dtype, sources, n,
        {target.data + to_size(first) * size_of(target.dtype), target.dtype, target.mode});
  }
}

/// Copies this rank's part into a staging half. The peers' parts are readable after the next phase.
ShmTransport::Chunk ShmTransport::stage(Operation const& o, Source const& source,
                                        std::int64_t first, std::int64_t count) {
  int const half = control_.next_half();
  Chunk chunk{first, count, {}, to_size(count) * o.element_bytes(), {}};
  for (int q = 0; q < group_.size; ++q) chunk.base.push_back(control_.staging(Rank(q), half));
  if (!source.data || !provides(source, group_.rank)) return chunk;
  for (std::int64_t s = 0; s < source.shards; ++s) {
    std::byte const* const from =
        source.data + to_size(s * source.stride + first) * o.element_bytes();
    copy_bytes(control_.staging(Rank(group_.rank), half) + to_size(s) * chunk.stride_bytes, from,
               chunk.stride_bytes);
  }
  return chunk;
}

template <class Consume>
void ShmTransport::exchange(Operation const& o, Source const& source, Consume&& consume) {
  std::size_t const bytes_of_element = to_size(source.shards) * o.element_bytes();
  if (to_size(o.numel) * bytes_of_element <= limits_.small) {
    Chunk const chunk = stage(o, source, 0, o.numel);
    (void)post_source(o, {});
    return consume(chunk);
  }
  if (post_source(o, source)) {
    consume(direct_chunk(o));
    return control_.synchronize(o);
  }
  auto const max_numel = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(NodeControl::half_bytes / bytes_of_element));
  for (std::int64_t first = 0; first < o.numel; first += max_numel) {
    Chunk const chunk = stage(o, source, first, std::min(max_numel, o.numel - first));
    control_.synchronize(o);
    consume(chunk);
  }
}

/// Readers copy the first part of the root's data while the root writes the rest to each of them:
/// of N ranks every one moves (N - 1) / N of the data, and none waits for the others' copies.
void ShmTransport::broadcast_from_both(Operation const& o, std::byte* data) {
  PostedOperation own;
  own.operation = o;
  own.memory = address_in_this_process(data);
  if (auto const position = allocator_.heap().find(data))
    own.segment = position->number, own.offset_bytes = position->offset_bytes;
  control_.post(own);
  constexpr std::size_t line = 64;
  std::size_t const written = o.bytes() / to_size(group_.size) / line * line,
                    read = o.bytes() - written;
  if (group_.rank != o.root)
    copy(o, direct_chunk(o).part(o.root), data, read);
  else
    for (int i = 1; i < group_.size; ++i) {
      int const q = (o.root + i) % group_.size;
      PeerAddress const to = control_.posted(q).memory;
      int const error = write_peer_memory({to.pid, to.address + read}, data + read, written);
      if (error != 0) fail(o, "writing", q, written, error);
    }
  control_.synchronize(o);
}

void ShmTransport::broadcast(Operation const& o, std::byte* data) {
  bool const large = o.bytes() > limits_.read_broadcast;
  if (large && can_access_peers(o)) return broadcast_from_both(o, data);
  exchange(o, {data, 1, 0, o.root, Reach::any}, [&](Chunk const& c) {
    if (group_.rank != o.root)
      copy(o, c.part(o.root), data + to_size(c.first) * o.element_bytes(),
           to_size(c.count) * o.element_bytes());
  });
}

void ShmTransport::reduce(Operation const& o, std::byte* data) {
  exchange(o, {data, 1, 0, -1, Reach::any}, [&](Chunk const& c) {
    if (group_.rank == o.root)
      reduce_slice(o, c, {0, c.count}, data + to_size(c.first) * o.element_bytes());
  });
}

void ShmTransport::reduce_scatter(Operation const& o, std::byte const* in, Target const& out) {
  Source const source{in + to_size(o.offset) * o.element_bytes(), group_.size, o.stride, -1,
                      Reach::any};
  std::vector<Part> parts(to_size(group_.size));
  exchange(o, source, [&](Chunk const& c) {
    for (int q = 0; q < group_.size; ++q) parts[to_size(q)] = c.part(q, group_.rank);
    parts[to_size(group_.rank)] = {source.data +
                                   to_size(group_.rank * o.stride + c.first) * o.element_bytes()};
    reduce(o, parts, c.count,
           {out.data + to_size(c.first) * size_of(out.dtype), out.dtype, out.mode});
  });
}

void ShmTransport::all_gather(Operation const& o, std::byte const* in, std::byte* out) {
  auto const address = [&](int q) {
    return out + to_size(q * o.stride + o.offset) * o.element_bytes();
  };
  exchange(o, {in ? in : address(group_.rank), 1, 0, -1, Reach::any}, [&](Chunk const& c) {
    std::size_t const at = to_size(c.first) * o.element_bytes(),
                      bytes = to_size(c.count) * o.element_bytes();
    for (int i = 1; i < group_.size; ++i) {  // every rank starts with another peer
      int const q = (group_.rank + i) % group_.size;
      copy(o, c.part(q), address(q) + at, bytes);
    }
    if (in) copy_bytes(address(group_.rank) + at, in + at, bytes);
  });
}

void ShmTransport::scatter(Operation const& o, std::byte const* in, std::byte* out) {
  Operation shards = o;
  shards.stride = o.numel;
  exchange(shards, {group_.rank == o.root ? in : nullptr, group_.size, o.numel, o.root, Reach::any},
           [&](Chunk const& c) {
             copy(shards, c.part(o.root, group_.rank), out + to_size(c.first) * o.element_bytes(),
                  to_size(c.count) * o.element_bytes());
           });
}

void ShmTransport::gather(Operation const& o, std::byte const* in, std::byte* out) {
  exchange(o, {in, 1, 0, -1, Reach::any}, [&](Chunk const& c) {
    for (int q = 0; group_.rank == o.root && q < group_.size; ++q)
      copy(o, c.part(q), out + to_size(q * o.numel + c.first) * o.element_bytes(),
           to_size(c.count) * o.element_bytes());
  });
}

void ShmTransport::all_to_all(Operation const& o, std::byte const* in, std::byte* out) {
  Operation parts = o;
  parts.stride = o.numel;
  exchange(parts, {in, group_.size, o.numel, -1}, [&](Chunk const& c) {
    for (int i = 0; i < group_.size; ++i) {
      int const q = (group_.rank + i) % group_.size;
      copy_bytes(out + to_size(q * o.numel + c.first) * o.element_bytes(),
                 c.shard_of(q, group_.rank), to_size(c.count) * o.element_bytes());
    }
  });
}

void ShmTransport::reduce_slice(Operation const& o, Chunk const& chunk, Slice slice,
                                std::byte* to) {
  std::vector<Part> parts;
  for (int q = 0; q < group_.size; ++q)
    parts.push_back(chunk.part(q, 0, to_size(slice.begin) * o.element_bytes()));
  reduce(o, parts, slice.count, {to, o.dtype});
}

/// Copies the slice that each rank has reduced.
void ShmTransport::copy_slices(Operation const& o, Chunk const& chunk, std::byte* to) {
  for (int i = 0; i < group_.size; ++i) {
    int const q = (group_.rank + i) % group_.size;
    Slice const slice = slice_of(chunk.count, group_.size, Rank(q));
    std::size_t const at = to_size(slice.begin) * o.element_bytes();
    copy(o, chunk.part(q, 0, at), to + at, to_size(slice.count) * o.element_bytes());
  }
}

void ShmTransport::all_reduce(Operation const& o, std::byte* data) {
  if (o.bytes() <= limits_.small_reduction) return reduce_small(o, data);
  bool const staged = o.bytes() <= limits_.staged_shared_reduction;
  Source const source{staged ? nullptr : data, 1, 0, -1, Reach::any};
  if (post_source(o, source)) return reduce_direct(o, data);
  reduce_staged(o, data);
}

/// Every rank reduces all elements: one phase.
void ShmTransport::reduce_small(Operation const& o, std::byte* data) {
  Chunk const chunk = stage(o, {data, 1, 0, -1}, 0, o.numel);
  (void)post_source(o, {});
  reduce_slice(o, chunk, {0, o.numel}, data);
}

/// Each rank reduces its slice of all ranks' data in place, then copies the peers' slices, chunk by
/// chunk.
void ShmTransport::reduce_direct(Operation const& o, std::byte* data) {
  auto const max_numel = static_cast<std::int64_t>(limits_.reduced_chunk / o.element_bytes());
  Chunk chunk = direct_chunk(o);
  chunk.base[to_size(group_.rank)] = data;
  for (std::int64_t first = 0; first < o.numel; first += max_numel) {
    chunk.count = std::min(max_numel, o.numel - first);
    std::byte* const here = data + to_size(first) * o.element_bytes();
    Slice const own = slice_of(chunk.count, group_.size, Rank(group_.rank));
    reduce_slice(o, chunk, own, here + to_size(own.begin) * o.element_bytes());
    control_.synchronize(o);
    copy_slices(o, chunk, here);
    for (auto& base : chunk.base) base += to_size(chunk.count) * o.element_bytes();
  }
  control_.synchronize(o);
}

/// Reduces like reduce_direct(), but through staging halves, from which a rank's peers read its
/// data of their slices and the result of its own.
void ShmTransport::reduce_staged(Operation const& o, std::byte* data) {
  auto const max_numel = static_cast<std::int64_t>(NodeControl::half_bytes / o.element_bytes());
  for (std::int64_t first = 0; first < o.numel; first += max_numel) {
    std::int64_t const count = std::min(max_numel, o.numel - first);
    std::byte* const here = data + to_size(first) * o.element_bytes();
    Chunk chunk = stage(o, {}, first, count);
    std::byte* const half = const_cast<std::byte*>(chunk.shard_of(group_.rank));
    chunk.base[to_size(group_.rank)] = here;
    Slice const own = slice_of(count, group_.size, Rank(group_.rank));
    std::size_t const begin = to_size(own.begin) * o.element_bytes(),
                      bytes = to_size(own.count) * o.element_bytes(), end = begin + bytes;
    copy_bytes(half, here, begin);
    copy_bytes(half + end, here + end, to_size(count) * o.element_bytes() - end);
    control_.synchronize(o);
    reduce_slice(o, chunk, own, here + begin);
    copy_bytes(half + begin, here + begin, bytes);
    control_.synchronize(o);
    copy_slices(o, chunk, here);
  }
}

void ShmTransport::barrier(Operation const& o) {
  PostedOperation own;
  own.operation = o;
  control_.post(own);
}

}  // namespace tessera::comm::detail
