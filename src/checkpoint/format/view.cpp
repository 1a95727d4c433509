#include "tessera/checkpoint/format/directory.hpp"

#include <limits>

#include "format/detail/file.hpp"
#include "format/detail/hdf5.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint {
namespace {

using namespace detail;

/// Maps the hyperslabs of a virtual dataset to all elements of the dataset with the same path in a
/// shard file.
struct Mapping {
  std::string const* file = nullptr;
  std::vector<Hyperslab> slabs;
};

std::vector<Mapping> mappings_of(Manifest const& manifest, TensorRecord const& tensor) {
  std::vector<Mapping> mappings;
  for (auto const& run : tensor.runs())
    mappings.push_back({&manifest.shards[static_cast<std::size_t>(run.shard)].file,
                        hyperslabs_of(tensor.shape, run.offset, run.numel)});
  return mappings;
}

void add_mapping(hid_t create, hid_t space, Mapping const& mapping, std::string const& path) {
  std::string const what = "cannot map HDF5 dataset " + path + " of " + *mapping.file;
  hsize_t numel[] = {0};
  H5S_seloper_t operation = H5S_SELECT_SET;
  for (auto const& slab : mapping.slabs) {
    hsize_t start[max_dimensions], count[max_dimensions];
    std::copy(slab.start.begin(), slab.start.end(), start);
    std::copy(slab.count.begin(), slab.count.end(), count);
    h5::check(H5Sselect_hyperslab(space, operation, start, nullptr, count, nullptr), what);
    operation = H5S_SELECT_OR;
    numel[0] += static_cast<hsize_t>(slab.numel);
  }
  h5::Id const source(H5Screate_simple(1, numel, nullptr), H5Sclose, what);
  h5::check(H5Pset_virtual(create, space, mapping.file->c_str(), path.c_str(), source), what);
}

void create_virtual_dataset(hid_t file, std::string const& path,
                            std::vector<std::int64_t> const& shape,
                            std::vector<Mapping> const& mappings) {
  std::string const what = "cannot create virtual HDF5 dataset " + path;
  std::vector<hsize_t> const dims(shape.begin(), shape.end());
  h5::Id const space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                     H5Sclose, what);
  h5::Id const create = h5::dataset_properties(what);
  float const missing = std::numeric_limits<float>::quiet_NaN();
  h5::check(H5Pset_fill_value(create, H5T_NATIVE_FLOAT, &missing), what);
  for (auto const& mapping : mappings) add_mapping(create, space, mapping, path);
  h5::check(H5Sselect_all(space), what);
  h5::Id dataset(
      H5Dcreate2(file, path.c_str(), H5T_IEEE_F32LE, space, H5P_DEFAULT, create, H5P_DEFAULT),
      H5Dclose, what);
  dataset.close(what);
}

void add_tensor(hid_t file, Manifest const& manifest, TensorRecord const& tensor) {
  auto const mappings = mappings_of(manifest, tensor);
  for (auto const& state : manifest.states) {
    std::string const path = "/" + state + "/" + tensor.name;
    create_virtual_dataset(file, path, tensor.shape, mappings);
    for (auto const& alias : tensor.aliases)
      h5::check(H5Lcreate_hard(file, path.c_str(), file, ("/" + state + "/" + alias).c_str(),
                               H5P_DEFAULT, H5P_DEFAULT),
                "cannot link HDF5 dataset " + alias);
  }
}

void add_states(hid_t file, Manifest const& manifest) {
  for (auto const& state : manifest.states) h5::create_group(file, state);
  for (auto const& tensor : manifest.tensors) add_tensor(file, manifest, tensor);
}

}  // namespace

void write_view(std::filesystem::path const& path, Manifest const& manifest) {
  h5::Id file = h5::create_file(
      path, static_cast<std::int64_t>(manifest.tensors.size() * manifest.states.size()));
  h5::set_attribute(file, "format", std::string("tessera-view"));
  h5::set_attribute(file, "format_version", std::int64_t{1});
  h5::set_attribute(file, "run_id", manifest.run_id);
  h5::set_attribute(file, "step", manifest.step);
  add_states(file, manifest);
  for (auto const& reduced : manifest.reduced_manifests()) add_states(file, reduced);
  file.close("cannot close HDF5 file " + path.string());
}

std::filesystem::path make_view(std::filesystem::path const& step_directory) {
  Manifest const manifest = read_manifest(step_directory);
  PendingFile pending(step_directory / "view.h5");
  pending.give_name_away();
  write_view(pending.temporary_path(), manifest);
  pending.reopen();
  pending.commit();
  return pending.final_path();
}

}  // namespace tessera::checkpoint
