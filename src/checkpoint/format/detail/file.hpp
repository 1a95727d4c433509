#pragma once
/// Files by their system calls: every result checked, interrupted and short transfers continued,
/// names given only to complete files.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::checkpoint::detail {

/// An open file. The destructor closes without a check; close() checks.
class File {
 public:
  File() = default;
  /// A regular file; symbolic links are followed only with Links::follow. @throws IoError
  enum class Links { follow, refuse };
  static File open_read(std::filesystem::path const& path, Links links = Links::follow);
  /// A descriptor that was opened for reading elsewhere; the file owns it from here on.
  static File adopt(int descriptor, std::filesystem::path path) {
    return {descriptor, std::move(path)};
  }
  /// A new file; one that exists is an error.
  static File create(std::filesystem::path const& path);
  static File open_write(std::filesystem::path const& path);
  /// Opens a file for write_aligned() past the page cache (O_DIRECT); it is not open where the file
  /// system is not a local one or has no such way.
  static File open_direct(std::filesystem::path const& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  std::filesystem::path const& path() const { return path_; }
  std::int64_t size() const;
  bool is_open() const { return fd_ >= 0; }

  /// Exactly @p bytes from @p offset. @throws IoError on failure, DataError when the file ends
  /// before
  void read(void* out, std::int64_t bytes, std::int64_t offset) const;
  void write(void const* data, std::int64_t bytes, std::int64_t offset);
  /// One transfer of full pages. @return fewer bytes, down to 0, when only that many went; the
  /// rest may go the ordinary way
  std::int64_t write_aligned(void const* data, std::int64_t bytes, std::int64_t offset);
  /// Reserves space without changing the size, so that a full file system shows itself before the
  /// work and the data is in one run; where that is not supported nothing happens.
  void reserve(std::int64_t bytes);
  void truncate(std::int64_t bytes);
  void sync();
  void close();

  /// Hints to the page cache; their failure is no error.
  void expect_sequential() const;
  void read_ahead(std::int64_t offset, std::int64_t bytes) const;
  void start_writeback(std::int64_t offset, std::int64_t bytes) const;
  void forget(std::int64_t offset, std::int64_t bytes) const;

 private:
  File(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::filesystem::path path_;
};

/// A file that is written under a temporary name and renamed when it is complete; removed when it
/// is not completed.
class PendingFile {
 public:
  explicit PendingFile(std::filesystem::path final_path);
  ~PendingFile();
  PendingFile(PendingFile const&) = delete;
  PendingFile& operator=(PendingFile const&) = delete;

  File& file() { return file_; }
  std::filesystem::path const& final_path() const { return final_path_; }
  std::filesystem::path const& temporary_path() const { return temporary_; }
  /// Another program part (HDF5) makes the file under the temporary name: between these two the
  /// name is free.
  void give_name_away();
  void reopen();
  /// Durable, closed, still under the temporary name; then the rename. commit() does both.
  void seal();
  void publish();
  void commit() {
    seal();
    publish();
  }

 private:
  std::filesystem::path final_path_, temporary_;
  File file_;
  bool committed_ = false;
};

/// Removes pending files that processes which no longer live left in a directory, where @p is_ours
/// knows their final name.
/// @return their names
std::vector<std::string> remove_leftovers(
    std::filesystem::path const& directory,
    std::function<bool(std::string const& final_name)> const& is_ours);

/// Flushes a directory's entries. @throws IoError
void flush_directory(std::filesystem::path const& directory);
void rename_path(std::filesystem::path const& from, std::filesystem::path const& to);
/// Swaps two names in one step; false where the file system cannot.
bool exchange_paths(std::filesystem::path const& a, std::filesystem::path const& b);
void make_directories(std::filesystem::path const& path);
/// False when the name does not exist. @throws IoError when the system refuses to say
bool path_exists(std::filesystem::path const& path);
bool directory_exists(std::filesystem::path const& path);
/// Empty when the directory does not exist. @throws IoError when it cannot be read
std::vector<std::filesystem::directory_entry> entries_of(std::filesystem::path const& directory);
/// The full text of a file of at most @p max_bytes. @throws IoError, DataError when it is larger
std::string read_text(std::filesystem::path const& path, std::int64_t max_bytes,
                      File::Links links = File::Links::follow);

/// Bytes that this user may still write to the file system of @p path.
std::int64_t free_bytes(std::filesystem::path const& path);
/// A file name without separator, NUL or leading dot: what an index or a manifest may name.
bool is_plain_name(std::string_view name);

}  // namespace tessera::checkpoint::detail
