#include "launch/run_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

extern char** environ;

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// Reads until the other end closes. False: @p end passed first.
bool read_until(int descriptor, Clock::time_point end, std::string& text) {
  for (;;) {
    auto const left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd ready{descriptor, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(left)) <= 0) continue;
    char block[4096];
    ssize_t const count = ::read(descriptor, block, sizeof block);
    if (count <= 0) return true;
    text.append(block, static_cast<std::size_t>(count));
  }
}

std::vector<char*> pointers(std::vector<std::string> const& words) {
  std::vector<char*> argv;
  for (auto const& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  return argv;
}

/// @returns the process id, or -1. The child starts with no signal blocked.
pid_t start(std::vector<std::string> const& words, int output, Capture capture) {
  auto const argv = pointers(words);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  if (capture == Capture::both)
    posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  else
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

ProgramResult run_program(std::vector<std::string> const& words, std::chrono::milliseconds limit,
                          Capture capture) {
  ProgramResult result;
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return result;
  pid_t const child = start(words, pipe[1], capture);
  ::close(pipe[1]);
  bool const in_time = child > 0 && read_until(pipe[0], Clock::now() + limit, result.output);
  ::close(pipe[0]);
  if (child <= 0) return result;
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (in_time) result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string output_of(std::vector<std::string> const& words, std::chrono::milliseconds limit) {
  auto result = run_program(words, limit);
  return result.code == 0 ? std::move(result.output) : "";
}

void exec_program(std::vector<std::string> const& words, std::string const& input) {
  if (!input.empty()) {
    std::FILE* const file = std::tmpfile();
    TESSERA_VALIDATE(file, IoError, with_errno("cannot create a temporary file", errno));
    write_all(::fileno(file), input, "a temporary file");
    ::lseek(::fileno(file), 0, SEEK_SET);
    ::dup2(::fileno(file), STDIN_FILENO);
  }
  ::execvp(words[0].c_str(), pointers(words).data());
  throw IoError(with_errno("cannot start " + words[0], errno));
}

std::string shell_quoted(std::string const& word) {
  bool const plain =
      !word.empty() &&
      word.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") ==
          std::string::npos;
  if (plain) return word;
  std::string quoted = "'";
  for (char const c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shell_line(std::vector<std::string> const& words) {
  std::string line;
  for (auto const& word : words) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return line;
}

}  // namespace tessera::cli
