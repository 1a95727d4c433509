#include "host/mpi_transport.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "host/process_transport.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::comm::detail {
namespace {

/// Bytes of the buffer that receives all ranks' contributions to a sum.
constexpr std::size_t staging_limit = std::size_t{32} << 20;
/// Up to this size an all-reduce is one all-gather of the operands, which has the lowest latency.
constexpr std::size_t small_all_reduce = std::size_t{64} << 10;

/// MPI datatype of one rank's shard: `count` elements, with an extent of `stride` elements.
class ShardType {
 public:
  ShardType(std::int64_t count, std::int64_t stride, std::size_t element) {
    std::lock_guard lock(mpi_mutex());
    MPI_Datatype contiguous = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(static_cast<int>(count * static_cast<std::int64_t>(element)), MPI_BYTE,
                        &contiguous);
    MPI_Type_create_resized(
        contiguous, 0, static_cast<MPI_Aint>(stride * static_cast<std::int64_t>(element)), &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&contiguous);
  }
  ShardType(ShardType const&) = delete;
  ShardType& operator=(ShardType const&) = delete;
  ~ShardType() {
    std::lock_guard lock(mpi_mutex());
    MPI_Type_free(&type_);
  }
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

}  // namespace

void MpiTransport::run(Operation const& o, char const* call,
                       std::function<int(MPI_Request*)> const& start) {
  try {
    calls().run(o, call, start);
  } catch (...) {
    (void)staging_.release();  // leaked: MPI may still write into it
    throw;
  }
}

void MpiTransport::sum(Operation const& o, std::vector<std::byte const*> const& sources,
                       std::int64_t numel, Target const& target) const {
  reduce_by_node(o.op, o.dtype, sources, members().by_node, numel, target);
}

std::int64_t MpiTransport::chunk_numel(Operation const& o, std::size_t limit_bytes) const {
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(limit_bytes /
                                   (static_cast<std::size_t>(size()) * o.element_bytes())));
}

std::byte* MpiTransport::staging(std::size_t bytes) {
  if (!staging_ || staging_->bytes() < bytes)
    staging_ =
        std::make_unique<memory::Buffer>("comm.mpi_staging", memory::Purpose::communication, bytes);
  return static_cast<std::byte*>(staging_->data());
}

std::shared_ptr<void> MpiTransport::allocate(Operation const& o, std::string const& name,
                                             memory::Purpose purpose) {
  std::shared_ptr<void> memory;
  std::string failure;
  try {
    memory = allocate_private(name, purpose, o.bytes());
  } catch (OutOfMemoryError const& error) {
    failure = error.what();
  }
  int const own = failure.empty() ? size() : rank();
  int first = size();
  run(o, "MPI_Iallreduce",
      [&](MPI_Request* r) { return MPI_Iallreduce(&own, &first, 1, MPI_INT, MPI_MIN, comm(), r); });
  TESSERA_VALIDATE(failure.empty(), OutOfMemoryError, failure);
  TESSERA_VALIDATE(first == size(), OutOfMemoryError, members().peers.describe(first),
                   " cannot allocate ", human_bytes(static_cast<std::int64_t>(o.bytes())), " for ",
                   name, "; see the log of that rank");
  return memory;
}

void MpiTransport::broadcast(Operation const& o, std::byte* data) {
  std::size_t const bytes = o.bytes();
  for (std::size_t at = 0; at < bytes; at += message_limit) {
    int const n = as_int(std::min(message_limit, bytes - at));
    run(o, "MPI_Ibcast",
        [&](MPI_Request* r) { return MPI_Ibcast(data + at, n, MPI_BYTE, o.root, comm(), r); });
  }
}

void MpiTransport::gather_and_reduce(Operation const& o, std::byte* data) {
  std::byte* const all = staging(o.bytes() * static_cast<std::size_t>(size()));
  int const n = as_int(o.bytes());
  run(o, "MPI_Iallgather", [&](MPI_Request* r) {
    return MPI_Iallgather(data, n, MPI_BYTE, all, n, MPI_BYTE, comm(), r);
  });
  std::vector<std::byte const*> sources;
  for (int q = 0; q < size(); ++q) sources.push_back(all + static_cast<std::size_t>(q) * o.bytes());
  sum(o, sources, o.numel, {data, o.dtype});
}

/// The transport reduces and gathers equal shards. The remainder of fewer elements than ranks is
/// padded to one element per rank, because the remainders of all ranks grow with their square.
void MpiTransport::all_reduce(Operation const& o, std::byte* data) {
  if (o.bytes() * static_cast<std::size_t>(size()) <= small_all_reduce)
    return gather_and_reduce(o, data);
  auto const reduce_shards = [this](Operation shards, std::int64_t numel, std::byte* all) {
    shards.numel = shards.stride = numel;
    reduce_scatter(shards, all,
                   {all + static_cast<std::size_t>(rank()) * shards.bytes(), shards.dtype});
    all_gather(shards, nullptr, all);
  };
  reduce_shards(o, o.numel / size(), data);
  auto const rest = static_cast<std::size_t>(o.numel % size()) * o.element_bytes();
  if (rest == 0) return;
  std::vector<std::byte> padded(static_cast<std::size_t>(size()) * o.element_bytes());
  std::memcpy(padded.data(), data + o.bytes() - rest, rest);
  reduce_shards(o, 1, padded.data());
  std::memcpy(data + o.bytes() - rest, padded.data(), rest);
}

