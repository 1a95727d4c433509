#include "format/detail/virtual_sources.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string_view>

#include "format/detail/file.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

// a list: version 0 (1 byte), count (8), sources, checksum (4); a source: two names with their NUL,
// two selections
constexpr std::int64_t list_bytes = 13;
/// "All": type 3, version 1, two reserved words.
constexpr std::int64_t all_bytes = 16;
constexpr char placeholder_mark[] = "tessera-sources-";

constexpr std::int64_t page = 4096;  ///< heap collections start at its multiples (h5::create_file)
constexpr std::int64_t heap_header = 16, object_header = 16;

void put(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

std::uint64_t get(char const* at, int bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(at[i])) << (8 * i);
  return value;
}

/// Version 1 of a hyperslab selection: type 2, version 1, reserved, bytes that follow, rank,
/// blocks; first and last coordinate of each block.
std::int64_t blocks_bytes(std::size_t boxes, std::size_t dimensions) {
  return 24 + static_cast<std::int64_t>(boxes * dimensions * 8);
}

void put_blocks(std::string& out, std::vector<Box> const& boxes, std::size_t dimensions) {
  for (std::uint64_t const word :
       {std::uint64_t{2}, std::uint64_t{1}, std::uint64_t{0},
        static_cast<std::uint64_t>(blocks_bytes(boxes.size(), dimensions) - 16),
        static_cast<std::uint64_t>(dimensions), static_cast<std::uint64_t>(boxes.size())})
    put(out, word, 4);
  for (auto const& box : boxes) {
    for (std::size_t d = 0; d < dimensions; ++d) put(out, box.start[d], 4);
    for (std::size_t d = 0; d < dimensions; ++d) put(out, box.start[d] + box.count[d] - 1, 4);
  }
}

struct Range {
  std::int64_t first = 0, last = 0;
};

/// The part of the tensor below index `prefix[0..depth)`, whose first element is number `base`.
void cut(std::vector<std::int64_t> const& shape, std::size_t depth, Box prefix, std::int64_t base,
         Range range, std::vector<Box>& out) {
  std::int64_t row = 1;
  for (std::size_t d = depth + 1; d < shape.size(); ++d) row *= shape[d];
  while (range.first < range.last) {
    std::int64_t const index = range.first / row, rest = range.first % row,
                       rows = (range.last - range.first) / row;
    prefix.start[depth] = static_cast<std::uint64_t>(index);
    prefix.count[depth] = 1;
    if (rest == 0 && rows > 0) {
      Box box = prefix;
      box.first = base + range.first;
      box.numel = rows * row;
      box.count[depth] = static_cast<std::uint64_t>(rows);
      for (std::size_t d = depth + 1; d < shape.size(); ++d)
        box.count[d] = static_cast<std::uint64_t>(shape[d]);
      out.push_back(box);
      range.first += rows * row;
      continue;
    }
    std::int64_t const end = std::min(range.last, (index + 1) * row);
    cut(shape, depth + 1, prefix, base + index * row, {rest, end - index * row}, out);
    range.first = end;
  }
}

/// The ordinal when the object of a global heap is a placeholder, else -1.
std::int64_t ordinal_of(std::string_view object) {
  constexpr std::size_t name = 1 + 8 + 2;  // version, count, "." and its NUL
  constexpr std::size_t digits = name + sizeof placeholder_mark - 1;
  if (object.size() < digits + 12 || object[0] != 0 || get(object.data() + 1, 8) != 1 ||
      object.substr(9, 2) != std::string_view(".\0", 2))
    return -1;
  if (object.substr(name, sizeof placeholder_mark - 1) != placeholder_mark) return -1;
  std::int64_t ordinal = 0;
  for (std::size_t i = digits; i < digits + 12; ++i) {
    if (object[i] < '0' || object[i] > '9') return -1;
    ordinal = ordinal * 10 + (object[i] - '0');
  }
  return ordinal;
}

/// Objects of one collection that starts at @p at and has @p bytes.
std::int64_t fill_collection(File& file, std::int64_t at, std::int64_t bytes,
                             std::function<std::string(std::int64_t)> const& encoded) {
  std::int64_t filled = 0;
  for (std::int64_t object = at + heap_header; object + object_header <= at + bytes;) {
    char head[object_header];
    file.read(head, object_header, object);
    std::int64_t const size = static_cast<std::int64_t>(get(head + 8, 8));
    if (get(head, 2) == 0 || size < 0 || size > at + bytes - object - object_header)
      break;  // index 0: the free space at the end
    std::string start(static_cast<std::size_t>(std::min<std::int64_t>(size, 64)), '\0');
    file.read(start.data(), static_cast<std::int64_t>(start.size()), object + object_header);
    if (std::int64_t const ordinal = ordinal_of(start); ordinal >= 0) {
      std::string const list = encoded(ordinal);
      if (static_cast<std::int64_t>(list.size()) == size) {
        file.write(list.data(), size, object + object_header);
        ++filled;
      }
    }
    object += object_header + (size + 7) / 8 * 8;
  }
  return filled;
}

}  // namespace

