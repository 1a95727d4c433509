#pragma once
/// Zip archives as torch.save writes them: stored entries, ZIP64. Nothing in the file is trusted.
/// PKWARE APPNOTE.TXT 6.3.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "format/detail/file.hpp"

namespace tessera::checkpoint::detail {

struct ZipMember {
  std::string name;
  std::int64_t offset = 0;  ///< offset of the content, bytes from the start of the file
  std::int64_t bytes = 0;
  std::uint32_t crc32 = 0;
};

/// The directory of an archive. Members are inside the file, do not overlap, have distinct names,
/// agree with their local headers, are neither compressed nor encrypted.
class ZipReader {
 public:
  /// @throws DataError naming file and member
  explicit ZipReader(File const& file);
  std::vector<ZipMember> const& members() const { return members_; }  ///< by offset
  ZipMember const* find(std::string const& name) const;

 private:
  struct Directory {
    std::int64_t offset = 0, bytes = 0, count = 0;
  };
  Directory find_directory(File const& file) const;
  void read_members(File const& file, Directory const& directory);
  void check_places(File const& file, Directory const& directory);

  std::vector<ZipMember> members_;
  std::vector<std::int64_t> headers_;  ///< offsets of the local headers, parallel to members_
  std::unordered_map<std::string, std::size_t> by_name_;
};

/// Reads the content and compares its CRC-32. @throws DataError naming file and member
void check_crc(File const& file, ZipMember const& member);

}  // namespace tessera::checkpoint::detail