void MpiTransport::reduce(Operation const& o, std::byte* data) {
  std::int64_t const chunk = chunk_numel(o, staging_limit);
  for (std::int64_t first = 0; first < o.numel; first += chunk) {
    std::int64_t const n = std::min(chunk, o.numel - first);
    std::size_t const bytes = static_cast<std::size_t>(n) * o.element_bytes();
    std::byte* const own = data + static_cast<std::size_t>(first) * o.element_bytes();
    std::byte* const all =
        rank() == o.root ? staging(bytes * static_cast<std::size_t>(size())) : nullptr;
    run(o, "MPI_Igather", [&](MPI_Request* r) {
      return MPI_Igather(own, as_int(bytes), MPI_BYTE, all, as_int(bytes), MPI_BYTE, o.root, comm(),
                         r);
    });
    std::vector<std::byte const*> sources;
    for (int q = 0; all && q < size(); ++q)
      sources.push_back(all + static_cast<std::size_t>(q) * bytes);
    if (all) sum(o, sources, n, {own, o.dtype});
  }
}

void MpiTransport::reduce_scatter(Operation const& o, std::byte const* in, Target const& out) {
  std::int64_t const chunk = chunk_numel(o, staging_limit);
  for (std::int64_t first = 0; first < o.numel; first += chunk) {
    std::int64_t const n = std::min(chunk, o.numel - first);
    std::size_t const bytes = static_cast<std::size_t>(n) * o.element_bytes();
    ShardType const shard(n, o.stride, o.element_bytes());
    std::byte const* const from =
        in + static_cast<std::size_t>(o.offset + first) * o.element_bytes();
    std::byte* const all = staging(bytes * static_cast<std::size_t>(size()));
    run(o, "MPI_Ialltoall", [&](MPI_Request* r) {
      return MPI_Ialltoall(from, 1, shard.get(), all, as_int(bytes), MPI_BYTE, comm(), r);
    });
    std::vector<std::byte const*> sources;
    for (int q = 0; q < size(); ++q) sources.push_back(all + static_cast<std::size_t>(q) * bytes);
    Target const to{out.data + static_cast<std::size_t>(first) * size_of(out.dtype), out.dtype,
                    out.mode};
    sum(o, sources, n, to);
  }
}

void MpiTransport::all_gather(Operation const& o, std::byte const* in, std::byte* out) {
  std::int64_t const chunk = chunk_numel(o, message_limit);
  for (std::int64_t first = 0; first < o.numel; first += chunk) {
    std::int64_t const n = std::min(chunk, o.numel - first);
    ShardType const shard(n, o.stride, o.element_bytes());
    std::byte* const to = out + static_cast<std::size_t>(o.offset + first) * o.element_bytes();
    int const bytes = as_int(static_cast<std::size_t>(n) * o.element_bytes());
    void const* const from =
        in ? static_cast<void const*>(in + static_cast<std::size_t>(first) * o.element_bytes())
           : MPI_IN_PLACE;
    run(o, "MPI_Iallgather", [&](MPI_Request* r) {
      return MPI_Iallgather(from, in ? bytes : 0, MPI_BYTE, to, 1, shard.get(), comm(), r);
    });
  }
}

void MpiTransport::scatter(Operation const& o, std::byte const* in, std::byte* out) {
  std::int64_t const chunk = chunk_numel(o, message_limit);
  for (std::int64_t first = 0; first < o.numel; first += chunk) {
    std::int64_t const n = std::min(chunk, o.numel - first);
    ShardType const shard(n, o.numel, o.element_bytes());
    std::size_t const at = static_cast<std::size_t>(first) * o.element_bytes();
    int const bytes = as_int(static_cast<std::size_t>(n) * o.element_bytes());
    run(o, "MPI_Iscatter", [&](MPI_Request* r) {
      return MPI_Iscatter(in ? in + at : nullptr, 1, shard.get(), out + at, bytes, MPI_BYTE, o.root,
                          comm(), r);
    });
  }
}

void MpiTransport::gather(Operation const& o, std::byte const* in, std::byte* out) {
  std::int64_t const chunk = chunk_numel(o, message_limit);
  for (std::int64_t first = 0; first < o.numel; first += chunk) {
    std::int64_t const n = std::min(chunk, o.numel - first);
    ShardType const shard(n, o.numel, o.element_bytes());
    std::size_t const at = static_cast<std::size_t>(first) * o.element_bytes();
    int const bytes = as_int(static_cast<std::size_t>(n) * o.element_bytes());
    run(o, "MPI_Igather", [&](MPI_Request* r) {
      return MPI_Igather(in + at, bytes, MPI_BYTE, out ? out + at : nullptr, 1, shard.get(), o.root,
                         comm(), r);
    });
  }
}

/// Uses no strided types, unlike a reduce-scatter: the parts are contiguous.
void MpiTransport::all_to_all(Operation const& o, std::byte const* in, std::byte* out) {
  std::int64_t const chunk = chunk_numel(o, message_limit);
  for (std::int64_t first = 0; first < o.numel; first += chunk) {
    std::int64_t const n = std::min(chunk, o.numel - first);
    ShardType const part(n, o.numel, o.element_bytes());
    std::size_t const at = static_cast<std::size_t>(first) * o.element_bytes();
    run(o, "MPI_Ialltoall", [&](MPI_Request* r) {
      return MPI_Ialltoall(in + at, 1, part.get(), out + at, 1, part.get(), comm(), r);
    });
  }
}

void MpiTransport::barrier(Operation const& o) {
  run(o, "MPI_Ibarrier", [&](MPI_Request* r) { return MPI_Ibarrier(comm(), r); });
}

}  // namespace tessera::comm::detail
