#include "interchange/detail/torch_file.hpp"

#include <algorithm>
#include <cstring>

#include "format/detail/json_reader.hpp"
#include "interchange/detail/element_conversion.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint::detail {
namespace {

constexpr std::int64_t largest_read = std::int64_t{4} << 20,
                       largest_expanded = std::int64_t{1} << 20;
constexpr std::string_view legacy_magic{"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10};

struct StorageClass {
  std::string_view name;
  ElementType type;
};
constexpr StorageClass storage_classes[] = {
    {"FloatStorage", ElementType::fp32},    {"HalfStorage", ElementType::fp16},
    {"BFloat16Storage", ElementType::bf16}, {"DoubleStorage", ElementType::fp64},
    {"LongStorage", ElementType::int64},    {"IntStorage", ElementType::int32},
    {"ShortStorage", ElementType::int16},   {"CharStorage", ElementType::int8},
    {"ByteStorage", ElementType::uint8},    {"BoolStorage", ElementType::boolean}};

ElementType type_of(PickleValue storage_class) {
  for (auto const& known : storage_classes)
    if (storage_class.is_global("torch", known.name)) return known.type;
  storage_class.fail(
      concat("a storage is of class ",
             storage_class.kind() == Pickle::Kind::global ? storage_class.global_name() : "nothing",
             "; floating-point and integer storages of 8 to 64 bits are read"));
}

template <class Stored>
void integers_to_fp32(void const* in, std::int64_t numel, float* out) {
  auto const* bytes = static_cast<char const*>(in);
  for (std::int64_t i = 0; i < numel; ++i) {
    Stored value;
    std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    out[i] = static_cast<float>(value);
  }
}

void convert(void const* in, std::int64_t numel, ElementType type, float* out) {
  switch (type) {
    case ElementType::fp32:
      to_fp32(in, numel, Dtype::fp32, out);
      break;
    case ElementType::fp16:
      to_fp32(in, numel, Dtype::fp16, out);
      break;
    case ElementType::bf16:
      to_fp32(in, numel, Dtype::bf16, out);
      break;
    case ElementType::fp64:
      to_fp32(in, numel, Dtype::fp64, out);
      break;
    case ElementType::int64:
      integers_to_fp32<std::int64_t>(in, numel, out);
      break;
    case ElementType::int32:
      integers_to_fp32<std::int32_t>(in, numel, out);
      break;
    case ElementType::int16:
      integers_to_fp32<std::int16_t>(in, numel, out);
      break;
    case ElementType::int8:
      integers_to_fp32<std::int8_t>(in, numel, out);
      break;
    case ElementType::uint8:
    case ElementType::boolean:
      integers_to_fp32<std::uint8_t>(in, numel, out);
      break;
  }
}

void read_run(File const& file, ElementType type, std::int64_t offset, std::int64_t numel,
              float* out) {
  std::int64_t const size = bytes_of(type);
  if (type == ElementType::fp32) {
    file.read(out, numel * size, offset);
    return;
  }
  std::vector<double> buffer(
      static_cast<std::size_t>(std::min(numel * size, largest_read) / 8 + 1));
  for (std::int64_t done = 0; done < numel;) {
    std::int64_t const count = std::min(numel - done, largest_read / size);
    file.read(buffer.data(), count * size, offset + done * size);
    convert(buffer.data(), count, type, out + done);
    done += count;
  }
}

/// Elements one by one through a window of the file: for the rare tensor saved as a transposed or
/// sliced view.
void read_strided(File const& file, TensorLocation const& place, std::int64_t first,
                  std::int64_t numel, float* out) {
  std::int64_t const size = bytes_of(place.type), file_bytes = file.size(), window_bytes = 65536;
  std::vector<char> window;
  std::int64_t window_at = 0;
  for (std::int64_t i = 0; i < numel; ++i) {
    std::int64_t rest = first + i, element = 0;
    for (std::size_t d = place.shape.size(); d-- > 0;) {
      element += rest % place.shape[d] * place.strides[d];
      rest /= place.shape[d];
    }
    std::int64_t const at = place.file_offset + element * size;
    bool const inside =
        at >= window_at && at + size <= window_at + static_cast<std::int64_t>(window.size());
    if (!inside) {
      window_at = at;
      window.resize(
          static_cast<std::size_t>(std::max(size, std::min(window_bytes, file_bytes - at))));
      file.read(window.data(), static_cast<std::int64_t>(window.size()), at);
    }
    convert(window.data() + (at - window_at), 1, place.type, out + i);
  }
}

}  // namespace

std::int64_t bytes_of(ElementType type) {
  switch (type) {
    case ElementType::fp64:
    case ElementType::int64:
      return 8;
    case ElementType::fp32:
    case ElementType::int32:
      return 4;
    case ElementType::fp16:
    case ElementType::bf16:
    case ElementType::int16:
      return 2;
    case ElementType::int8:
    case ElementType::uint8:
    case ElementType::boolean:
      return 1;
  }
  return 0;
}

void read_as_fp32(File const& file, TensorLocation const& place, std::int64_t first,
                  std::int64_t numel, float* out) {
  TESSERA_EXPECT(first >= 0 && numel >= 0 && numel <= place.numel - first);
  if (numel == 0) return;
  if (place.strides.empty())
    read_run(file, place.type, place.file_offset + first * bytes_of(place.type), numel, out);
  else
    read_strided(file, place, first, numel, out);
}

std::vector<std::int64_t> read_shape(PickleValue value) {
  PickleValue const list = value.is_call("torch", "Size") ? value.arguments()[0] : value;
  if (list.size() > 32)
    value.fail(concat("a shape has ", list.size(), " dimensions; at most 32 are read"));
  std::vector<std::int64_t> shape;
  for (std::size_t i = 0; i < list.size(); ++i) {
    shape.push_back(list[i].as_int());
    if (shape.back() < 0) value.fail(concat("a dimension is ", shape.back()));
  }
  return shape;
}

std::int64_t numel_of(std::vector<std::int64_t> const& shape, PickleValue const& source) {
  std::int64_t numel = 1;
  for (auto const dim : shape)
    if (__builtin_mul_overflow(numel, dim, &numel) || numel > (std::int64_t{1} << 56))
      source.fail("the product of a shape is too large");
  return numel;
}

TorchFile::TorchFile(std::filesystem::path const& path, CrcCheck check)
    : file_(File::open_read(path)) {
  TESSERA_VALIDATE(file_.size() >= 4, DataError, path.string(), " has ", file_.size(),
                   " bytes; this is not a file of torch.save");
  char start[4] = {};
  file_.read(start, sizeof start, 0);
  std::string_view const begin(start, sizeof start);
  if (begin == std::string_view("PK\x03\x04", 4))
    open_zip(check);
  else if (begin == std::string_view("\x80\x02\x8a\x0a", 4))
    open_legacy();
  else
    throw DataError(concat(
        path.string(),
        " is not a file of torch.save: it is neither a zip archive nor torch's older format"));
}

TorchFile::~TorchFile() = default;
TorchFile::TorchFile(TorchFile&&) noexcept = default;

PickleValue TorchFile::root() const { return pickle_->root(); }

void TorchFile::open_zip(CrcCheck check) {
  zip_ = std::make_unique<ZipReader>(file_);
  ZipMember const* pickle = nullptr;
  for (auto const& member : zip_->members()) {
    auto const slash = member.name.rfind('/');
    if (slash == std::string::npos || member.name.find('/') != slash ||
        member.name.substr(slash) != "/data.pkl")
      continue;
    TESSERA_VALIDATE(pickle == nullptr, DataError, path().string(), " has more than one data.pkl");
    pickle = &member;
    saved_name_ = member.name.substr(0, slash);
  }
  TESSERA_VALIDATE(pickle != nullptr, DataError, path().string(),
                   " is a zip archive without a data.pkl; this is not a file of torch.save");
  TESSERA_VALIDATE(pickle->bytes <= static_cast<std::int64_t>(Pickle::largest), DataError,
                   path().string(), ": data.pkl has ", human_bytes(pickle->bytes), "; at most ",
                   human_bytes(static_cast<std::int64_t>(Pickle::largest)), " are read");
  if (auto const* order = zip_->find(saved_name_ + "/byteorder")) {
    std::string text(static_cast<std::size_t>(std::min<std::int64_t>(order->bytes, 16)), '\0');
    file_.read(text.data(), static_cast<std::int64_t>(text.size()), order->offset);
    TESSERA_VALIDATE(text == "little", DataError, path().string(), " is in byte order '",
                     printable(text), "'; little-endian files are read");
  }
  check_crc(file_, *pickle);
  if (check == CrcCheck::everything)
    for (auto const& member : zip_->members())
      if (&member != pickle) check_crc(file_, member);
  std::string text(static_cast<std::size_t>(pickle->bytes), '\0');
  file_.read(text.data(), pickle->bytes, pickle->offset);
  pickle_ = std::make_unique<Pickle>(std::move(text), path().string() + ", data.pkl");
}

void TorchFile::open_legacy() {
  std::int64_t at = 0;
  auto const next = [&](char const* what) {
    std::string text(static_cast<std::size_t>(std::min<std::int64_t>(
                         file_.size() - at, static_cast<std::int64_t>(Pickle::largest))),
                     '\0');
    file_.read(text.data(), static_cast<std::int64_t>(text.size()), at);
    auto pickle = std::make_unique<Pickle>(std::move(text), concat(path().string(), ", ", what));
    at += static_cast<std::int64_t>(pickle->bytes());
    return pickle;
  };
  auto const magic = next("magic number"), protocol = next("protocol"), system = next("system");
  bool const known = magic->root().kind() == Pickle::Kind::long_integer &&
                     magic->root().raw_text() == legacy_magic && protocol->root().as_int() == 1001;
  TESSERA_VALIDATE(known, DataError, path().string(), " does not start like a file of torch.save");
  if (auto const little = system->root().find("little_endian"))
    TESSERA_VALIDATE(little->as_bool(), DataError, path().string(),
                     " is big-endian; little-endian files are read");
  pickle_ = next("object");
  auto const keys = next("keys");
  // sizes stand before each storage; element types only in the references to it
  std::map<std::string, ElementType> types;
  for (std::size_t i = 0; i < pickle_->values(); ++i) {
    auto const value = pickle_->value(static_cast<Pickle::Id>(i));
    if (value.kind() != Pickle::Kind::persistent) continue;
    auto const arguments = value.arguments();
    if (arguments.size() >= 3) types.emplace(arguments[2].as_text(), type_of(arguments[1]));
  }
  for (std::size_t i = 0; i < keys->root().size(); ++i) {
    auto const key = keys->root()[i].as_text();
    auto const type = types.find(key);
    TESSERA_VALIDATE(type != types.end(), DataError, path().string(),
                     ": nothing refers to storage ", printable(key));
    std::int64_t numel = 0;
    file_.read(&numel, sizeof numel, at);
    at += static_cast<std::int64_t>(sizeof numel);
    std::int64_t const size = bytes_of(type->second);
    TESSERA_VALIDATE(numel >= 0 && numel <= (file_.size() - at) / size, DataError, path().string(),
                     ": storage ", printable(key), " of ", numel,
                     " elements goes over the end of the file");
    TESSERA_VALIDATE(legacy_storages_.emplace(key, Storage{type->second, numel, at}).second,
                     DataError, path().string(), ": storage ", printable(key), " is listed twice");
    at += numel * size;
  }
}

TorchFile::Storage TorchFile::zip_storage(PickleValue arguments, ElementType type) const {
  auto const key = arguments[2].as_text();
  std::int64_t const numel = arguments[4].as_int(), size = bytes_of(type);
  ZipMember const* member = zip_->find(concat(saved_name_, "/data/", key));
  if (member == nullptr) arguments.fail(concat("storage ", printable(key), " is not in the file"));
  if (numel < 0 || numel > member->bytes / size)
    arguments.fail(concat("storage ", printable(key), " of ", numel, " elements has ",
                          member->bytes, " bytes"));
  return {type, numel, member->offset};
}

TorchFile::Storage TorchFile::legacy_storage(PickleValue arguments, ElementType type) const {
  auto const key = arguments[2].as_text();
  auto const it = legacy_storages_.find(key);
  if (it == legacy_storages_.end() || it->second.type != type)
    arguments.fail(concat("storage ", printable(key), " is not in the file"));
  Storage storage = it->second;
  if (arguments.size() < 6 || arguments[5].is_none()) return storage;
  // a view into another storage: (its key, first element, number of elements)
  std::int64_t const first = arguments[5][1].as_int(), numel = arguments[5][2].as_int();
  if (first < 0 || numel < 0 || first > storage.numel || numel > storage.numel - first)
    arguments.fail(concat("a view goes over storage ", printable(key)));
  return {type, numel, storage.file_offset + first * bytes_of(type)};
}

/// ('storage', class, key, location, numel)
TorchFile::Storage TorchFile::storage_of(PickleValue reference) const {
  if (reference.kind() != Pickle::Kind::persistent) reference.fail("a tensor has no storage");
  PickleValue const arguments = reference.arguments();
  if (arguments.size() < 5 || arguments[0].as_text() != "storage")
    reference.fail("a reference is to no storage");
  ElementType const type = type_of(arguments[1]);
  return zip_ ? zip_storage(arguments, type) : legacy_storage(arguments, type);
}

std::optional<TensorLocation> TorchFile::find_tensor(PickleValue value) const {
  if (value.kind() != Pickle::Kind::object) return std::nullopt;
  PickleValue function = value.callable(), arguments = value.arguments();
  // wrappers around the tensor: a parameter (tensor, ...), a tensor with attributes (function,
  // class, its arguments, attributes)
  for (int level = 0; level < 8; ++level) {
    if (function.is_global("torch._tensor", "_rebuild_from_type_v2")) {
      function = arguments[0];
      arguments = arguments[2];
    } else if (function.is_global("torch._utils", "_rebuild_parameter") ||
               function.is_global("torch._utils", "_rebuild_parameter_with_state")) {
      PickleValue const inner = arguments[0];
      if (inner.kind() != Pickle::Kind::object) return std::nullopt;
      function = inner.callable();
      arguments = inner.arguments();
    } else {
      break;
    }
  }
  if (!function.is_global("torch._utils", "_rebuild_tensor_v2") &&
      !function.is_global("torch._utils", "_rebuild_tensor"))
    return std::nullopt;
  if (arguments.size() < 4) value.fail("a tensor lacks storage, offset, shape or strides");
  Storage const storage = storage_of(arguments[0]);
  std::int64_t const offset = arguments[1].as_int();
  TensorLocation place;
  place.type = storage.type;
  place.shape = read_shape(arguments[2]);
  place.strides = read_shape(arguments[3]);
  place.numel = numel_of(place.shape, value);
  if (place.strides.size() != place.shape.size())
    value.fail("a tensor has strides of another number than its dimensions");
  std::int64_t last = 0, expected = 1;
  bool contiguous = true;
  for (std::size_t d = place.shape.size(); d-- > 0;) {
    std::int64_t reach = 0;
    if (place.numel > 0 && (__builtin_mul_overflow(place.shape[d] - 1, place.strides[d], &reach) ||
                            __builtin_add_overflow(last, reach, &last)))
      value.fail("the strides of a tensor are too large");
    contiguous = contiguous && (place.shape[d] == 1 || place.strides[d] == expected);
    expected *= place.shape[d];
  }
  if (offset < 0 || offset > storage.numel || (place.numel > 0 && last >= storage.numel - offset))
    value.fail(concat("a tensor reaches element ", last, " behind element ", offset,
                      " of a storage of ", storage.numel));
  // an expanded tensor (stride 0) may be larger than its file; a small one is all that occurs in
  // practice
  if (place.numel > std::max(storage.numel, largest_expanded))
    value.fail(concat("a tensor of ", place.numel, " elements is in a storage of ", storage.numel));
  if (contiguous || place.numel == 0) place.strides.clear();
  place.storage = static_cast<std::uint64_t>(storage.file_offset);
  place.file_offset = storage.file_offset + offset * bytes_of(storage.type);
  return place;
}

TensorLocation TorchFile::tensor(PickleValue value) const {
  auto const found = find_tensor(value);
  if (!found)
    value.fail(concat("a tensor is expected, ",
                      value.kind() == Pickle::Kind::object
                          ? "a call of " + value.callable().global_name()
                          : std::string("something else"),
                      " is there"));
  return *found;
}

double TorchFile::number(PickleValue value) const {
  auto const place = find_tensor(value);
  if (!place) return value.as_number();
  if (place->numel != 1)
    value.fail(concat("a number is expected, a tensor of ", place->numel, " elements is there"));
  float out = 0;
  read_as_fp32(file_, *place, 0, 1, &out);
  return static_cast<double>(out);
}

}  // namespace tessera::checkpoint::detail
