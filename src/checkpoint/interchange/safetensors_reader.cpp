#include "tessera/checkpoint/interchange/safetensors_reader.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "format/detail/file.hpp"
#include "format/detail/json_reader.hpp"
#include "interchange/detail/element_conversion.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using detail::JsonReader;

constexpr std::int64_t max_header_bytes = 100'000'000, max_entries = 250'000,
                       max_index_bytes = 100'000'000;
constexpr std::int64_t largest_read = std::int64_t{4} << 20;

/// Bytes of an element, 0 for an unknown type.
std::int64_t element_bytes(std::string_view dtype) {
  for (auto name : {"F64", "I64", "U64"})
    if (dtype == name) return 8;
  for (auto name : {"F32", "I32", "U32"})
    if (dtype == name) return 4;
  for (auto name : {"F16", "BF16", "I16", "U16"})
    if (dtype == name) return 2;
  for (auto name : {"BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"})
    if (dtype == name) return 1;
  return 0;
}

struct Entry {
  std::string name;
  SafetensorsEntry value;
  std::int64_t begin = -1, end = -1;  ///< in the data section
};

void read_shape(JsonReader& json, SafetensorsEntry& value) {
  value.numel = 1;
  json.array([&] {
    std::int64_t const dim = json.integer();
    if (dim < 0) json.fail(concat("a dimension is ", dim));
    value.shape.push_back(dim);
    if (__builtin_mul_overflow(value.numel, dim, &value.numel))
      json.fail("the product of a shape is too large");
    if (value.shape.size() > 32) json.fail("a shape has more than 32 dimensions");
  });
}

/// {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
void read_entry(JsonReader& json, Entry& entry) {
  std::set<std::string> seen;
  std::vector<std::int64_t> offsets;
  json.object([&](std::string const& key) {
    if (!seen.insert(key).second)
      json.fail(concat("'", key, "' is listed twice in tensor ", entry.name));
    if (key == "dtype")
      entry.value.dtype = json.string();
    else if (key == "shape")
      read_shape(json, entry.value);
    else if (key == "data_offsets")
      json.array([&] { offsets.push_back(json.integer()); });
    else
      json.fail(concat("tensor ", entry.name, " has an unknown field '", key, "'"));
  });
  if (seen.size() != 3)
    json.fail(concat("tensor ", entry.name, " lacks dtype, shape or data_offsets"));
  if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0])
    json.fail(concat("tensor ", entry.name, " has wrong data_offsets"));
  entry.begin = offsets[0], entry.end = offsets[1];
  std::int64_t const element = element_bytes(entry.value.dtype);
  if (element == 0)
    json.fail(concat("tensor ", entry.name, " has the unknown dtype '", entry.value.dtype, "'"));
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(entry.value.numel, element, &bytes) ||
      bytes != entry.end - entry.begin)
    json.fail(concat("tensor ", entry.name, " has data_offsets of ", entry.end - entry.begin,
                     " bytes for ", entry.value.numel, " elements of ", entry.value.dtype));
  entry.value.bytes = bytes;
}

std::vector<Entry> parse_header(std::string_view text, std::string const& source) {
  TESSERA_VALIDATE(!text.empty() && text[0] == '{', DataError, source,
                   " does not start with '{'; this is not a safetensors file");
  std::vector<Entry> entries;
  std::set<std::string> names;
  JsonReader json(text, source);
  json.object([&](std::string const& name) {
    if (!names.insert(name).second) json.fail(concat("tensor ", name, " is listed twice"));
    if (static_cast<std::int64_t>(names.size()) > max_entries)
      json.fail(concat("more than ", max_entries, " tensors"));
    if (name == "__metadata__") {
      json.object([&](std::string const&) { (void)json.string(); });
      return;
    }
    entries.push_back({name, {}, -1, -1});
    read_entry(json, entries.back());
  });
  json.end();
  return entries;
}

