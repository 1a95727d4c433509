#include "tessera/core/files.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"

namespace tessera {
namespace fs = std::filesystem;
namespace {

std::string user_name(uid_t user) {
  passwd entry = {}, *found = nullptr;
  char text[4096];
  if (::getpwuid_r(user, &entry, text, sizeof text, &found) == 0 && found) return entry.pw_name;
  return std::to_string(user);
}

std::string advice(int error, fs::path const& path) {
  switch (error) {
    case ENOSPC:
      return "; the file system is full: remove old checkpoints or use another directory";
    case EDQUOT:
      return "; your quota is used up: remove old files or use another directory";
    case EFBIG:
      return "; the file size limit (ulimit -f) is too small";
    case EACCES:
    case EPERM:
      return "; " + describe_denial(path);
    case EROFS:
      return "; the file system is mounted read-only: use another directory";
    case ENOENT:
      return "; check the path";
    case ELOOP:
      return "; it is a symbolic link, which is not followed here: put the file itself there";
    default:
      return "";
  }
}

/// Into a device, a pipe or a terminal, which a rename would replace by a file.
void write_through(fs::path const& file, std::string const& text) {
  int const d = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (d < 0) throw IoError(path_error("cannot open", file, errno));
  try {
    write_all(d, text, file);
  } catch (...) {
    ::close(d);
    throw;
  }
  ::close(d);
}

}  // namespace

void write_all(int descriptor, std::string const& text, fs::path const& file) {
  std::size_t done = 0;
  while (done < text.size()) {
    ssize_t const n = ::write(descriptor, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw IoError(with_errno(concat("cannot write ", file.string(), " (", done, " of ",
                                      text.size(), " bytes written)"),
                               errno));
    done += static_cast<std::size_t>(n);
  }
}

std::string describe_denial(fs::path const& path) {
  fs::path const absolute = fs::absolute(path).lexically_normal();
  fs::path place;  // the first directory that may not be searched, else the last part that exists
  for (auto const& part : absolute) {
    struct stat info = {};
    fs::path const next = place / part;
    if (part.empty() || ::stat(next.c_str(), &info) != 0) break;
    place = next;
    if (S_ISDIR(info.st_mode) && ::access(place.c_str(), X_OK) != 0) break;
  }
  struct stat info = {};
  if (place.empty() || ::stat(place.c_str(), &info) != 0) return "check its owner and mode";
  char mode[16];
  std::snprintf(mode, sizeof mode, "%04o", info.st_mode & 07777u);
  return concat(place.string(), " (owner ", user_name(info.st_uid), ", mode ", mode,
                ") is closed to user ", user_name(::geteuid()));
}

std::string path_error(std::string_view what, fs::path const& path, int errno_value) {
  return with_errno(concat(what, " ", path.string()), errno_value) + advice(errno_value, path);
}

void sync_directory(fs::path const& directory) {
  int const d =
      ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (d < 0) return;
  ::fsync(d);
  ::close(d);
}

void write_file_atomically(fs::path const& file, std::string const& text) {
  std::error_code absent;
  auto const status = fs::status(file, absent);
  if (fs::exists(status) && !fs::is_regular_file(status)) return write_through(file, text);
  fs::path temporary = file;
  temporary +=
      concat(".tmp.", host_name(), "-", ::getpid(),
             "-0");  // names the owner, so that a leftover of a killed process can be removed
  int const d = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (d < 0) throw IoError(path_error("cannot create", temporary, errno));
  try {
    write_all(d, text, temporary);
    if (::fsync(d) != 0) throw IoError(with_errno("cannot sync " + temporary.string(), errno));
  } catch (...) {
    ::close(d);
    ::unlink(temporary.c_str());
    throw;
  }
  ::close(d);
  if (::rename(temporary.c_str(), file.c_str()) != 0) {
    int const why = errno;
    ::unlink(temporary.c_str());
    throw IoError(
        with_errno(concat("cannot rename ", temporary.string(), " to ", file.string()), why));
  }
  sync_directory(file.parent_path());
}

void copy_file_atomically(fs::path const& from, fs::path const& to) {
  errno = 0;
  std::ifstream in(from, std::ios::binary);
  std::string const content{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw IoError(path_error("cannot read", from, errno));
  write_file_atomically(to, content);
}

}  // namespace tessera
