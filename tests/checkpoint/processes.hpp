#pragma once
/// Child processes that are measured, or killed at a chosen system call.
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>

namespace tessera::test {

/// System calls that change files; the moments between any two others are the same to whoever looks
/// at the directory.
inline bool changes_files(std::uint64_t call) {
  for (long known : {SYS_openat, SYS_mkdirat, SYS_write, SYS_pwrite64, SYS_ftruncate, SYS_fallocate,
                     SYS_fsync, SYS_renameat2, SYS_unlinkat,
#ifdef SYS_rename
                     SYS_open, SYS_mkdir, SYS_rename, SYS_unlink, SYS_rmdir,
#endif
                     SYS_renameat})
    if (call == static_cast<std::uint64_t>(known)) return true;
  return false;
}

enum class End { killed, finished, not_allowed };

/// Follows a process and its threads until it enters its @p fatal-th call that changes files, and
/// kills it there.
/// @param calls  how many it has entered
inline End follow(pid_t child, int fatal, int& calls) {
  int status = 0;
  calls = 0;
  waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return End::not_allowed;
  ptrace(PTRACE_SETOPTIONS, child, nullptr,
         PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE);
  ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
  for (;;) {
    pid_t const thread = waitpid(-1, &status, __WALL);
    if (thread < 0) return End::not_allowed;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (thread != child) continue;
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "the saving process ended with status " << status;
      return End::finished;
    }
    __ptrace_syscall_info info = {};
    bool const at_call = WSTOPSIG(status) == (SIGTRAP | 0x80) &&
                         ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) > 0;
    if (at_call && info.op == PTRACE_SYSCALL_INFO_ENTRY && changes_files(info.entry.nr) &&
        ++calls == fatal) {
      kill(child, SIGKILL);
      for (pid_t gone = 0;
           gone != child || !WIFSIGNALED(status);)  // its threads have to be waited for before
        if ((gone = waitpid(-1, &status, __WALL)) < 0) break;
      return End::killed;
    }
    ptrace(PTRACE_SYSCALL, thread, nullptr, nullptr);
  }
}

/// Runs @p body in a process that is killed as it enters its @p fatal-th call that changes files;
/// 0: not at all.
template <class Body>
End run_until_call(int fatal, Body&& body, int* calls = nullptr) {
  pid_t const child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(99);
    raise(SIGSTOP);
    body();
    _exit(0);
  }
  int counted = 0;
  return follow(child, fatal, calls ? *calls : counted);
}

/// Peak resident memory of a process that does @p work, in MiB.
template <class Work>
double peak_mib(Work&& work) {
  pid_t const child = fork();
  if (child == 0) {
    try {
      work();
    } catch (std::exception const& e) {
      std::fprintf(stderr, "%s\n", e.what());
      _exit(1);
    }
    _exit(::testing::Test::HasFailure() ? 2 : 0);
  }
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#ifdef __SANITIZE_ADDRESS__
  return 0.0;  // most of it would be the sanitizer's
#else
  return static_cast<double>(usage.ru_maxrss) / 1024;
#endif
}

}  // namespace tessera::test
