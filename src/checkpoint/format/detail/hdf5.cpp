#include "format/detail/hdf5.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"

namespace tessera::checkpoint::h5 {
namespace {

/// Objects of this size and more start at a page, so that a raw reader may map them or bypass the
/// page cache.
constexpr hsize_t page = 4096;

herr_t collect(unsigned, H5E_error2_t const* entry, void* out) {
  auto& texts = *static_cast<std::vector<std::string>*>(out);
  texts.push_back(std::string(entry->func_name ? entry->func_name : "?") + ": " +
                  (entry->desc ? entry->desc : "?"));
  return 0;
}

/// Our files have one writer and are read when they are complete; locks would only fail on file
/// systems without them.
void turn_off_locking(hid_t access) {
#if H5_VERSION_GE(1, 10, 7)
  check(H5Pset_file_locking(access, 0, 1), "cannot turn off HDF5 file locking");
#else
  (void)access;
#endif
}

Id file_access() {
  start();
  Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "cannot make an HDF5 file access list");
  check(H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V110),
        "cannot set the HDF5 format version");
  turn_off_locking(access);
  return access;
}

Id scalar() { return Id(H5Screate(H5S_SCALAR), H5Sclose, "cannot make an HDF5 dataspace"); }

void write_attribute(hid_t object, char const* name, hid_t type, hid_t space, void const* data) {
  std::string const what = std::string("cannot write HDF5 attribute ") + name;
  Id attribute(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, what);
  check(H5Awrite(attribute, type, data), what);
  attribute.close(what);
}

}  // namespace

void start() {
  static bool const started = [] {
    check(H5dont_atexit(), "cannot configure HDF5");
    check(H5open(), "cannot start HDF5");
    check(H5PLset_loading_state(0), "cannot turn off HDF5 plugins");
    return true;
  }();
  // every thread has an error stack of its own
  thread_local bool const silenced =
      check(H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr), "cannot silence HDF5") >= 0;
  (void)started, (void)silenced;
}

std::string error_text() {
  std::vector<std::string> texts;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &texts);
  // upward: the innermost, most telling entry comes first
  std::string out;
  for (std::size_t i = 0; i < std::min<std::size_t>(texts.size(), 3); ++i)
    out += (i ? "; " : "") + texts[i];
  return out.empty() ? "HDF5 gives no reason" : out;
}

void throw_error(std::string const& what) { throw IoError(what + ": " + error_text()); }

Id create_file(std::filesystem::path const& path, std::int64_t datasets) {
  Id access = file_access();
  std::string const what = "cannot create HDF5 file " + path.string();
  check(H5Pset_alignment(access, page, page), what);
  // about 700 bytes of object header and link a dataset; in one block the data after it stays in
  // one run
  check(H5Pset_meta_block_size(access, static_cast<hsize_t>(datasets + 16) * 1024), what);
  check(H5Pset_small_data_block_size(access, 0), what);
  Id const create(H5Pcreate(H5P_FILE_CREATE), H5Pclose, what);
  check(H5Pset_obj_track_times(create, 0), what);
  return Id(H5Fcreate(path.c_str(), H5F_ACC_EXCL, create, access), H5Fclose, what);
}

Id open_file(std::filesystem::path const& path) {
  start();
  Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "cannot make an HDF5 file access list");
  turn_off_locking(access);
  return Id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose,
            "cannot open " + path.string() + " as HDF5");
}

void create_group(hid_t file, std::string const& path) {
  std::string const what = "cannot create HDF5 group " + path;
  Id const create(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, what);
  check(H5Pset_obj_track_times(create, 0), what);
  Id group(H5Gcreate2(file, path.c_str(), H5P_DEFAULT, create, H5P_DEFAULT), H5Gclose, what);
  group.close("cannot close HDF5 group " + path);
}

Id dataset_properties(std::string const& what) {
  Id create(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, what);
  check(H5Pset_obj_track_times(create, 0), what);
  return create;
}

Id element_type(Dtype dtype) {
  std::string const what = "cannot make an HDF5 type";
  Id type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, what);
  if (dtype == Dtype::fp32) return type;
  bool const is_bf16 = dtype == Dtype::bf16;
  TESSERA_VALIDATE(is_bf16 || dtype == Dtype::fp16, InternalError, "no HDF5 type for ",
                   name_of(dtype));
  // fields first: the smaller size must hold them
  check(is_bf16 ? H5Tset_fields(type, 15, 7, 8, 0, 7) : H5Tset_fields(type, 15, 10, 5, 0, 10),
        what);
  check(H5Tset_size(type, 2), what);
  check(H5Tset_ebias(type, is_bf16 ? 127 : 15), what);
  return type;
}

