#include "tessera/topology/heartbeat_monitor.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <sstream>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace tessera::topology {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

enum class Kind : std::int32_t { alive, shutdown };

struct Beat {
  std::uint64_t job = 0;
  std::int32_t node = 0;
  std::int32_t lost = -1;  ///< from the first node: the lost node
  Kind kind = Kind::alive;
  std::int32_t zeros[3] = {};
};
static_assert(sizeof(Beat) == 32);

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

/// State of another node.
struct Peer {
  bool heard = false, gone = false;
  Clock::time_point last;
  Address address;
};

bool is_link_local(in6_addr const& address) { return IN6_IS_ADDR_LINKLOCAL(&address); }

/// "4 10.0.0.1" for a socket of this family; An IPv6 socket reaches IPv4 addresses as
/// mapped ones. Length 0: the socket cannot reach it.
Address parse(std::string const& text, int port, int family) {
  Address out;
  bool const v4 = text.starts_with("4 ");
  std::string const host = text.substr(2);
  if (family == AF_INET6) {
    auto& a = reinterpret_cast<sockaddr_in6&>(out.storage);
    a.sin6_family = AF_INET6;
    a.sin6_port = htons(static_cast<std::uint16_t>(port));
    if (::inet_pton(AF_INET6, (v4 ? "::ffff:" + host : host).c_str(), &a.sin6_addr) == 1)
      out.length = sizeof a;
  } else if (v4) {
    auto& a = reinterpret_cast<sockaddr_in&>(out.storage);
    a.sin_family = AF_INET;
    a.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::inet_pton(AF_INET, host.c_str(), &a.sin_addr) == 1) out.length = sizeof a;
  }
  return out;
}

/// A socket for IPv6 and IPv4, or only IPv4 where IPv6 is disabled.
int open_socket(int& family) {
  family = AF_INET6;
  int fd = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int const off = 0;
  if (fd >= 0 && ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0) return fd;
  if (fd >= 0) ::close(fd);
  family = AF_INET;
  return ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int family_of(int fd) {
  int family = AF_INET;
  socklen_t length = sizeof family;
  ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
  return family;
}

}  // namespace

struct HeartbeatMonitor::State {
  Settings settings;
  int fd = -1;
  std::vector<Address> candidates;  ///< addresses of the first node
  std::vector<Peer> peers;          ///< by node; nodes other than the first know only the first

  bool is_root() const { return settings.node == first_node; }
  std::chrono::milliseconds interval() const {
    return std::clamp<std::chrono::milliseconds>(settings.timeout / 10, 5ms, 3000ms);
  }
  void send(Address const& to, Kind kind, int lost) const {
    Beat beat;
    beat.job = settings.job;
    beat.node = static_cast<std::int32_t>(settings.node);
    beat.lost = lost;
    beat.kind = kind;
    ::sendto(fd, &beat, sizeof beat, MSG_NOSIGNAL, reinterpret_cast<sockaddr const*>(&to.storage),
             to.length);
  }
  void send_to_all(Kind kind, int lost) const {
    if (!is_root() && !peers[0].heard)
      for (auto const& candidate : candidates) send(candidate, kind, lost);
    for (auto const& peer : peers)
      if (peer.heard) send(peer.address, kind, lost);
  }
  /// Receives one datagram of this job; false when none is pending.
  bool receive(Beat& beat, Address& from) const {
    for (;;) {
      from.length = sizeof from.storage;
      ssize_t const got = ::recvfrom(fd, &beat, sizeof beat, 0,
                                     reinterpret_cast<sockaddr*>(&from.storage), &from.length);
      if (got < 0 && errno == ECONNREFUSED) continue;  // an earlier datagram had no receiver
      if (got < 0) return false;
      bool const known =
          beat.node >= 0 && beat.node < settings.nodes && (beat.node == 0) != is_root();
      if (got == sizeof beat && beat.job == settings.job && known) return true;
    }
  }
  /// The first node without a heartbeat for longer than the timeout; -1: none.
  int silent(Clock::time_point now) const {
    for (std::size_t n = 0; n < peers.size(); ++n)
      if (peers[n].heard && !peers[n].gone && now - peers[n].last > settings.timeout)
        return static_cast<int>(n);
    return -1;
  }
  ~State() {
    if (fd >= 0) ::close(fd);
  }
};

HeartbeatMonitor::Endpoint HeartbeatMonitor::open_endpoint() {
  int family = AF_INET6;
  int const fd = open_socket(family);
  Address any;
  any.storage.ss_family = static_cast<sa_family_t>(family);
  any.length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  bool const bound = fd >= 0 &&
                     ::bind(fd, reinterpret_cast<sockaddr*>(&any.storage), any.length) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&any.storage), &any.length) == 0;
  if (!bound) {
    if (fd >= 0) ::close(fd);
    return {};
  }
  return {fd, ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(any.storage).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(any.storage).sin_port)};
}

