#include "tessera/checkpoint/format/view.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "format/detail/file.hpp"
#include "format/detail/hdf5.hpp"
#include "format/detail/shard_file.hpp"
#include "format/detail/virtual_sources.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint {
namespace {

using namespace detail;

/// How the sources of datasets with many of them get into the file: as bytes of ours, or one by one
/// through HDF5.
enum class Lists { encoded, by_hdf5 };
/// Below this HDF5's own way is as fast.
constexpr std::size_t few_sources = 8;

std::vector<VirtualSource> sources_of(Manifest const& manifest, TensorRecord const& tensor) {
  std::vector<VirtualSource> sources;
  for (auto const& run : tensor.runs())
    sources.push_back({&manifest.shards[static_cast<std::size_t>(run.shard)].file,
                       boxes_of(tensor.shape, run.offset, run.numel)});
  return sources;
}

std::string path_of(Manifest const& manifest, std::size_t state, TensorRecord const& tensor) {
  return "/" + manifest.states[state] + "/" + tensor.name;
}

bool is_encoded(std::vector<VirtualSource> const& sources, TensorRecord const& tensor,
                std::string const& path) {
  return sources.size() > few_sources && can_encode(tensor.shape) &&
         encoded_bytes(sources, path, tensor.shape.size()) >= smallest_placeholder;
}

void map_sources(hid_t create, hid_t whole, std::vector<VirtualSource> const& sources,
                 std::string const& path) {
  for (auto const& source : sources) {
    std::string const what = "cannot map HDF5 dataset " + path + " of " + *source.file;
    hsize_t dims[] = {0};
    H5S_seloper_t how = H5S_SELECT_SET;
    for (auto const& box : source.boxes) {
      std::vector<hsize_t> const start(box.start.begin(), box.start.end()),
          count(box.count.begin(), box.count.end());
      h5::check(H5Sselect_hyperslab(whole, how, start.data(), nullptr, count.data(), nullptr),
                what);
      how = H5S_SELECT_OR;
      dims[0] += static_cast<hsize_t>(box.numel);
    }
    h5::Id const from(H5Screate_simple(1, dims, nullptr), H5Sclose, what);
    h5::check(H5Pset_virtual(create, whole, source.file->c_str(), path.c_str(), from), what);
  }
}

struct Dataset {
  std::string path;
  std::vector<std::int64_t> const& shape;
  std::vector<VirtualSource> const& sources;
  std::optional<std::int64_t> placeholder;  ///< its ordinal
};

void create_virtual(hid_t file, Dataset const& dataset) {
  std::string const what = "cannot create virtual HDF5 dataset " + dataset.path;
  std::vector<hsize_t> const dims(dataset.shape.begin(), dataset.shape.end());
  h5::Id const whole(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                     H5Sclose, what);
  h5::Id const create = h5::dataset_properties(what);
  float const hole = std::numeric_limits<float>::quiet_NaN();
  h5::check(H5Pset_fill_value(create, H5T_NATIVE_FLOAT, &hole), what);
  if (dataset.placeholder) {
    std::string const name = placeholder_name(
        *dataset.placeholder, encoded_bytes(dataset.sources, dataset.path, dims.size()));
    h5::check(H5Pset_virtual(create, whole, ".", name.c_str(), whole), what);
  } else {
    map_sources(create, whole, dataset.sources, dataset.path);
  }
  h5::Id const space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                     H5Sclose, what);
  h5::Id created(H5Dcreate2(file, dataset.path.c_str(), H5T_IEEE_F32LE, space, H5P_DEFAULT, create,
                            H5P_DEFAULT),
                 H5Dclose, what);
  created.close(what);
}

