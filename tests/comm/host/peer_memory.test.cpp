#include "host/shared_memory.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace tessera::comm::detail {
namespace {

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 31 % 253);
  return out;
}

/// A forked child that ends when it is told to.
class Child {
 public:
  Child() {
    if (pipe(pipe_) != 0) ADD_FAILURE() << "pipe";
    pid_ = fork();
    if (pid_ == 0) {
      close(pipe_[1]);
      char byte;
      [[maybe_unused]] auto const n = read(pipe_[0], &byte, 1);
      _exit(0);
    }
  }
  void end() {
    close(pipe_[0]);
    close(pipe_[1]);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  int pipe_[2] = {-1, -1};
  pid_t pid_ = -1;
};

TEST(PeerMemory, ReadsAnyBytesOfAnotherProcess) {
  std::vector<std::byte> const there = pattern(3 << 20);
  Child child;  // has a copy
  PeerAddress from = address_in_this_process(there.data() + 5);
  from.pid = child.pid();
  std::vector<std::byte> here(there.size() - 5);
  int const error = read_peer_memory(from, here.data(), here.size());
  child.end();
  if (error == EPERM || error == ENOSYS) GTEST_SKIP() << "the system forbids process_vm_readv";
  ASSERT_EQ(error, 0);
  EXPECT_TRUE(std::equal(here.begin(), here.end(), there.begin() + 5));
}

/// The child answers whether it has the bytes, and no others around them.
TEST(PeerMemory, WritesAnyBytesOfAnotherProcess) {
  std::vector<std::byte> const expected = pattern(3 << 20);
  std::vector<std::byte> there(expected.size(), std::byte{255});
  int go[2], answer[2];
  ASSERT_EQ(pipe(go) + pipe(answer), 0);
  pid_t const child = fork();
  char byte = 0;
  if (child == 0) {
    bool const told = read(go[0], &byte, 1) == 1;
    bool const outside = there.front() == std::byte{255} && there.back() == std::byte{255};
    bool const same = std::equal(there.begin() + 5, there.end() - 3, expected.begin());
    byte = told && outside && same ? 'y' : 'n';
    _exit(write(answer[1], &byte, 1) == 1 ? 0 : 1);
  }
  PeerAddress to = address_in_this_process(there.data() + 5);
  to.pid = child;
  int const error = write_peer_memory(to, expected.data(), expected.size() - 8);
  EXPECT_EQ(write(go[1], "g", 1), 1);
  EXPECT_EQ(read(answer[0], &byte, 1), 1);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  if (error == EPERM || error == ENOSYS) GTEST_SKIP() << "the system forbids process_vm_writev";
  ASSERT_EQ(error, 0);
  EXPECT_EQ(byte, 'y');
  EXPECT_EQ(there.front(), std::byte{255}) << "memory of this process";
}

TEST(PeerMemory, ReportsAnUnmappedAddressAndAnEndedProcess) {
  std::byte byte{};
  Child child;
  int const unmapped = read_peer_memory({child.pid(), 8}, &byte, 1),
            unwritable = write_peer_memory({child.pid(), 8}, &byte, 1);
  child.end();
  if (unmapped == EPERM || unmapped == ENOSYS) GTEST_SKIP() << "the system forbids it";
  EXPECT_EQ(unmapped, EFAULT);
  EXPECT_EQ(unwritable, EFAULT);
  EXPECT_EQ(read_peer_memory({child.pid(), reinterpret_cast<std::uintptr_t>(&byte)}, &byte, 1),
            ESRCH);
}

}  // namespace
}  // namespace tessera::comm::detail