/// The tensors fill the data section exactly: without hole, overlap or rest.
void check_coverage(std::vector<Entry>& entries, std::int64_t data_bytes,
                    std::string const& source) {
  std::sort(entries.begin(), entries.end(), [](auto const& a, auto const& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t at = 0;
  for (auto const& entry : entries) {
    TESSERA_VALIDATE(entry.begin == at, DataError, source, ": tensor ",
                     detail::printable(entry.name), " starts at byte ", entry.begin,
                     " of the data where ", at, " was due; tensors overlap or leave a hole");
    at = entry.end;
  }
  TESSERA_VALIDATE(at == data_bytes, DataError, source, ": the tensors need ", at,
                   " bytes, the file has ", data_bytes, " after its header; it is ",
                   data_bytes < at ? "truncated" : "longer than it says");
}

std::vector<Entry> read_header(detail::File const& file) {
  std::string const path = file.path().string();
  std::int64_t const size = file.size();
  TESSERA_VALIDATE(size >= 8, DataError, path, " has ", size,
                   " bytes; this is not a safetensors file");
  std::array<unsigned char, 8> raw{};
  file.read(raw.data(), 8, 0);
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | raw[static_cast<std::size_t>(i)];
  TESSERA_VALIDATE(length <= static_cast<std::uint64_t>(max_header_bytes), DataError, path,
                   " says that its header has ", length, " bytes; at most ",
                   human_bytes(max_header_bytes), " are read");
  auto const bytes = static_cast<std::int64_t>(length);
  TESSERA_VALIDATE(bytes <= size - 8, DataError, path, " has ", size, " bytes, its header needs ",
                   bytes + 8, "; it is truncated");
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(text.data(), bytes, 8);
  auto entries = parse_header(text, path + ", header");
  check_coverage(entries, size - 8 - bytes, path);
  for (auto& entry : entries) entry.value.file_offset = 8 + bytes + entry.begin;
  return entries;
}

/// Tensor name -> file of model.safetensors.index.json.
std::map<std::string, std::string> read_index(fs::path const& index) {
  std::map<std::string, std::string> weight_map;
  std::string const text = detail::read_text(index, max_index_bytes);
  JsonReader json(text, index.string());
  bool seen = false;
  json.object([&](std::string const& key) {
    if (key != "weight_map") {
      (void)json.raw();
      return;
    }
    if (seen) json.fail("'weight_map' is listed twice");
    seen = true;
    json.object([&](std::string const& name) {
      std::string file = json.string();
      if (!detail::is_plain_name(file))
        json.fail(concat("tensor ", name, " is said to be in '", file,
                         "'; only a plain file name next to the index is accepted"));
      if (!weight_map.emplace(name, std::move(file)).second)
        json.fail(concat("tensor ", name, " is listed twice"));
    });
  });
  json.end();
  TESSERA_VALIDATE(seen, DataError, index.string(), " has no 'weight_map'");
  return weight_map;
}

}  // namespace

struct SafetensorsReader::State {
  std::vector<detail::File> files;
  std::vector<fs::path> paths;
  std::map<std::string, SafetensorsEntry> entries;

  /// A link is followed where the user named the file himself or keeps his cache that way (a hub
  /// cache is links into blobs).
  void add(fs::path const& path) {
    files.push_back(detail::File::open_read(path));
    paths.push_back(path);
    for (auto& entry : read_header(files.back())) {
      entry.value.file = static_cast<int>(files.size()) - 1;
      TESSERA_VALIDATE(entries.emplace(entry.name, entry.value).second, DataError, path.string(),
                       ": tensor ", detail::printable(entry.name), " is in ",
                       paths[static_cast<std::size_t>(entries[entry.name].file)].string(), " too");
    }
  }

  void add_index(fs::path const& index) {
    auto const weight_map = read_index(index);
    std::set<std::string> names;
    for (auto const& [tensor, file] : weight_map)
      if (names.insert(file).second) add(index.parent_path() / file);
    for (auto const& [tensor, file] : weight_map) {
      auto const it = entries.find(tensor);
      if (it == entries.end())
        continue;  // such as a tied head; who needs it says that it is missing
      TESSERA_VALIDATE(paths[static_cast<std::size_t>(it->second.file)].filename() == file,
                       DataError, index.string(), ": tensor ", detail::printable(tensor),
                       " is not in ", file);
    }
  }
};

SafetensorsReader::SafetensorsReader(fs::path const& path) : state_(std::make_unique<State>()) {
  std::error_code error;
  fs::path const single = path / "model.safetensors", index = path / "model.safetensors.index.json";
  if (!fs::is_directory(path, error)) {
    if (path.extension() == ".json")
      state_->add_index(path);
    else
      state_->add(path);
  } else if (fs::exists(single, error)) {
    state_->add(single);
  } else {
    TESSERA_VALIDATE(
        fs::exists(index, error), IoError, path.string(),
        " has neither model.safetensors nor model.safetensors.index.json; give a directory "
        "of Hugging Face weights");
    state_->add_index(index);
  }
}

SafetensorsReader::SafetensorsReader(ConfigTree const& layout, std::vector<int> const& descriptors)
    : state_(std::make_unique<State>()) {
  for (auto const& path : layout.at("files").as_array()) {
    state_->paths.push_back(path.as_string());
    state_->files.push_back(
        detail::File::adopt(descriptors[state_->files.size()], path.as_string()));
  }
  for (auto const& [name, t] : layout.at("tensors").as_object()) {
    SafetensorsEntry entry{t.at("dtype").as_string(),
                           {},
                           1,
                           static_cast<int>(t.at("file").as_int()),
                           t.at("offset").as_int(),
                           t.at("bytes").as_int()};
    for (auto const& dim : t.at("shape").as_array()) {
      entry.shape.push_back(dim.as_int());
      entry.numel *= dim.as_int();
    }
    state_->entries.emplace(name, std::move(entry));
  }
}

ConfigTree SafetensorsReader::layout() const {
  ConfigTree::Array files;
  for (auto const& path : state_->paths) files.emplace_back(path.string());
  ConfigTree::Object tensors;
  for (auto const& [name, entry] : state_->entries) {
    ConfigTree t;
    t.set("dtype", entry.dtype)
        .set("file", entry.file)
        .set("offset", entry.file_offset)
        .set("bytes", entry.bytes);
    t.set("shape", ConfigTree::Array(entry.shape.begin(), entry.shape.end()));
    tensors.emplace_back(name, std::move(t));
  }
  ConfigTree layout;
  return layout.set("files", std::move(files)).set("tensors", std::move(tensors));
}

SafetensorsReader::~SafetensorsReader() = default;
SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;
SafetensorsReader& SafetensorsReader::operator=(SafetensorsReader&&) noexcept = default;

std::map<std::string, SafetensorsEntry> const& SafetensorsReader::entries() const {
  return state_->entries;
}
std::vector<fs::path> const& SafetensorsReader::files() const { return state_->paths; }

SafetensorsEntry const* SafetensorsReader::find(std::string const& name) const {
  auto const it = state_->entries.find(name);
  return it == state_->entries.end() ? nullptr : &it->second;
}

void SafetensorsReader::read_as_fp32(std::string const& name, std::int64_t first,
                                     std::int64_t numel, float* out) const {
  auto const* entry = find(name);
  TESSERA_VALIDATE(entry != nullptr, DataError, state_->paths[0].string(), " has no tensor ", name);
  auto const& file = state_->files[static_cast<std::size_t>(entry->file)];
  TESSERA_VALIDATE(first >= 0 && numel >= 0 && numel <= entry->numel - first, DataError,
                   file.path().string(), ": ", numel, " elements from ", first, " of tensor ", name,
                   ", which has ", entry->numel);
  bool const floating = entry->dtype == "F32" || entry->dtype == "F16" || entry->dtype == "BF16" ||
                        entry->dtype == "F64";
  TESSERA_VALIDATE(floating, DataError, file.path().string(), ": tensor ", name, " is ",
                   entry->dtype, "; F64, F32, F16 and BF16 are read as weights");
  Dtype const dtype = entry->dtype == "F32"   ? Dtype::fp32
                      : entry->dtype == "F64" ? Dtype::fp64
                      : entry->dtype == "F16" ? Dtype::fp16
                                              : Dtype::bf16;
  auto const bytes = static_cast<std::int64_t>(size_of(dtype));
  if (dtype == Dtype::fp32) {
    file.read(out, numel * bytes, entry->file_offset + first * bytes);
    return;
  }
  std::vector<double> buffer(
      static_cast<std::size_t>(std::min(numel * bytes, largest_read) / 8 + 1));
  for (std::int64_t done = 0; done < numel;) {
    std::int64_t const count = std::min(numel - done, largest_read / bytes);
    file.read(buffer.data(), count * bytes, entry->file_offset + (first + done) * bytes);
    detail::to_fp32(buffer.data(), count, dtype, out + done);
    done += count;
  }
}

}  // namespace tessera::checkpoint
