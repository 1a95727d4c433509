#include "tessera/topology/heartbeat_monitor.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "becomes_true.hpp"

namespace tessera::topology {
namespace {

using namespace std::chrono_literals;

/// The watches of several nodes in one process.
struct Job {
  explicit Job(int nodes, std::chrono::milliseconds timeout) {
    endpoint = HeartbeatMonitor::open_endpoint();
    settings.nodes = nodes;
    settings.job = 0x1234567890abcdef;
    settings.addresses = {"4 127.0.0.1"};
    settings.port = endpoint.port;
    settings.timeout = timeout;
    for (int n = 0; n < nodes; ++n) start(n);
  }
  void start(int node) {
    settings.node = NodeIndex(node);
    watches.push_back(std::make_unique<HeartbeatMonitor>(
        settings, node == 0 ? endpoint : HeartbeatMonitor::Endpoint()));
  }
  bool all_know(int lost, int except) {
    for (int n = 0; n < static_cast<int>(watches.size()); ++n)
      if (n != except && watches[static_cast<std::size_t>(n)]->lost_node() !=
                             (lost < 0 ? std::nullopt : std::optional(NodeIndex(lost))))
        return false;
    return true;
  }
  bool connected() {
    if (watches[0]->heard() != settings.nodes - 1) return false;
    for (auto const& w : watches)
      if (w->heard() == 0) return false;
    return true;
  }
  HeartbeatMonitor::Settings settings;
  HeartbeatMonitor::Endpoint endpoint;
  std::vector<std::unique_ptr<HeartbeatMonitor>> watches;
};

TEST(HeartbeatMonitor, ASilentNodeIsNamedOnAllOthers) {
  for (int const victim : {2, 0}) {
    Job job(4, 1500ms);
    ASSERT_TRUE(becomes_true([&] { return job.connected(); }));
    EXPECT_TRUE(job.all_know(-1, -1));
    job.watches[static_cast<std::size_t>(victim)]->fall_silent();
    EXPECT_TRUE(becomes_true([&] { return job.all_know(victim, victim); })) << victim;
  }
}

TEST(HeartbeatMonitor, AnEndWithFarewellIsNoLoss) {
  Job job(3, 1500ms);
  ASSERT_TRUE(becomes_true([&] { return job.connected(); }));
  job.watches.pop_back();
  std::this_thread::sleep_for(2500ms);  // longer than the timeout
  EXPECT_TRUE(job.all_know(-1, -1));
}

TEST(HeartbeatMonitor, ANodeThatWasNeverHeardIsNotWatched) {
  Job job(2, 1500ms);
  job.settings.nodes = 3;
  job.start(2);  // a third one that the first two do not expect
  ASSERT_TRUE(becomes_true([&] { return job.watches[1]->heard() == 1; }));
  std::this_thread::sleep_for(2500ms);  // longer than the timeout
  EXPECT_EQ(job.watches[0]->heard(), 1);
  EXPECT_EQ(job.watches[2]->heard(), 0);
  EXPECT_TRUE(job.all_know(-1, -1));
}

TEST(HeartbeatMonitor, DatagramsOfOthersAreIgnored) {
  Job job(2, 60s);
  ASSERT_TRUE(becomes_true([&] { return job.connected(); }));
  int const fd = ::socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(job.settings.port));
  ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  std::vector<char> const noise(2000, 1);
  for (std::size_t bytes : {0u, 1u, 31u, 32u, 33u, 2000u})
    ::sendto(fd, noise.data(), bytes, 0, reinterpret_cast<sockaddr const*>(&to), sizeof to);
  ::close(fd);
  std::this_thread::sleep_for(200ms);  // nothing is to happen
  EXPECT_EQ(job.watches[0]->heard(), 1);
  EXPECT_TRUE(job.all_know(-1, -1));
}

TEST(HeartbeatMonitor, AddressesHaveAFamilyAndLoopbackIsLast) {
  auto const addresses = HeartbeatMonitor::own_addresses();
  ASSERT_FALSE(addresses.empty());
  for (auto const& a : addresses) EXPECT_TRUE(a.starts_with("4 ") || a.starts_with("6 ")) << a;
  EXPECT_TRUE(addresses.back() == "4 127.0.0.1" || addresses.back() == "6 ::1") << addresses.back();
}

}  // namespace
}  // namespace tessera::topology