std::vector<Box> boxes_of(std::vector<std::int64_t> const& shape, std::int64_t first,
                          std::int64_t numel) {
  std::vector<Box> boxes;
  cut(shape, 0, {}, 0, {first, first + numel}, boxes);
  return boxes;
}

bool can_encode(std::vector<std::int64_t> const& shape) {
  return std::all_of(shape.begin(), shape.end(),
                     [](std::int64_t d) { return d <= std::numeric_limits<std::uint32_t>::max(); });
}

std::int64_t encoded_bytes(std::vector<VirtualSource> const& sources, std::string const& dataset,
                           std::size_t dimensions) {
  std::int64_t bytes = list_bytes;
  for (auto const& source : sources)
    bytes += static_cast<std::int64_t>(source.file->size() + dataset.size()) + 2 + all_bytes +
             blocks_bytes(source.boxes.size(), dimensions);
  return bytes;
}

std::string encode(std::vector<VirtualSource> const& sources, std::string const& dataset,
                   std::size_t dimensions) {
  std::string out;
  out.reserve(static_cast<std::size_t>(encoded_bytes(sources, dataset, dimensions)));
  put(out, 0, 1);
  put(out, sources.size(), 8);
  for (auto const& source : sources) {
    out.append(source.file->c_str(), source.file->size() + 1);
    out.append(dataset.c_str(), dataset.size() + 1);
    for (std::uint64_t const word : {3, 1, 0, 0}) put(out, word, 4);
    put_blocks(out, source.boxes, dimensions);
  }
  put(out, lookup3(out.data(), out.size()), 4);
  return out;
}

std::string placeholder_name(std::int64_t ordinal, std::int64_t bytes) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%012lld", static_cast<long long>(ordinal));
  std::string name = std::string(placeholder_mark) + digits;
  std::int64_t const length = bytes - list_bytes - 2 - 1 - 2 * all_bytes;  // "." and both NULs
  TESSERA_EXPECT(length >= static_cast<std::int64_t>(name.size()), "a placeholder of ", bytes,
                 " bytes is too short");
  name.resize(static_cast<std::size_t>(length), '_');
  return name;
}

std::int64_t fill_placeholders(std::filesystem::path const& path,
                               std::function<std::string(std::int64_t)> const& encoded) {
  File file = File::open_write(path);
  std::int64_t const size = file.size();
  std::int64_t filled = 0;
  for (std::int64_t at = 0; at + heap_header <= size;) {
    char head[heap_header];
    file.read(head, heap_header, at);
    std::int64_t const bytes = static_cast<std::int64_t>(get(head + 8, 8));
    bool const collection =
        std::memcmp(head, "GCOL\1", 5) == 0 && bytes >= heap_header && bytes <= size - at;
    if (collection) filled += fill_collection(file, at, bytes, encoded);
    at += collection ? (bytes + page - 1) / page * page : page;
  }
  file.close();
  return filled;
}

std::uint32_t lookup3(void const* data, std::size_t bytes) {
  auto const* at = static_cast<char const*>(data);
  std::uint32_t a = 0xdeadbeefu + static_cast<std::uint32_t>(bytes), b = a, c = a;
  auto const add = [&](char const* block) {
    a += static_cast<std::uint32_t>(get(block, 4));
    b += static_cast<std::uint32_t>(get(block + 4, 4));
    c += static_cast<std::uint32_t>(get(block + 8, 4));
  };
  if (bytes == 0) return c;
  for (; bytes > 12; bytes -= 12, at += 12) {
    add(at);
    a -= c, a ^= std::rotl(c, 4), c += b;
    b -= a, b ^= std::rotl(a, 6), a += c;
    c -= b, c ^= std::rotl(b, 8), b += a;
    a -= c, a ^= std::rotl(c, 16), c += b;
    b -= a, b ^= std::rotl(a, 19), a += c;
    c -= b, c ^= std::rotl(b, 4), b += a;
  }
  char last[12] = {};
  std::memcpy(last, at, bytes);
  add(last);
  c ^= b, c -= std::rotl(b, 14);
  a ^= c, a -= std::rotl(c, 11);
  b ^= a, b -= std::rotl(a, 25);
  c ^= b, c -= std::rotl(b, 16);
  a ^= c, a -= std::rotl(c, 4);
  b ^= a, b -= std::rotl(a, 14);
  c ^= b, c -= std::rotl(b, 24);
  return c;
}

}  // namespace tessera::checkpoint::detail
