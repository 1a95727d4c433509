#include "tools/detail/sandbox.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <fstream>

#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

constexpr std::size_t most_text = std::size_t{1} << 20;
constexpr rlim_t more_memory = rlim_t{512} << 20, most_seconds = 120;

/// Private writable memory of this process, what RLIMIT_DATA counts.
rlim_t data_bytes() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  for (int column = 0; column < 6; ++column) file >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

void limit(int resource, rlim_t value) {
  rlimit const bounds{value, value};
  (void)::setrlimit(static_cast<__rlimit_resource>(resource), &bounds);
}

void write_all(int fd, std::string const& text) {
  for (std::size_t done = 0; done < text.size();) {
    ssize_t const put = ::write(fd, text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    done += static_cast<std::size_t>(put);
  }
}

[[noreturn]] void child(int fd, std::function<std::vector<std::string>()> const& work) {
  for (int const number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGPIPE, SIGXCPU})
    (void)std::signal(number, SIG_DFL);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, most_seconds);
  if (rlim_t const used = data_bytes(); used > 0) limit(RLIMIT_DATA, used + more_memory);
  std::vector<std::string> lines;
  try {
    lines = work();
  } catch (std::exception const& e) {
    lines.emplace_back(e.what());
  }
  std::string text;
  for (auto& line : lines) {
    std::replace(line.begin(), line.end(), '\n', ' ');
    if (text.size() + line.size() < most_text) text += line + "\n";
  }
  write_all(fd, text);
  ::_exit(0);
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    ssize_t const got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace

SandboxResult run_sandboxed(std::function<std::vector<std::string>()> const& work) {
  int ends[2] = {};
  TESSERA_VALIDATE(::pipe2(ends, O_CLOEXEC) == 0, IoError,
                   with_errno("cannot make a pipe to a child process", errno));
  pid_t const pid = ::fork();
  int const error = errno;
  if (pid == 0) child(ends[1], work);
  ::close(ends[1]);
  SandboxResult result;
  if (pid > 0) {
    std::string const text = read_all(ends[0]);
    for (std::size_t at = 0; at < text.size();) {
      auto const end = std::min(text.find('\n', at), text.size());
      result.lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }
  ::close(ends[0]);
  TESSERA_VALIDATE(pid > 0, IoError, with_errno("cannot make a child process", error));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFSIGNALED(status))
    result.failure =
        concat("was ended by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")");
  else if (WEXITSTATUS(status) != 0)
    result.failure = concat("ended with code ", WEXITSTATUS(status));
  return result;
}

}  // namespace tessera::checkpoint::detail
