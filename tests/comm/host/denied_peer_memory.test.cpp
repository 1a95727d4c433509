/// The collectives where the system forbids a rank to access another's private memory, as seccomp
/// profiles of containers do: through staging buffers.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>

#include "collectives_suite.hpp"

namespace tessera::comm::test {
namespace {

/// process_vm_readv fails with EPERM in this process from now on.
bool deny_reads_of_peers() {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog const program{sizeof steps / sizeof steps[0], steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

class Denied : public ::testing::Environment {
 public:
  void SetUp() override { ASSERT_TRUE(deny_reads_of_peers()); }
};
[[maybe_unused]] auto* const denied = ::testing::AddGlobalTestEnvironment(new Denied);

INSTANTIATE_TEST_SUITE_P(Denied, CollectivesSuite,
                         ::testing::Combine(::testing::Values(Implementation::automatic),
                                            ::testing::Values(Dtype::fp32, Dtype::bf16),
                                            ::testing::Values(Placement::allocated,
                                                              Placement::ordinary)),
                         name_of_case);

}  // namespace
}  // namespace tessera::comm::test
