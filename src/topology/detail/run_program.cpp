#include "run_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace tessera::topology::detail {
namespace {

using Clock = std::chrono::steady_clock;

/// Reads until the other side closes or @p end passes. False: too late.
bool read_until(int descriptor, Clock::time_point end, std::string& text) {
  for (;;) {
    auto const left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd ready{descriptor, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(left)) <= 0) continue;
    char block[4096];
    ssize_t const count = ::read(descriptor, block, sizeof block);
    if (count <= 0) return true;
    text.append(block, static_cast<std::size_t>(count));
  }
}

/// @returns the process id, or -1. Signals that this process blocks are open again in the child.
pid_t start(std::vector<std::string> const& words, int output) {
  std::vector<char*> argv;
  for (auto const& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = -1;
  if (::posix_spawnp(&child, argv[0], &files, &attributes, argv.data(), environ) != 0) child = -1;
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return child;
}

}  // namespace

std::string output_of(std::vector<std::string> const& words, std::chrono::milliseconds limit) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return "";
  pid_t const child = start(words, pipe[1]);
  ::close(pipe[1]);
  std::string text;
  bool good = child > 0;
  if (good && !read_until(pipe[0], Clock::now() + limit, text)) {
    ::kill(child, SIGKILL);
    good = false;
  }
  ::close(pipe[0]);
  int status = 0;
  if (child > 0) good = ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 && good;
  return good ? text : "";
}

}  // namespace tessera::topology::detail
