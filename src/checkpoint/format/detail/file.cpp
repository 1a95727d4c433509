#include "format/detail/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

/// ".model.bin.tmp.host-4711-1": between the final name and who writes it.
constexpr char pending_mark[] = ".tmp.";
/// A file of another host's process is taken for abandoned when nothing was written to it for this
/// long.
constexpr std::chrono::hours abandoned_after{1};

/// One system call moves less than 2 GiB; larger transfers are cut here.
constexpr std::int64_t largest_transfer = std::int64_t{1} << 30;

[[noreturn]] void fail(std::string const& what, fs::path const& path, int error) {
  throw IoError(path_error(what, path, error));
}

int open_checked(fs::path const& path, int flags, char const* what) {
  int fd = -1;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) fail(what, path, errno);
  return fd;
}

}  // namespace

File File::open_read(fs::path const& path, Links links) {
  // O_NONBLOCK: a FIFO in the place of a file must not stop us; it has no effect on a regular file
  File file(open_checked(path, O_RDONLY | O_NONBLOCK | (links == Links::refuse ? O_NOFOLLOW : 0),
                         "cannot open"),
            path);
  struct stat info = {};
  if (fstat(file.fd_, &info) != 0) fail("cannot stat", path, errno);
  TESSERA_VALIDATE(S_ISREG(info.st_mode), DataError, path.string(), " is not a regular file");
  return file;
}

File File::create(fs::path const& path) {
  return File(open_checked(path, O_RDWR | O_CREAT | O_EXCL, "cannot create"), path);
}
File File::open_write(fs::path const& path) {
  return File(open_checked(path, O_RDWR, "cannot open for writing"), path);
}

File File::open_direct(fs::path const& path) {
  struct statfs system = {};
  if (::statfs(path.c_str(), &system) != 0) return {};
  auto const type = static_cast<std::uint64_t>(system.f_type);
  constexpr std::uint64_t ext4 = 0xef53, xfs = 0x58465342, btrfs = 0x9123683e;
  if (type != ext4 && type != xfs && type != btrfs) return {};
  int const fd = ::open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
  return fd < 0 ? File() : File(fd, path);
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}
File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

std::int64_t File::size() const {
  struct stat info = {};
  if (fstat(fd_, &info) != 0) fail("cannot stat", path_, errno);
  return info.st_size;
}

void File::read(void* out, std::int64_t bytes, std::int64_t offset) const {
  auto* at = static_cast<char*>(out);
  while (bytes > 0) {
    ssize_t const got =
        ::pread(fd_, at, static_cast<std::size_t>(std::min(bytes, largest_transfer)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(concat("cannot read ", bytes, " bytes at ", offset, " of"), path_, errno);
    TESSERA_VALIDATE(got > 0, DataError, path_.string(), " ends at byte ", offset, ", ", bytes,
                     " bytes before it should; it is truncated");
    at += got, offset += got, bytes -= got;
  }
}

void File::write(void const* data, std::int64_t bytes, std::int64_t offset) {
  auto const* at = static_cast<char const*>(data);
  while (bytes > 0) {
    ssize_t const put =
        ::pwrite(fd_, at, static_cast<std::size_t>(std::min(bytes, largest_transfer)), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail(concat("cannot write ", bytes, " bytes at ", offset, " to"), path_, errno);
    at += put, offset += put, bytes -= put;
  }
}

std::int64_t File::write_aligned(void const* data, std::int64_t bytes, std::int64_t offset) {
  ssize_t put = 0;
  do put = ::pwrite(fd_, data, static_cast<std::size_t>(bytes), offset);
  while (put < 0 && errno == EINTR);
  if (put < 0 && errno == EINVAL) return 0;
  if (put < 0) fail(concat("cannot write ", bytes, " bytes at ", offset, " to"), path_, errno);
  return put;
}

void File::reserve(std::int64_t bytes) {
  int result = 0;
  do result = ::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, bytes);
  while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
    fail(concat("cannot reserve ", bytes, " bytes for"), path_, errno);
}

void File::truncate(std::int64_t bytes) {
  if (::ftruncate(fd_, bytes) != 0)
    fail(concat("cannot set the size ", bytes, " of"), path_, errno);
}

void File::sync() {
  // after a failed fsync the state of the pages is unknown: never tried again
  if (::fsync(fd_) != 0) fail("cannot flush to disk", path_, errno);
}

void File::close() {
  int const fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) fail("cannot close", path_, errno);
}

void File::expect_sequential() const { (void)posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL); }
void File::read_ahead(std::int64_t offset, std::int64_t bytes) const {
  (void)posix_fadvise(fd_, offset, bytes, POSIX_FADV_WILLNEED);
}
void File::start_writeback(std::int64_t offset, std::int64_t bytes) const {
  (void)::sync_file_range(fd_, offset, bytes, SYNC_FILE_RANGE_WRITE);
}
void File::forget(std::int64_t offset, std::int64_t bytes) const {
  (void)posix_fadvise(fd_, offset, bytes, POSIX_FADV_DONTNEED);
}

