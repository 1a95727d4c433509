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

/// System calls that change files; the moments between any two others are the same to whoever looks at the directory.
inline bool changes_files(std::uint64_t call) {
  for (long known : {SYS_openat, SYS_mkdirat, SYS_write, SYS_pwrite64, SYS_ftruncate, SYS_fallocate, SYS_fsync, SYS_renameat2, SYS_unlinkat,
#ifdef SYS_rename
                     SYS_open, SYS_mkdir, SYS_rename, SYS_unlink, SYS_rmdir,
#endif
                     SYS_renameat})
    if (call == static_cast<std::uint64_t>(known)) return true;
  return false;
}

enum class End { killed, finished, not_allowed };

/// Runs @p body in a process that is killed as it enters its @p fatal-th call that changes files.
template <class Body>
End run_until_call(int fatal, Body&& body) {
  pid_t const child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(99);
    raise(SIGSTOP);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return End::not_allowed;
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  for (int calls = 0;;) {
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
    if (!WIFSTOPPED(status)) break;
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    __ptrace_syscall_info info = {};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) <= 0) break;
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY || !changes_files(info.entry.nr) || ++calls < fatal) continue;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return End::killed;
  }
  if (WIFSTOPPED(status)) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return End::not_allowed;
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the saving process ended with status " << status;
  return End::finished;
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
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace tessera::test
