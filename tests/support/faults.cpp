// A disk that fails on demand: an interposed library in which chosen C library calls fail, transfer
// less, or end the process.
//
// TESSERA_FAULTS, or the text given to tessera_set_faults(), has rules separated by ';'. A rule is
// a list of key=value separated by ',':
//
//   call=pwrite   open, mkdir, write (also pwrite), fsync (also fdatasync), rename, close, unlink
//                 (also unlinkat), truncate, reserve, read (also pread), ring (no io_uring: set
//                 it up); default: any except read and ring. Requests of io_uring count as read and
//                 write
//   path=shard_   paths that contain this; default: all
//   rank=1        this rank of mpirun; default: all
//   nth=3         from the third such call on (counted from 1); default: 1
//   times=2       number of calls; default: all that follow
//   do=EIO        the error: EIO ENOSPC EDQUOT EACCES EROFS EINTR EINVAL; or `short`: half the
//                 bytes; `kill`: SIGKILL; `exit`: ends the process with 3; `slow`: 20 ms later;
//                 `reorder`: completions of io_uring that have come are taken in reverse order
//
// tessera_faults_met() counts the calls that a rule changed.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef TESSERA_HAVE_URING
#include <liburing.h>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Rule {
  std::string call, path, action;
  long rank = -1, nth = 1, times = -1, seen = 0;
};

struct Rules {
  std::mutex mutex;
  std::vector<Rule> list;
  Rules() {
    if (char const* text = std::getenv("TESSERA_FAULTS")) set(text);
  }
  void set(std::string const& text) {
    list.clear();
    std::istringstream rules(text);
    for (std::string one; std::getline(rules, one, ';');) {
      Rule rule;
      std::istringstream pairs(one);
      for (std::string pair; std::getline(pairs, pair, ',');) {
        std::string const key = pair.substr(0, pair.find('=')),
                          value = pair.substr(std::min(pair.size(), pair.find('=') + 1));
        if (key == "call")
          rule.call = value;
        else if (key == "path")
          rule.path = value;
        else if (key == "do")
          rule.action = value;
        else if (key == "rank")
          rule.rank = std::atol(value.c_str());
        else if (key == "nth")
          rule.nth = std::atol(value.c_str());
        else if (key == "times")
          rule.times = std::atol(value.c_str());
      }
      if (!rule.action.empty()) list.push_back(rule);
    }
  }
};

Rules& rules() {
  static Rules* const all = new Rules;  // never destroyed: calls come until the process has ended
  return *all;
}
std::atomic<long> met{0};