Id create_dataset(hid_t file, std::string const& path, std::vector<std::int64_t> const& shape,
                  Dtype dtype) {
  std::string const what = "cannot create HDF5 dataset " + path;
  std::vector<hsize_t> const dims(shape.begin(), shape.end());
  Id space(dims.empty() ? H5Screate(H5S_SCALAR)
                        : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
           H5Sclose, what);
  Id const create = dataset_properties(what);
  check(H5Pset_layout(create, H5D_CONTIGUOUS), what);
  check(H5Pset_alloc_time(create, H5D_ALLOC_TIME_EARLY), what);
  check(H5Pset_fill_time(create, H5D_FILL_TIME_NEVER), what);
  Id link(H5Pcreate(H5P_LINK_CREATE), H5Pclose, what);
  check(H5Pset_create_intermediate_group(link, 1), what);
  check(H5Pset_char_encoding(link, H5T_CSET_UTF8), what);
  Id const type = element_type(dtype);
  return Id(H5Dcreate2(file, path.c_str(), type, space, link, create, H5P_DEFAULT), H5Dclose, what);
}

std::int64_t offset_of(hid_t dataset, std::string const& path) {
  haddr_t const offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) throw_error("HDF5 dataset " + path + " has no place in the file");
  return static_cast<std::int64_t>(offset);
}

void set_attribute(hid_t object, char const* name, std::string const& value) {
  Id type(H5Tcopy(H5T_C_S1), H5Tclose, "cannot make an HDF5 string type");
  check(H5Tset_size(type, value.size() + 1), "cannot size an HDF5 string type");
  check(H5Tset_cset(type, H5T_CSET_UTF8), "cannot set the encoding of an HDF5 string");
  write_attribute(object, name, type, scalar(), value.c_str());
}

void set_attribute(hid_t object, char const* name, std::int64_t value) {
  write_attribute(object, name, H5T_STD_I64LE, scalar(), &value);
}

void set_attribute(hid_t object, char const* name, std::vector<std::int64_t> const& values) {
  hsize_t const dims[] = {values.size()};
  Id const space(H5Screate_simple(1, dims, nullptr), H5Sclose, "cannot make an HDF5 dataspace");
  write_attribute(object, name, H5T_STD_I64LE, space, values.data());
}

std::string string_attribute(hid_t object, char const* name) {
  std::string const what = std::string("cannot read HDF5 attribute ") + name;
  Id attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose, what);
  Id type(H5Aget_type(attribute), H5Tclose, what);
  std::size_t const bytes = H5Tget_size(type);
  TESSERA_VALIDATE(
      H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 && bytes <= 4096, DataError,
      "HDF5 attribute ", name, " is no short text");
  std::string value(bytes, '\0');
  check(H5Aread(attribute, type, value.data()), what);
  value.resize(std::min(value.find('\0'), value.size()));
  return value;
}

std::int64_t integer_attribute(hid_t object, char const* name) {
  std::string const what = std::string("cannot read HDF5 attribute ") + name;
  Id attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose, what);
  Id space(H5Aget_space(attribute), H5Sclose, what);
  TESSERA_VALIDATE(H5Sget_simple_extent_npoints(space) == 1, DataError, "HDF5 attribute ", name,
                   " is not one number");
  std::int64_t value = 0;
  check(H5Aread(attribute, H5T_NATIVE_INT64, &value), what);
  return value;
}

}  // namespace tessera::checkpoint::h5

namespace tessera::checkpoint::detail {
namespace {

struct Range {
  std::int64_t first = 0, last = 0;
};

/// The part of the tensor below index `prefix[0..depth)`, whose first element is number `base`.
void cut(std::vector<std::int64_t> const& shape, std::size_t depth, Hyperslab prefix,
         std::int64_t base, Range range, std::vector<Hyperslab>& out) {
  std::int64_t row = 1;
  for (std::size_t d = depth + 1; d < shape.size(); ++d) row *= shape[d];
  while (range.first < range.last) {
    std::int64_t const index = range.first / row, rest = range.first % row,
                       rows = (range.last - range.first) / row;
    prefix.start[depth] = static_cast<std::uint64_t>(index);
    prefix.count[depth] = 1;
    if (rest == 0 && rows > 0) {
      Hyperslab slab = prefix;
      slab.first = base + range.first;
      slab.numel = rows * row;
      slab.count[depth] = static_cast<std::uint64_t>(rows);
      for (std::size_t d = depth + 1; d < shape.size(); ++d)
        slab.count[d] = static_cast<std::uint64_t>(shape[d]);
      out.push_back(slab);
      range.first += rows * row;
      continue;
    }
    std::int64_t const end = std::min(range.last, (index + 1) * row);
    cut(shape, depth + 1, prefix, base + index * row, {rest, end - index * row}, out);
    range.first = end;
  }
}

}  // namespace

std::vector<Hyperslab> hyperslabs_of(std::vector<std::int64_t> const& shape, std::int64_t first,
                                     std::int64_t numel) {
  std::vector<Hyperslab> slabs;
  cut(shape, 0, {}, 0, {first, first + numel}, slabs);
  return slabs;
}

}  // namespace tessera::checkpoint::detail
