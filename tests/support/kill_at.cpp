// Kills one rank at its n-th system call after a file has appeared.
//
//   mpiexec -n 2 tessera_kill_at RANK STOPS FILE PROGRAM ARGUMENTS...
//
// The other ranks become PROGRAM. Rank RANK runs PROGRAM as a child. When FILE exists, all threads
// of the child are traced, and SIGKILL is sent at the entry or exit number STOPS of a system call
// of any of them, counted together. Exit code: 128 + the signal, or that of the child; 77 where the
// system allows no tracing.
#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

namespace {

constexpr int not_permitted = 77;

long own_rank() {
  for (char const* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (char const* const rank = std::getenv(name)) return std::atol(rank);
  return 0;
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

[[noreturn]] void become(char** program) {
  execvp(program[0], program);
  std::perror(program[0]);
  _exit(127);
}

/// Traces the threads of @p process that are not in @p seized. @return how many
int seize_threads(pid_t process, std::set<pid_t>& seized) {
  int count = 0;
  DIR* const tasks = opendir(("/proc/" + std::to_string(process) + "/task").c_str());
  if (!tasks) return 0;
  while (dirent const* const entry = readdir(tasks)) {
    pid_t const thread = std::atoi(entry->d_name);
    if (thread == 0 || !seized.insert(thread).second) continue;
    if (ptrace(PTRACE_SEIZE, thread, nullptr,
               PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL) != 0) {
      if (errno == ESRCH) continue;  // it has ended
      if (errno == EPERM && count == 0 && seized.size() == 1) _exit(not_permitted);
      continue;  // traced as a thread of a traced one
    }
    ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
    ++count;
  }
  closedir(tasks);
  return count;
}

/// @return the exit code of the child
int trace(pid_t process, long stops) {
  long seen = 0;
  for (;;) {
    int status = 0;
    pid_t const thread = waitpid(-1, &status, __WALL);
    if (thread < 0) return 70;
    if (!WIFSTOPPED(status)) {
      if (thread == process) return exit_code(status);
      continue;
    }
    int const signal = WSTOPSIG(status);
    bool const is_call = signal == (SIGTRAP | 0x80), is_event = (status >> 16) != 0;
    if (is_call && ++seen == stops) kill(process, SIGKILL);
    ptrace(PTRACE_SYSCALL, thread, nullptr, is_call || is_event ? 0L : static_cast<long>(signal));
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) {
    std::fprintf(stderr, "usage: tessera_kill_at RANK STOPS FILE PROGRAM ARGUMENTS...\n");
    return 64;
  }
  char** const program = arguments + 4;
  if (own_rank() != std::atol(arguments[1])) become(program);
  pid_t const child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    become(program);
  }
  for (;;) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return exit_code(status);
    if (access(arguments[3], F_OK) == 0) break;
    usleep(1000);
  }
  std::set<pid_t> seized;
  while (seize_threads(child, seized) > 0) {
  }
  return trace(child, std::atol(arguments[2]));
}