long own_rank() {
  for (char const* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (char const* const rank = std::getenv(name)) return std::atol(rank);
  return 0;
}

int error_of(std::string const& name) {
  struct {
    char const* name;
    int value;
  } const known[] = {{"EIO", EIO},     {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EACCES", EACCES},
                     {"EROFS", EROFS}, {"EINTR", EINTR},   {"EINVAL", EINVAL}};
  for (auto const& one : known)
    if (name == one.name) return one.value;
  return EIO;
}

std::string path_of(int fd) {
  char link[64], target[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t const length = readlink(link, target, sizeof target);
  return length > 0 ? std::string(target, static_cast<std::size_t>(length)) : "";
}

enum class Outcome { pass, fail, cut, reorder };

/// What becomes of a call; errno is set for `fail`.
Outcome outcome_of(char const* call, std::string const& path) {
  static thread_local bool inside = false;
  if (inside || path.empty() || path.compare(0, 6, "/proc/") == 0 ||
      path.compare(0, 5, "/dev/") == 0 && path.compare(0, 9, "/dev/shm/") != 0)
    return Outcome::pass;
  inside = true;
  Outcome outcome = Outcome::pass;
  {
    Rules& all = rules();
    std::lock_guard const lock(all.mutex);
    for (auto& rule : all.list) {
      bool const is_any = std::strcmp(call, "read") != 0 && std::strcmp(call, "ring") != 0;
      bool const same = rule.call.empty() ? is_any : rule.call == call;
      if (!same || path.find(rule.path) == std::string::npos ||
          (rule.rank >= 0 && rule.rank != own_rank()))
        continue;
      ++rule.seen;
      if (rule.seen < rule.nth || (rule.times >= 0 && rule.seen >= rule.nth + rule.times)) continue;
      ++met;
      if (rule.action == "kill") kill(getpid(), SIGKILL);
      if (rule.action == "exit") _exit(3);
      if (rule.action == "slow") usleep(20000);
      if (rule.action == "slow") break;
      outcome = rule.action == "short"     ? Outcome::cut
                : rule.action == "reorder" ? Outcome::reorder
                                           : Outcome::fail;
      if (outcome == Outcome::fail) errno = error_of(rule.action);
      break;
    }
  }
  inside = false;
  return outcome;
}

template <class Function>
Function real(char const* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

std::size_t cut(std::size_t bytes, Outcome outcome) {
  return outcome == Outcome::cut && bytes > 1 ? bytes / 2 : bytes;
}

int open_as(char const* name, char const* path, int flags, mode_t mode) {
  if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0 && outcome_of("open", path) == Outcome::fail)
    return -1;
  static auto const next = real<int (*)(char const*, int, ...)>("open");
  static auto const next64 = real<int (*)(char const*, int, ...)>("open64");
  return (std::strcmp(name, "open") == 0 ? next : next64)(path, flags, mode);
}

}  // namespace

#define TESSERA_MODE_OF(flags)                               \
  mode_t mode = 0;                                           \
  if ((flags)&O_CREAT) {                                     \
    va_list arguments;                                       \
    va_start(arguments, flags);                              \
    mode = static_cast<mode_t>(va_arg(arguments, unsigned)); \
    va_end(arguments);                                       \
  }

extern "C" {

void tessera_set_faults(char const* text) {
  std::lock_guard const lock(rules().mutex);
  rules().set(text);
  met = 0;
}
long tessera_faults_met() { return met; }

int open(char const* path, int flags, ...) {
  TESSERA_MODE_OF(flags)
  return open_as("open", path, flags, mode);
}
int open64(char const* path, int flags, ...) {
  TESSERA_MODE_OF(flags)
  return open_as("open64", path, flags, mode);
}
int mkdir(char const* path, mode_t mode) noexcept {
  static auto const next = real<int (*)(char const*, mode_t)>("mkdir");
  return outcome_of("mkdir", path) == Outcome::fail ? -1 : next(path, mode);
}
ssize_t write(int fd, void const* data, std::size_t bytes) {
  static auto const next = real<ssize_t (*)(int, void const*, std::size_t)>("write");
  Outcome const outcome = fd > 2 ? outcome_of("write", path_of(fd)) : Outcome::pass;
  return outcome == Outcome::fail ? -1 : next(fd, data, cut(bytes, outcome));
}
ssize_t pwrite(int fd, void const* data, std::size_t bytes, off_t offset) {
  static auto const next = real<ssize_t (*)(int, void const*, std::size_t, off_t)>("pwrite");
  Outcome const outcome = outcome_of("write", path_of(fd));
  return outcome == Outcome::fail ? -1 : next(fd, data, cut(bytes, outcome), offset);
}
ssize_t pwrite64(int fd, void const* data, std::size_t bytes, off64_t offset) {
  static auto const next = real<ssize_t (*)(int, void const*, std::size_t, off64_t)>("pwrite64");
  Outcome const outcome = outcome_of("write", path_of(fd));
  return outcome == Outcome::fail ? -1 : next(fd, data, cut(bytes, outcome), offset);
}
ssize_t pread(int fd, void* data, std::size_t bytes, off_t offset) {
  static auto const next = real<ssize_t (*)(int, void*, std::size_t, off_t)>("pread");
  Outcome const outcome = outcome_of("read", path_of(fd));
  return outcome == Outcome::fail ? -1 : next(fd, data, cut(bytes, outcome), offset);
}
ssize_t pread64(int fd, void* data, std::size_t bytes, off64_t offset) {
  static auto const next = real<ssize_t (*)(int, void*, std::size_t, off64_t)>("pread64");
  Outcome const outcome = outcome_of("read", path_of(fd));
  return outcome == Outcome::fail ? -1 : next(fd, data, cut(bytes, outcome), offset);
}
int fsync(int fd) {
  static auto const next = real<int (*)(int)>("fsync");
  return outcome_of("fsync", path_of(fd)) == Outcome::fail ? -1 : next(fd);
}
int fdatasync(int fd) {
  static auto const next = real<int (*)(int)>("fdatasync");
  return outcome_of("fsync", path_of(fd)) == Outcome::fail ? -1 : next(fd);
}
int close(int fd) {
  static auto const next = real<int (*)(int)>("close");
  std::string const path = path_of(fd);
  bool const writes = (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
  Outcome const outcome = writes ? outcome_of("close", path) : Outcome::pass;
  int const why = errno, result = next(fd);  // the descriptor is gone, as with a real failure
  if (outcome != Outcome::fail) return result;
  errno = why;
  return -1;
}
int rename(char const* from, char const* to) noexcept {
  static auto const next = real<int (*)(char const*, char const*)>("rename");
  return outcome_of("rename", to) == Outcome::fail ? -1 : next(from, to);
}
int unlink(char const* path) noexcept {
  static auto const next = real<int (*)(char const*)>("unlink");
  return outcome_of("unlink", path) == Outcome::fail ? -1 : next(path);
}
int unlinkat(int fd, char const* path, int flags) noexcept {
  static auto const next = real<int (*)(int, char const*, int)>("unlinkat");
  std::string const place = path[0] == '/' ? "" : path_of(fd) + "/";
  return outcome_of("unlink", place + path) == Outcome::fail ? -1 : next(fd, path, flags);
}
int ftruncate(int fd, off_t bytes) noexcept {
  static auto const next = real<int (*)(int, off_t)>("ftruncate");
  return outcome_of("truncate", path_of(fd)) == Outcome::fail ? -1 : next(fd, bytes);
}
int ftruncate64(int fd, off64_t bytes) noexcept {
  static auto const next = real<int (*)(int, off64_t)>("ftruncate64");
  return outcome_of("truncate", path_of(fd)) == Outcome::fail ? -1 : next(fd, bytes);
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  static auto const next = real<int (*)(int, int, off_t, off_t)>("fallocate");
  return outcome_of("reserve", path_of(fd)) == Outcome::fail ? -1 : next(fd, mode, offset, bytes);
}

#ifdef TESSERA_HAVE_URING
int io_uring_queue_init(unsigned entries, io_uring* ring, unsigned flags) {
  static auto const next = real<int (*)(unsigned, io_uring*, unsigned)>("io_uring_queue_init");
  return outcome_of("ring", "io_uring") == Outcome::fail ? -errno : next(entries, ring, flags);
}
/// Cuts chosen requests before the system sees them, and changes the results of others.
int io_uring_submit_and_wait(io_uring* ring, unsigned count) {
  static auto const next = real<int (*)(io_uring*, unsigned)>("io_uring_submit_and_wait");
  static thread_local std::vector<std::pair<__u64, int>> failing;  // user data, errno
  bool reverses = false;
  for (unsigned at = ring->sq.sqe_head; at != ring->sq.sqe_tail; ++at) {
    io_uring_sqe& entry = ring->sq.sqes[at & *ring->sq.kring_mask];
    char const* const call = entry.opcode == IORING_OP_READ ? "read" : "write";
    Outcome const outcome = outcome_of(call, path_of(entry.fd));
    reverses = reverses || outcome == Outcome::reorder;
    if (outcome == Outcome::fail) failing.emplace_back(entry.user_data, errno);
    entry.len = static_cast<unsigned>(cut(entry.len, outcome));
  }
  int const result = next(ring, count);
  unsigned const head = *ring->cq.khead, tail = *ring->cq.ktail, mask = *ring->cq.kring_mask;
  for (unsigned at = head; at != tail; ++at)
    for (auto one = failing.begin(); one != failing.end(); ++one) {
      if (one->first != ring->cq.cqes[at & mask].user_data) continue;
      ring->cq.cqes[at & mask].res = -one->second;
      failing.erase(one);
      break;
    }
  for (unsigned a = head, b = tail; reverses && b - a > 1; ++a)
    std::swap(ring->cq.cqes[a & mask], ring->cq.cqes[--b & mask]);
  return result;
}
#endif

}  // extern "C"
