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
#include "tessera/core/host.hpp"

namespace tessera {
namespace fs = std::filesystem;
namespace {

std::string user_name(uid_t user) {
  passwd entry = {}, *found = nullptr;
  char text[4096];
  if (::getpwuid_r(user, &entry, text, sizeof text, &found) == 0 && found) return entry.pw_name;
  return std::to_string(user);
}

/// Into a device, a pipe or a terminal, which a rename would replace by a file.
void write_through(fs::path const& file, std::string const& text) {
  int const d = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (d < 0) throw IoError(with_errno("cannot open " + file.string(), errno));
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
  if (d < 0) throw IoError(with_errno("cannot create " + temporary.string(), errno));
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
  if (!in) throw IoError(with_errno("cannot read " + from.string(), errno));
  write_file_atomically(to, content);
}

}  // namespace tessera
