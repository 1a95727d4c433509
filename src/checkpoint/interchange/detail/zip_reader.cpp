#include "interchange/detail/zip_reader.hpp"

#include <zlib.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "format/detail/json_reader.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint::detail {
namespace {

constexpr std::int64_t end_bytes = 22, locator_bytes = 20, end64_bytes = 56, central_bytes = 46,
                       local_bytes = 30;
constexpr std::int64_t largest_comment = 65535, largest_directory = std::int64_t{64} << 20,
                       most_members = 500'000;
constexpr std::uint64_t limit16 = 0xFFFF, limit32 = 0xFFFFFFFF;

std::uint64_t number(std::string_view bytes, std::size_t at, int count) {
  std::uint64_t value = 0;
  for (int i = count; i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  return value;
}
std::uint64_t u16(std::string_view bytes, std::size_t at) { return number(bytes, at, 2); }
std::uint64_t u32(std::string_view bytes, std::size_t at) { return number(bytes, at, 4); }
std::uint64_t u64(std::string_view bytes, std::size_t at) { return number(bytes, at, 8); }

std::string read_bytes(File const& file, std::int64_t offset, std::int64_t bytes) {
  std::string out(static_cast<std::size_t>(bytes), '\0');
  file.read(out.data(), bytes, offset);
  return out;
}

[[noreturn]] void fail(File const& file, std::string const& what) {
  throw DataError(concat(file.path().string(), ": ", what,
                         "; the file is damaged or not written by torch.save"));
}

/// Numbers that do not fit into the classic record are in the ZIP64 field (id 1) in this order.
struct Wide {
  std::uint64_t bytes, stored_bytes, offset;
};
void widen(File const& file, std::string_view extra, Wide& wide) {
  for (std::size_t at = 0; at + 4 <= extra.size();) {
    std::size_t const id = u16(extra, at), size = u16(extra, at + 2);
    if (at + 4 + size > extra.size()) fail(file, "an extra field goes over its end");
    if (id == 1) {
      std::size_t next = at + 4;
      for (auto* value : {&wide.bytes, &wide.stored_bytes, &wide.offset}) {
        if (*value != limit32) continue;
        if (next + 8 > at + 4 + size) fail(file, "a ZIP64 field is too short");
        *value = u64(extra, next);
        next += 8;
      }
      return;
    }
    at += 4 + size;
  }
}

}  // namespace

ZipReader::ZipReader(File const& file) {
  Directory const directory = find_directory(file);
  read_members(file, directory);
  check_places(file, directory);
}

/// The end record is last, followed by at most a comment; the ZIP64 records come right before
/// it.
ZipReader::Directory ZipReader::find_directory(File const& file) const {
  std::int64_t const size = file.size();
  if (size < end_bytes) fail(file, concat("it has ", size, " bytes, too few for a zip archive"));
  std::int64_t const tail_bytes = std::min(size, end_bytes + largest_comment),
                     tail_at = size - tail_bytes;
  std::string const tail = read_bytes(file, tail_at, tail_bytes);
  auto at = static_cast<std::int64_t>(tail.rfind(std::string_view("PK\x05\x06", 4),
                                                 static_cast<std::size_t>(tail_bytes - end_bytes)));
  if (at < 0) fail(file, "no end of a zip archive is found; the file is truncated");
  auto const end = std::string_view(tail).substr(static_cast<std::size_t>(at));
  if (static_cast<std::uint64_t>(end_bytes) + u16(end, 20) != end.size())
    fail(file, "bytes follow the end of the zip archive");
  std::uint64_t disk = u16(end, 4) | u16(end, 6), count = u16(end, 10), bytes = u32(end, 12),
                offset = u32(end, 16);
  std::int64_t before = tail_at + at;
  bool const wide = count == limit16 || bytes == limit32 || offset == limit32;
  std::int64_t const locator_at = before - locator_bytes;
  if (locator_at >= end64_bytes) {
    std::string const locator = read_bytes(file, locator_at, locator_bytes);
    if (u32(locator, 0) == 0x07064b50) {
      std::uint64_t const end64_at = u64(locator, 8);
      if (end64_at != static_cast<std::uint64_t>(locator_at - end64_bytes))
        fail(file, "the ZIP64 end record is not where its locator says");
      std::string const end64 = read_bytes(file, locator_at - end64_bytes, end64_bytes);
      if (u32(end64, 0) != 0x06064b50) fail(file, "the ZIP64 end record is missing");
      disk = u32(end64, 16) | u32(end64, 20), count = u64(end64, 32), bytes = u64(end64, 40),
      offset = u64(end64, 48);
      before = locator_at - end64_bytes;
    } else if (wide) {
      fail(file, "the ZIP64 records are missing");
    }
  } else if (wide) {
    fail(file, "the ZIP64 records are missing");
  }
  if (disk != 0) fail(file, "the archive is one of several parts");
  if (count > static_cast<std::uint64_t>(most_members))
    fail(file,
         concat("it says that it has ", count, " members; at most ", most_members, " are read"));
  if (bytes > static_cast<std::uint64_t>(largest_directory))
    fail(file,
         concat("its directory has ", human_bytes(static_cast<std::int64_t>(bytes)), "; at most ",
                human_bytes(static_cast<std::int64_t>(largest_directory)), " are read"));
  if (offset > static_cast<std::uint64_t>(before) ||
      bytes != static_cast<std::uint64_t>(before) - offset)
    fail(file, concat("its directory of ", bytes, " bytes at ", offset, " does not end at byte ",
                      before));
  if (count * central_bytes > bytes)
    fail(file, concat("its directory of ", bytes, " bytes is too small for ", count, " members"));
  return {static_cast<std::int64_t>(offset), static_cast<std::int64_t>(bytes),
          static_cast<std::int64_t>(count)};
}

void ZipReader::read_members(File const& file, Directory const& directory) {
  std::string const text = read_bytes(file, directory.offset, directory.bytes);
  std::string_view const all = text;
  std::size_t at = 0;
  for (std::int64_t i = 0; i < directory.count; ++i) {
    if (at + static_cast<std::size_t>(central_bytes) > all.size() || u32(all, at) != 0x02014b50)
      fail(file, concat("directory entry ", i, " is missing"));
    auto const entry = all.substr(at);
    std::size_t const name_bytes = u16(entry, 28), extra_bytes = u16(entry, 30),
                      comment_bytes = u16(entry, 32);
    std::size_t const entry_bytes =
        static_cast<std::size_t>(central_bytes) + name_bytes + extra_bytes + comment_bytes;
    if (entry_bytes > entry.size()) fail(file, concat("directory entry ", i, " goes over the end"));
    ZipMember member;
    member.name = entry.substr(static_cast<std::size_t>(central_bytes), name_bytes);
    std::string const shown = printable(member.name);
    if (u16(entry, 8) & 1) fail(file, concat("member ", shown, " is encrypted"));
    TESSERA_VALIDATE(u16(entry, 10) == 0, DataError, file.path().string(), ": member ", shown,
                     " is compressed (method ", u16(entry, 10),
                     "); torch.save stores its members plainly: unpack it and pack it again with "
                     "zip -0, or save it again with torch");
    Wide wide{u32(entry, 24), u32(entry, 20), u32(entry, 42)};
    widen(file, entry.substr(static_cast<std::size_t>(central_bytes) + name_bytes, extra_bytes),
          wide);
    if (wide.bytes != wide.stored_bytes)
      fail(file,
           concat("member ", shown, " has two sizes, ", wide.bytes, " and ", wide.stored_bytes));
    auto const limit = static_cast<std::uint64_t>(directory.offset);
    if (wide.offset > limit || wide.bytes > limit - wide.offset)
      fail(file,
           concat("member ", shown, " of ", wide.bytes, " bytes goes over the end of the data"));
    member.bytes = static_cast<std::int64_t>(wide.bytes);
    member.crc32 = static_cast<std::uint32_t>(u32(entry, 16));
    members_.push_back(std::move(member));
    headers_.push_back(static_cast<std::int64_t>(wide.offset));
    at += entry_bytes;
  }
  if (at != all.size())
    fail(file, concat(all.size() - at, " bytes of its directory belong to no member"));
}

/// Contents from the local headers, then: inside the data, one after the other.
void ZipReader::check_places(File const& file, Directory const& directory) {
  std::vector<std::size_t> order(members_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return headers_[a] < headers_[b]; });
  std::vector<ZipMember> sorted;
  std::int64_t end = 0;
  for (auto const i : order) {
    ZipMember& member = members_[i];
    std::string const shown = printable(member.name);
    if (headers_[i] < end) fail(file, concat("member ", shown, " overlaps another one"));
    std::int64_t const name_bytes = static_cast<std::int64_t>(member.name.size());
    if (local_bytes + name_bytes > directory.offset - headers_[i])
      fail(file, concat("the header of member ", shown, " goes over the end of the data"));
    std::string const header = read_bytes(file, headers_[i], local_bytes + name_bytes);
    bool const same =
        u32(header, 0) == 0x04034b50 && u16(header, 8) == 0 &&
        u16(header, 26) == member.name.size() &&
        std::string_view(header).substr(static_cast<std::size_t>(local_bytes)) == member.name;
    if (!same) fail(file, concat("the header of member ", shown, " disagrees with the directory"));
    member.offset =
        headers_[i] + local_bytes + name_bytes + static_cast<std::int64_t>(u16(header, 28));
    if (member.offset > directory.offset || member.bytes > directory.offset - member.offset)
      fail(file,
           concat("member ", shown, " of ", member.bytes, " bytes goes over the end of the data"));
    end = member.offset + member.bytes;
    if (!by_name_.emplace(member.name, sorted.size()).second)
      fail(file, concat("member ", shown, " is listed twice"));
    sorted.push_back(std::move(member));
  }
  members_ = std::move(sorted);
  std::sort(headers_.begin(), headers_.end());
}

ZipMember const* ZipReader::find(std::string const& name) const {
  auto const it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &members_[it->second];
}

void check_crc(File const& file, ZipMember const& member) {
  constexpr std::int64_t chunk = std::int64_t{4} << 20;
  std::vector<unsigned char> buffer(static_cast<std::size_t>(std::min(chunk, member.bytes)));
  std::uint32_t crc = 0;
  for (std::int64_t done = 0; done < member.bytes; done += chunk) {
    std::int64_t const count = std::min(chunk, member.bytes - done);
    file.read(buffer.data(), count, member.offset + done);
    crc = static_cast<std::uint32_t>(crc32_z(crc, buffer.data(), static_cast<z_size_t>(count)));
  }
  TESSERA_VALIDATE(crc == member.crc32, DataError, file.path().string(), ": member ",
                   printable(member.name), " has CRC-32 ", crc, " where ", member.crc32,
                   " is recorded; the file is damaged (or was saved with torch's CRC switched off: "
                   "then read it without the check)");
}

}  // namespace tessera::checkpoint::detail