std::vector<std::string> HeartbeatMonitor::own_addresses() {
  std::vector<std::string> outside, inside;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  for (ifaddrs const* i = all; i; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) continue;
    char text[INET6_ADDRSTRLEN] = {};
    int const family = i->ifa_addr->sa_family;
    auto const* v4 = reinterpret_cast<sockaddr_in const*>(i->ifa_addr);
    auto const* v6 = reinterpret_cast<sockaddr_in6 const*>(i->ifa_addr);
    bool const usable = family == AF_INET || (family == AF_INET6 && !is_link_local(v6->sin6_addr));
    if (!usable) continue;
    void const* const source =
        family == AF_INET ? static_cast<void const*>(&v4->sin_addr) : &v6->sin6_addr;
    if (!::inet_ntop(family, source, text, sizeof text)) continue;
    ((i->ifa_flags & IFF_LOOPBACK) ? inside : outside)
        .push_back((family == AF_INET ? "4 " : "6 ") + std::string(text));
  }
  ::freeifaddrs(all);
  outside.insert(outside.end(), inside.begin(), inside.end());
  return outside;
}

HeartbeatMonitor::HeartbeatMonitor(Settings settings, Endpoint endpoint)
    : state_(std::make_unique<State>()) {
  auto& s = *state_;
  s.settings = std::move(settings);
  s.fd = endpoint.descriptor;
  int family = AF_INET;
  if (!s.is_root()) s.fd = open_socket(family);
  s.peers.resize(s.is_root() ? static_cast<std::size_t>(s.settings.nodes) : 1);
  if (s.fd < 0) return;
  for (auto const& address : s.settings.addresses)
    if (auto const parsed = parse(address, s.settings.port, family_of(s.fd));
        parsed.length > 0 && !s.is_root())
      s.candidates.push_back(parsed);
  thread_ = std::thread([this] { run(); });
}

HeartbeatMonitor::~HeartbeatMonitor() {
  ends_.store(true);
  if (thread_.joinable()) thread_.join();
  for (int again = 0; again < 3 && state_->fd >= 0 && !silent_.load(); ++again)
    state_->send_to_all(Kind::shutdown, -1);
}

void HeartbeatMonitor::fall_silent() {
  silent_.store(true);
  ends_.store(true);
}

void HeartbeatMonitor::run() {
  auto& s = *state_;
  auto const interval = s.interval();
  auto last_beat = Clock::now() - interval, last_wakeup = Clock::now();
  while (!ends_.load()) {
    pollfd ready{s.fd, POLLIN, 0};
    ::poll(&ready, 1,
           static_cast<int>(std::min<std::chrono::milliseconds>(interval, 100ms).count()));
    auto const now = Clock::now();
    if (now - last_wakeup > s.settings.timeout / 2)  // this process was suspended
      for (auto& peer : s.peers) peer.last = now;
    last_wakeup = now;
    Beat beat;
    for (Address from; s.receive(beat, from);) {
      auto& peer = s.peers[static_cast<std::size_t>(beat.node)];
      if (!peer.heard) heard_.fetch_add(1);
      peer = {true, beat.kind == Kind::shutdown, now, from};
      if (beat.lost >= 0 && lost_.load() < 0) lost_.store(beat.lost);
      if (s.is_root() && beat.kind == Kind::alive) s.send(from, Kind::alive, lost_.load());
    }
    if (int const silent = s.silent(now); silent >= 0 && lost_.load() < 0) {
      lost_.store(silent);
      if (s.is_root()) s.send_to_all(Kind::alive, silent);
    }
    if (!s.is_root() && now - last_beat >= interval) {
      s.send_to_all(Kind::alive, -1);
      last_beat = now;
    }
  }
}

std::unique_ptr<HeartbeatMonitor> start_heartbeat_monitor(MpiSession const& session,
                                                          std::chrono::milliseconds timeout) {
  auto const& info = session.info();
  if (info.node_count == 1 || timeout.count() <= 0) return nullptr;
  HeartbeatMonitor::Settings settings;
  HeartbeatMonitor::Endpoint endpoint;
  std::string text;
  if (info.rank == 0) {
    endpoint = HeartbeatMonitor::open_endpoint();
    std::random_device random;
    text = concat(std::uint64_t{random()} << 32 | random(), '\n', endpoint.port);
    for (auto const& address : HeartbeatMonitor::own_addresses()) text += "\n" + address;
  }
  std::istringstream lines(session.broadcast(text));
  std::string line;
  lines >> settings.job >> settings.port;
  std::getline(lines, line);
  while (std::getline(lines, line)) settings.addresses.push_back(line);
  if (info.local_rank != 0 || settings.port == 0) return nullptr;
  settings.node = info.node;
  settings.nodes = info.node_count;
  settings.timeout = timeout;
  return std::make_unique<HeartbeatMonitor>(settings, endpoint);
}

}  // namespace tessera::topology
