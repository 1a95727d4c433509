#include <algorithm>

#include "detail/block_reader.hpp"
#include "detail/checksum.hpp"
#include "detail/hdf5.hpp"
#include "detail/shard_file.hpp"
#include "tessera/checkpoint/directory.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint {
namespace {

/// Every block of one state of one piece; the first problem of the piece ends it.
void verify_piece(Manifest const& manifest, detail::ShardFiles& files, detail::PieceState const& what, std::vector<char>& buffer,
                  VerifyReport& report) {
  std::int64_t const blocks = detail::blocks_of(what.piece->numel * 4, manifest.checksum_block);
  buffer.resize(static_cast<std::size_t>(std::max<std::int64_t>(static_cast<std::int64_t>(buffer.size()),
                                                                std::min(manifest.checksum_block, what.piece->numel * 4))));
  for (std::int64_t b = 0; b < blocks; ++b) report.bytes += detail::read_block(manifest, files, what, b, buffer.data());
}

void verify_data(Manifest const& manifest, std::vector<bool> const& readable, VerifyReport& report) {
  detail::ShardFiles files(manifest);
  std::vector<char> buffer;
  for (auto const& tensor : manifest.tensors) {
    ++report.tensors;
    for (auto const& piece : tensor.pieces)
      for (std::size_t s = 0; s < manifest.states.size() && readable[static_cast<std::size_t>(piece.shard)]; ++s) try {
          verify_piece(manifest, files, {&tensor, &piece, s}, buffer, report);
        } catch (Error const& e) {
          report.problems.emplace_back(e.what());
        }
  }
}

}  // namespace

namespace detail {

std::vector<std::string> compare_structure(Manifest const& manifest, int index) {
  std::vector<std::string> problems;
  auto const path = manifest.shard_path(index).string();
  auto const expect = [&](std::string const& what, auto const& found, auto const& wanted) {
    if (found != wanted) problems.push_back(concat(path, ": ", what, " is ", found, ", the manifest says ", wanted));
  };
  h5::Id const file = h5::open_file(path);
  expect("format", h5::string_attribute(file, "format"), std::string("tessera-shard"));
  expect("run_id", h5::string_attribute(file, "run_id"), manifest.run_id);
  expect("step", h5::integer_attribute(file, "step"), manifest.step);
  expect("world_size", h5::integer_attribute(file, "world_size"), std::int64_t{manifest.world_size});
  for (auto const& tensor : manifest.tensors)
    for (auto const& piece : tensor.pieces)
      for (std::size_t s = 0; s < manifest.states.size() && piece.shard == index; ++s) {
        std::string const name = "/" + manifest.states[s] + "/" + tensor.name;
        h5::Id const dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose, path + " has no dataset " + name);
        expect("place of " + name, h5::offset_of(dataset, name), piece.states[s].file_offset);
        expect("offset of " + name, h5::integer_attribute(dataset, "offset"), piece.offset);
        expect("bytes of " + name, static_cast<std::int64_t>(H5Dget_storage_size(dataset)), piece.numel * 4);
      }
  return problems;
}

}  // namespace detail

VerifyReport verify(std::filesystem::path const& step_directory) {
  VerifyReport report;
  try {
    Manifest const manifest = read_manifest(step_directory);
    report.files = 1;
    std::vector<bool> readable(manifest.shards.size(), false);
    for (int i = 0; i < static_cast<int>(manifest.shards.size()); ++i) try {
        detail::ShardFiles(manifest).open(i);
        readable[static_cast<std::size_t>(i)] = true;
        ++report.files;
        auto const problems = detail::compare_structure(manifest, i);
        report.problems.insert(report.problems.end(), problems.begin(), problems.end());
      } catch (Error const& e) {
        report.problems.emplace_back(e.what());
      }
    verify_data(manifest, readable, report);
  } catch (Error const& e) {
    report.problems.emplace_back(e.what());
  }
  return report;
}

std::string hdf5_version() {
  h5::start();  // must come before any other call of the library
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return concat(major, ".", minor, ".", release);
}

}  // namespace tessera::checkpoint