/// Everything through HDF5, with placeholders where lists are encoded. @return ordinals of the
/// placeholders
std::set<std::int64_t> write_structure(std::filesystem::path const& path, Manifest const& manifest,
                                       Lists lists) {
  std::set<std::int64_t> placeholders;
  h5::Id file = h5::create_file(
      path, static_cast<std::int64_t>(manifest.tensors.size() * manifest.states.size()));
  h5::set_attribute(file, "format", std::string("tessera-view"));
  h5::set_attribute(file, "format_version", std::int64_t{1});
  h5::set_attribute(file, "run_id", manifest.run_id);
  h5::set_attribute(file, "step", manifest.step);
  for (auto const& state : manifest.states) h5::create_group(file, state);
  for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
    auto const& tensor = manifest.tensors[t];
    auto const sources = sources_of(manifest, tensor);
    for (std::size_t s = 0; s < manifest.states.size(); ++s) {
      Dataset dataset{path_of(manifest, s, tensor), tensor.shape, sources, std::nullopt};
      if (lists == Lists::encoded && is_encoded(sources, tensor, dataset.path)) {
        dataset.placeholder = static_cast<std::int64_t>(t * manifest.states.size() + s);
        placeholders.insert(*dataset.placeholder);
      }
      create_virtual(file, dataset);
      for (auto const& alias : tensor.aliases)
        h5::check(H5Lcreate_hard(file, dataset.path.c_str(), file,
                                 ("/" + manifest.states[s] + "/" + alias).c_str(), H5P_DEFAULT,
                                 H5P_DEFAULT),
                  "cannot link HDF5 dataset " + alias);
    }
  }
  file.close("cannot close HDF5 file " + path.string());
  return placeholders;
}

std::string virtual_name(ssize_t (*get)(hid_t, size_t, char*, size_t), hid_t create,
                         std::size_t index) {
  std::string name(4096, '\0');
  ssize_t const length = get(create, index, name.data(), name.size());
  name.resize(length < 0 ? 0 : std::min(static_cast<std::size_t>(length), name.size()));
  return name;
}

/// HDF5's own reading of an encoded list: names, and where the elements go.
bool agrees(hid_t file, std::string const& path, std::vector<VirtualSource> const& sources) {
  h5::Id const dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose, "cannot open " + path);
  h5::Id const create(H5Dget_create_plist(dataset), H5Pclose,
                      "cannot read the properties of " + path);
  std::size_t count = 0;
  h5::check(H5Pget_virtual_count(create, &count), "cannot read the sources of " + path);
  if (count != sources.size()) return false;
  for (std::size_t i = 0; i < count; ++i) {
    h5::Id const space(H5Pget_virtual_vspace(create, i), H5Sclose,
                       "cannot read a source of " + path);
    hsize_t low[most_dimensions], high[most_dimensions];
    h5::check(H5Sget_select_bounds(space, low, high), "cannot read a source of " + path);
    auto const& boxes = sources[i].boxes;
    std::int64_t numel = 0;
    for (auto const& box : boxes) numel += box.numel;
    if (virtual_name(H5Pget_virtual_filename, create, i) != *sources[i].file ||
        virtual_name(H5Pget_virtual_dsetname, create, i) != path ||
        H5Sget_select_npoints(space) != numel || low[0] != boxes.front().start[0] ||
        high[0] + 1 != boxes.back().start[0] + boxes.back().count[0])
      return false;
  }
  return true;
}

/// Fills in the lists and has HDF5 read the longest of them. False when this HDF5 stores lists in
/// another way.
bool fill_lists(std::filesystem::path const& path, Manifest const& manifest,
                std::set<std::int64_t> const& placeholders) {
  auto const states = manifest.states.size();
  auto const tensor_of = [&](std::int64_t ordinal) -> auto const& {
    return manifest.tensors[static_cast<std::size_t>(ordinal) / states];
  };
  auto const path_at = [&](std::int64_t ordinal) {
    return path_of(manifest, static_cast<std::size_t>(ordinal) % states, tensor_of(ordinal));
  };
  std::int64_t const filled = fill_placeholders(path, [&](std::int64_t ordinal) {
    if (!placeholders.contains(ordinal)) return std::string();
    return encode(sources_of(manifest, tensor_of(ordinal)), path_at(ordinal),
                  tensor_of(ordinal).shape.size());
  });
  if (filled != static_cast<std::int64_t>(placeholders.size())) return false;
  std::int64_t const longest = *std::max_element(
      placeholders.begin(), placeholders.end(),
      [&](auto a, auto b) { return tensor_of(a).pieces.size() < tensor_of(b).pieces.size(); });
  h5::Id const file = h5::open_file(path);
  return agrees(file, path_at(longest), sources_of(manifest, tensor_of(longest)));
}

}  // namespace

void write_view(std::filesystem::path const& path, Manifest const& manifest) {
  auto const placeholders = write_structure(path, manifest, Lists::encoded);
  if (placeholders.empty()) return;
  bool good = false;
  try {
    good = fill_lists(path, manifest, placeholders);
  } catch (Error const&) {
    good = false;  // written again below, which meets the same error when it is the disk's
  }
  if (good) return;
  std::filesystem::remove(path);
  write_structure(path, manifest, Lists::by_hdf5);
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
