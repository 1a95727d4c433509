#include "detail/shard_file.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "detail/checksum.hpp"
#include "detail/file.hpp"
#include "detail/hdf5.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

void set_identity(hid_t file, ShardIdentity const& identity) {
  h5::set_attribute(file, "format", std::string("tessera-shard"));
  h5::set_attribute(file, "format_version", Manifest::current_version);
  h5::set_attribute(file, "creator", std::string("Tessera"));
  h5::set_attribute(file, "run_id", identity.run_id);
  h5::set_attribute(file, "step", identity.step);
  h5::set_attribute(file, "world_size", std::int64_t{identity.ranks});
  h5::set_attribute(file, "rank", std::int64_t{identity.rank});
  h5::set_attribute(file, "zero_stage", std::int64_t{identity.zero_stage});
}

/// Makes every dataset; returns the place of each [piece][state].
std::vector<std::vector<StateExtent>> lay_out(hid_t file, ShardIdentity const& identity, zero::PartitionPlan const& plan,
                                              std::vector<zero::Piece> const& pieces, std::vector<std::string> const& states) {
  std::vector<std::vector<StateExtent>> extents(pieces.size(), std::vector<StateExtent>(states.size()));
  for (std::size_t s = 0; s < states.size(); ++s) {
    std::string const root = "/" + states[s];
    // a rank of a tiny model may own nothing; the group is there all the same
    h5::Id group(H5Gcreate2(file, root.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "cannot create HDF5 group " + root);
    group.close("cannot close HDF5 group " + root);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      auto const& slot = plan.unit(pieces[i].unit).parameters[static_cast<std::size_t>(pieces[i].parameter)];
      std::string const path = root + "/" + slot.name;
      h5::Id dataset = h5::create_dataset(file, path, {pieces[i].numel}, Dtype::fp32);
      h5::set_attribute(dataset, "offset", pieces[i].parameter_offset);
      h5::set_attribute(dataset, "shape", slot.shape);
      h5::set_attribute(dataset, "dtype", std::string("fp32"));
      h5::set_attribute(dataset, "rank", std::int64_t{identity.rank});
      h5::set_attribute(dataset, "ranks", std::int64_t{identity.ranks});
      extents[i][s].file_offset = h5::offset_of(dataset, path);
      dataset.close("cannot close HDF5 dataset " + path);
    }
  }
  return extents;
}

/// Elements [first, first + numel) of a piece: where they are, or in the writer's buffer.
using Elements = std::function<float const*(std::size_t state, zero::Piece const& piece, std::int64_t first, std::int64_t numel)>;

/// Checksums and writes a piece block by block: a block is still in the cache when it is handed to the system.
void write_blocks(File& file, Elements const& elements, std::size_t state, zero::Piece const& piece, std::int64_t block, StateExtent& extent) {
  std::int64_t const total = piece.numel * 4;
  for (std::int64_t at = 0; at < total; at += block) {
    std::int64_t const count = std::min(block, total - at);
    float const* data = elements(state, piece, at / 4, count / 4);
    extent.xxh3.push_back(xxh3(data, count));
    file.write(data, count, extent.file_offset + at);
    file.start_writeback(extent.file_offset + at, count);
  }
}

WrittenShard write(std::filesystem::path const& path, ShardIdentity const& identity, zero::PartitionPlan const& plan,
                   std::vector<std::string> const& states, Elements const& elements, std::int64_t checksum_block) {
  auto const pieces = plan.pieces(identity.rank);
  h5::Id structure = h5::create_file(path, static_cast<std::int64_t>(pieces.size() * states.size()));
  set_identity(structure, identity);
  WrittenShard shard;
  shard.pieces = lay_out(structure, identity, plan, pieces, states);
  structure.close("cannot close HDF5 file " + path.string());

  File file = File::open_write(path);
  shard.bytes = file.size();
  file.reserve(shard.bytes);
  for (std::size_t s = 0; s < states.size(); ++s)
    for (std::size_t i = 0; i < pieces.size(); ++i) write_blocks(file, elements, s, pieces[i], checksum_block, shard.pieces[i][s]);
  TESSERA_VALIDATE(file.size() == shard.bytes, InternalError, path.string(), " grew from ", shard.bytes, " to ", file.size(),
                   " bytes while its data was written");
  file.sync();
  file.close();
  return shard;
}

}  // namespace

std::string shard_name(int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "shard_%05d.h5", rank);
  return name;
}

float* piece_data(zero::Engine::StateView const& view, zero::PartitionPlan const& plan, zero::Piece const& piece) {
  return view.unit_shards[static_cast<std::size_t>(piece.unit)] + (piece.partition_offset - plan.unit(piece.unit).partition_offset);
}

WrittenShard write_shard(std::filesystem::path const& path, ShardIdentity const& identity, zero::PartitionPlan const& plan,
                         StateViews const& states, std::int64_t checksum_block) {
  std::vector<std::string> names;
  for (auto const& state : states) names.push_back(state.name);
  return write(path, identity, plan, names,
               [&](std::size_t s, zero::Piece const& piece, std::int64_t first, std::int64_t) { return piece_data(states[s], plan, piece) + first; },
               checksum_block);
}

WrittenShard write_shard(std::filesystem::path const& path, ShardIdentity const& identity, zero::PartitionPlan const& plan,
                         StreamedStates const& states, std::int64_t checksum_block) {
  std::vector<float> buffer;
  auto const elements = [&](std::size_t s, zero::Piece const& piece, std::int64_t first, std::int64_t numel) {
    buffer.resize(static_cast<std::size_t>(numel));
    states.read(states.names[s], piece, first, numel, buffer.data());
    return buffer.data();
  };
  return write(path, identity, plan, states.names, elements, checksum_block);
}

std::string WrittenShard::pack() const {
  std::vector<std::uint64_t> words{static_cast<std::uint64_t>(bytes), pieces.size(), pieces.empty() ? 0 : pieces[0].size()};
  for (auto const& piece : pieces)
    for (auto const& extent : piece) {
      words.push_back(static_cast<std::uint64_t>(extent.file_offset));
      words.push_back(extent.xxh3.size());
      words.insert(words.end(), extent.xxh3.begin(), extent.xxh3.end());
    }
  return std::string(reinterpret_cast<char const*>(words.data()), words.size() * sizeof words[0]);
}

WrittenShard WrittenShard::unpack(std::string const& packed) {
  std::vector<std::uint64_t> words(packed.size() / sizeof(std::uint64_t));
  std::memcpy(words.data(), packed.data(), words.size() * sizeof words[0]);
  std::size_t at = 0;
  auto const next = [&] {
    TESSERA_VALIDATE(at < words.size(), InternalError, "a rank's shard record has ", packed.size(), " bytes and ends too early");
    return words[at++];
  };
  WrittenShard shard;
  shard.bytes = static_cast<std::int64_t>(next());
  std::size_t const pieces = next(), states = next();
  for (std::size_t i = 0; i < pieces; ++i) {
    auto& piece = shard.pieces.emplace_back();
    for (std::size_t s = 0; s < states; ++s) {
      auto& extent = piece.emplace_back();
      extent.file_offset = static_cast<std::int64_t>(next());
      extent.xxh3.resize(next());
      for (auto& sum : extent.xxh3) sum = next();
    }
  }
  return shard;
}

}  // namespace tessera::checkpoint::detail
