#include <algorithm>
#include <limits>

#include "detail/hdf5.hpp"
#include "detail/shard_file.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

/// A run of a tensor's elements in row-major order that is a box in its shape.
struct Box {
  std::vector<hsize_t> start, count;
  std::int64_t first = 0, numel = 0;  ///< in row-major order
};

std::int64_t product(std::vector<std::int64_t> const& shape, std::size_t from) {
  std::int64_t n = 1;
  for (std::size_t d = from; d < shape.size(); ++d) n *= shape[d];
  return n;
}

/// Cuts [first, last) into boxes: a partial first row, whole rows, a partial last row, and so on inwards (at most 2 * dims - 1).
void cut(std::vector<std::int64_t> const& shape, std::vector<hsize_t> const& prefix, std::int64_t base, std::int64_t first,
         std::int64_t last, std::vector<Box>& out) {
  std::size_t const d = prefix.size();
  std::int64_t const row = product(shape, d + 1);
  while (first < last) {
    std::int64_t const index = first / row, rest = first % row;
    if (rest == 0 && last - first >= row) {
      std::int64_t const rows = (last - first) / row;
      Box box{prefix, std::vector<hsize_t>(d, 1), base + first, rows * row};
      box.start.push_back(static_cast<hsize_t>(index));
      box.count.push_back(static_cast<hsize_t>(rows));
      for (std::size_t k = d + 1; k < shape.size(); ++k) {
        box.start.push_back(0);
        box.count.push_back(static_cast<hsize_t>(shape[k]));
      }
      out.push_back(std::move(box));
      first += rows * row;
      continue;
    }
    std::int64_t const end = std::min(last, (index + 1) * row);
    auto inner = prefix;
    inner.push_back(static_cast<hsize_t>(index));
    cut(shape, inner, base + index * row, rest, end - index * row, out);
    first = end;
  }
}

void map_piece(hid_t create, hid_t whole, TensorRecord const& tensor, PieceRecord const& piece, std::string const& file,
               std::string const& dataset) {
  std::string const what = "cannot map HDF5 dataset " + dataset + " of " + file;
  hsize_t const source_dims[] = {static_cast<hsize_t>(piece.numel)};
  h5::Id source(H5Screate_simple(1, source_dims, nullptr), H5Sclose, what);
  std::vector<Box> boxes;
  cut(tensor.shape, {}, 0, piece.offset, piece.offset + piece.numel, boxes);
  for (auto const& box : boxes) {
    hsize_t const start[] = {static_cast<hsize_t>(box.first - piece.offset)}, count[] = {static_cast<hsize_t>(box.numel)};
    h5::check(H5Sselect_hyperslab(source, H5S_SELECT_SET, start, nullptr, count, nullptr), what);
    h5::check(H5Sselect_hyperslab(whole, H5S_SELECT_SET, box.start.data(), nullptr, box.count.data(), nullptr), what);
    h5::check(H5Pset_virtual(create, whole, file.c_str(), dataset.c_str(), source), what);
  }
}

void write_virtual(hid_t file, Manifest const& manifest, TensorRecord const& tensor, std::string const& path) {
  std::string const what = "cannot create virtual HDF5 dataset " + path;
  std::vector<hsize_t> const dims(tensor.shape.begin(), tensor.shape.end());
  h5::Id whole(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose, what);
  h5::Id create(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, what);
  float const hole = std::numeric_limits<float>::quiet_NaN();
  h5::check(H5Pset_fill_value(create, H5T_NATIVE_FLOAT, &hole), what);
  for (auto const& piece : tensor.pieces)
    map_piece(create, whole, tensor, piece, manifest.shards[static_cast<std::size_t>(piece.shard)].file, path);
  h5::Id space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose, what);
  h5::Id dataset(H5Dcreate2(file, path.c_str(), H5T_IEEE_F32LE, space, H5P_DEFAULT, create, H5P_DEFAULT), H5Dclose, what);
  dataset.close(what);
}

}  // namespace

bool view_is_quick(Manifest const& manifest) {
  std::int64_t copies = 0;
  for (auto const& tensor : manifest.tensors) copies += static_cast<std::int64_t>(tensor.pieces.size() * tensor.pieces.size());
  return copies * static_cast<std::int64_t>(manifest.states.size()) <= 4'000'000;
}

void write_view(std::filesystem::path const& path, Manifest const& manifest) {
  h5::Id file = h5::create_file(path, static_cast<std::int64_t>(manifest.tensors.size() * manifest.states.size()));
  h5::set_attribute(file, "format", std::string("tessera-view"));
  h5::set_attribute(file, "format_version", Manifest::current_version);
  h5::set_attribute(file, "run_id", manifest.run_id);
  h5::set_attribute(file, "step", manifest.step);
  for (auto const& state : manifest.states) {
    h5::Id group(H5Gcreate2(file, state.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "cannot create HDF5 group " + state);
    for (auto const& tensor : manifest.tensors) {
      std::string const name = "/" + state + "/" + tensor.name;
      write_virtual(file, manifest, tensor, name);
      for (auto const& alias : tensor.aliases)
        h5::check(H5Lcreate_hard(file, name.c_str(), file, ("/" + state + "/" + alias).c_str(), H5P_DEFAULT, H5P_DEFAULT),
                  "cannot link HDF5 dataset " + alias);
    }
    group.close("cannot close HDF5 group " + state);
  }
  file.close("cannot close HDF5 file " + path.string());
}

}  // namespace tessera::checkpoint::detail
