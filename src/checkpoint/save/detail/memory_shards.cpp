#include "save/detail/memory_shards.hpp"

#include <algorithm>

#include "format/detail/checksum.hpp"
#include "format/detail/chunk_reader.hpp"
#include "format/detail/file.hpp"
#include "save/detail/collective_try.hpp"
#include "save/detail/commit.hpp"
#include "tessera/checkpoint/format/directory.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

/// Bytes of a message.
constexpr std::int64_t message_bytes = std::int64_t{16} << 20;

/// @param manifest  of one layer
void check_layer(Manifest const& manifest, int shard, ShardFiles& files,
                 std::vector<char>& buffer) {
  for (auto const& tensor : manifest.tensors)
    for (auto const& extent : tensor.extents) {
      if (extent.shard != shard) continue;
      std::int64_t const chunks = chunk_count(extent.numel * 4, manifest.checksum_chunk);
      for (std::size_t state = 0; state < manifest.states.size(); ++state)
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
          read_chunk(manifest, files, {&tensor, &extent, state}, chunk, buffer.data());
    }
}

/// A file that an earlier transfer has left is replaced.
File new_shard(fs::path const& path, std::int64_t bytes) {
  std::error_code ignored;
  fs::remove(path, ignored);
  File file = File::create(path);
  file.reserve(bytes);
  return file;
}

/// One transfer in which this rank takes part. Its messages are exchanged whatever fails.
void carry_out_one(ShardTransfer const& transfer, Manifest const& manifest, comm::Collectives& comm,
                   Failure& failure) {
  auto const attempt = [&](auto const& work) {
    if (failure.code == 0) failure = try_locally(work);
  };
  bool const sends = transfer.from == comm.rank();
  auto const path = manifest.shard_path(transfer.shard);
  std::int64_t const bytes = manifest.shards[static_cast<std::size_t>(transfer.shard)].bytes;
  std::vector<char> message(static_cast<std::size_t>(std::min(bytes, message_bytes)));
  File file;
  attempt(
      [&] { file = sends ? File::open_read(path, File::Links::refuse) : new_shard(path, bytes); });
  for (std::int64_t at = 0; at < bytes; at += message_bytes) {
    std::int64_t const count = std::min(message_bytes, bytes - at);
    memory::TensorView const view(message.data(), Dtype::uint8, {count});
    if (sends) {
      attempt([&] { file.read(message.data(), count, at); });
      comm.wait(comm.send(view, transfer.to, {}));
    } else {
      comm.wait(comm.receive(view, transfer.from, {}));
      attempt([&] { file.write(message.data(), count, at); });
    }
  }
  attempt([&] { file.close(); });
}

}  // namespace

void check_shard(Manifest const& manifest, int shard) {
  ShardFiles files(manifest);
  (void)files.open(shard);  // a shard without elements must exist, too
  std::vector<char> buffer(static_cast<std::size_t>(manifest.checksum_chunk));
  check_layer(manifest, shard, files, buffer);
  for (auto const& layer : manifest.reduced_manifests()) check_layer(layer, shard, files, buffer);
}

void carry_out(std::vector<ShardTransfer> const& transfers, Manifest const& manifest,
               comm::Collectives& comm) {
  comm::SynchronousCalls const synchronous;
  Failure failure;
  for (auto const& transfer : transfers)
    if (transfer.from == comm.rank() || transfer.to == comm.rank())
      carry_out_one(transfer, manifest, comm, failure);
  if (failure.code != 0) throw_as(failure.code, failure.text);
}

fs::path prepare_in_memory(SaveRequest const& request) {
  make_directories(request.directory);
  auto listed = step_directories(request.directory);
  std::reverse(listed.begin(), listed.end());  // newest first
  int kept = 0;
  for (auto const& [step, old] : listed) {
    bool const complete = step < request.step && path_exists(old / "manifest.json");
    if (complete && ++kept < memory_generations) continue;
    discard(old);
  }
  remove_trash(request.directory);
  fs::path directory = request.directory / step_name(request.step);
  make_directories(directory);
  return directory;
}

}  // namespace tessera::checkpoint::detail