PendingFile::PendingFile(fs::path final_path) : final_path_(std::move(final_path)) {
  static std::atomic<int> count{0};
  std::string const name = concat(".", final_path_.filename().string(), pending_mark, host_name(),
                                  "-", ::getpid(), "-", ++count);
  temporary_ = final_path_.has_parent_path() ? final_path_.parent_path() / name : fs::path(name);
  file_ = File::create(temporary_);
}

PendingFile::~PendingFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

namespace {

/// "host-4711-1" is of a process that is gone; without host and process, or of another host: by its
/// age.
bool is_abandoned(fs::path const& path, std::string const& writer) {
  auto const second = writer.rfind('-'), first = second == std::string::npos || second == 0
                                                     ? std::string::npos
                                                     : writer.rfind('-', second - 1);
  int process = 0;
  if (first != std::string::npos && writer.substr(0, first) == host_name()) {
    auto const [end, error] =
        std::from_chars(writer.data() + first + 1, writer.data() + second, process);
    if (error == std::errc{} && end == writer.data() + second && process > 0)
      return ::kill(process, 0) != 0 && errno == ESRCH;
  }
  std::error_code error;
  auto const written = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - written > abandoned_after;
}

}  // namespace

std::vector<std::string> remove_leftovers(fs::path const& directory,
                                          std::function<bool(std::string const&)> const& is_ours) {
  std::vector<std::string> removed;
  std::error_code error;
  for (auto const& entry : fs::directory_iterator(directory, error)) {
    std::string const name = entry.path().filename().string();
    auto const mark = name.rfind(pending_mark);
    if (mark == std::string::npos || !entry.is_regular_file(error)) continue;
    std::size_t const first =
        name.front() == '.' ? 1 : 0;  // write_file_atomically leaves the dot out
    if (mark <= first || !is_ours(name.substr(first, mark - first)) ||
        !is_abandoned(entry.path(), name.substr(mark + sizeof pending_mark - 1)))
      continue;
    if (fs::remove(entry.path(), error)) removed.push_back(name);
  }
  return removed;
}

void PendingFile::give_name_away() {
  file_.close();
  if (::unlink(temporary_.c_str()) != 0) fail("cannot remove", temporary_, errno);
}

void PendingFile::reopen() { file_ = File::open_write(temporary_); }

void PendingFile::seal() {
  file_.sync();
  file_.close();
}

void PendingFile::publish() {
  rename_path(temporary_, final_path_);
  committed_ = true;
  flush_directory(final_path_.has_parent_path() ? final_path_.parent_path() : fs::path("."));
}

void flush_directory(fs::path const& directory) {
  int const fd = open_checked(directory, O_RDONLY | O_DIRECTORY, "cannot open directory");
  int const result = ::fsync(fd), error = errno;
  ::close(fd);
  // file systems that know no fsync of directories say EINVAL
  if (result != 0 && error != EINVAL) fail("cannot flush directory", directory, error);
}

void rename_path(fs::path const& from, fs::path const& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail(concat("cannot rename ", from.string(), " to"), to, errno);
}

bool exchange_paths(fs::path const& a, fs::path const& b) {
  constexpr unsigned exchange = 1u << 1;  // RENAME_EXCHANGE
  return ::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), exchange) == 0;
}

void make_directories(fs::path const& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path))
    fail("cannot create directory", path, error ? error.value() : ENOTDIR);
}

namespace {

/// The mode of what a name leads to; 0 when the name does not exist.
mode_t mode_of(fs::path const& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0) return info.st_mode;
  if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP) fail("cannot access", path, errno);
  return 0;
}

}  // namespace

bool path_exists(fs::path const& path) { return mode_of(path) != 0; }
bool directory_exists(fs::path const& path) { return S_ISDIR(mode_of(path)); }

std::vector<fs::directory_entry> entries_of(fs::path const& directory) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  fs::directory_iterator it(directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) entries.push_back(*it);
  if (error && error != std::errc::no_such_file_or_directory)
    fail("cannot read directory", directory, error.value());
  return entries;
}

std::string read_text(fs::path const& path, std::int64_t max_bytes, File::Links links) {
  File const file = File::open_read(path, links);
  std::int64_t const bytes = file.size();
  TESSERA_VALIDATE(bytes <= max_bytes, DataError, path.string(), " has ", human_bytes(bytes),
                   "; at most ", human_bytes(max_bytes), " are read");
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(text.data(), bytes, 0);
  return text;
}

std::int64_t free_bytes(fs::path const& path) {
  struct statvfs info = {};
  if (::statvfs(path.c_str(), &info) != 0) fail("cannot ask for the free space of", path, errno);
  if (info.f_blocks == 0) return INT64_MAX;  // a file system that tells nothing
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

}  // namespace tessera::checkpoint::detail
