#include "format/detail/compressed_shard.hpp"

#include <algorithm>

#include "format/detail/file.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

h5::Id create_chunked(hid_t file, std::string const& path, std::int64_t numel,
                      std::int64_t chunk_numel, int level) {
  std::string const what = "cannot create HDF5 dataset " + path;
  TESSERA_VALIDATE(
      H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0 && H5Zfilter_avail(H5Z_FILTER_SHUFFLE) > 0, IoError,
      what,
      ": this HDF5 library was built without the deflate filter; convert with --compress none");
  hsize_t const dims[] = {static_cast<hsize_t>(numel)},
                chunk[] = {static_cast<hsize_t>(chunk_numel)};
  h5::Id const space(H5Screate_simple(1, dims, nullptr), H5Sclose, what);
  h5::Id const create = h5::dataset_properties(what);
  h5::check(H5Pset_chunk(create, 1, chunk), what);
  h5::check(H5Pset_shuffle(create), what);
  h5::check(H5Pset_deflate(create, static_cast<unsigned>(level)), what);
  return h5::Id(
      H5Dcreate2(file, path.c_str(), H5T_IEEE_F32LE, space, H5P_DEFAULT, create, H5P_DEFAULT),
      H5Dclose, what);
}

}  // namespace

CompressedShard::CompressedShard(std::filesystem::path const& file, ShardLayout const& layout,
                                 std::int64_t chunk_bytes, int level)
    : path_(file),
      layout_(layout),
      file_(h5::create_file(file,
                            static_cast<std::int64_t>(layout.runs.size() * layout.states.size()))),
      chunk_bytes_(chunk_bytes) {
  write_structure(file_, layout, 2, [&](std::string const& name, RunLayout const& run) {
    return create_chunked(file_, name, run.numel, std::min(run.numel, chunk_bytes / 4), level);
  });
}

ByteRange CompressedShard::put(std::size_t run, std::size_t state, std::int64_t chunk,
                               std::vector<char> const& stored) {
  std::string const name = "/" + layout_.runs[run].states[state] + "/" + layout_.runs[run].name,
                    what = "cannot write a chunk of " + name + " to " + path_.string();
  if (dataset_ < 0 || run != run_ || state != state_) {
    dataset_.close(what);
    dataset_ = h5::Id(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose, what);
    run_ = run, state_ = state;
    chunk_numel_ = std::min(layout_.runs[run].numel, chunk_bytes_ / 4);
  }
  hsize_t const at[] = {static_cast<hsize_t>(chunk * chunk_numel_)};
  h5::check(H5Dwrite_chunk(dataset_, H5P_DEFAULT, 0, at, stored.size(), stored.data()), what);
  haddr_t place = HADDR_UNDEF;
  hsize_t bytes = 0;
  h5::check(H5Dget_chunk_info_by_coord(dataset_, at, nullptr, &place, &bytes), what);
  TESSERA_VALIDATE(place != HADDR_UNDEF && bytes == stored.size(), InternalError, what,
                   ": HDF5 says it has ", bytes, " bytes of ", stored.size());
  return {static_cast<std::int64_t>(place), static_cast<std::int64_t>(bytes)};
}

std::int64_t CompressedShard::finish() {
  dataset_.close("cannot close an HDF5 dataset of " + path_.string());
  file_.close("cannot close HDF5 file " + path_.string());
  File file = File::open_write(path_);
  std::int64_t const bytes = file.size();
  file.sync();
  file.close();
  return bytes;
}

}  // namespace tessera::checkpoint::detail
