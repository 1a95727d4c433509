#include "tessera/topology/node_files.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>

#include "detail/comm_handle.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

namespace tessera::topology {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t max_batch =
    64;  ///< descriptors per message; the kernel allows 253 and limits those in flight
constexpr int timeout_ms = 30'000;  ///< for a connected peer that sends nothing

/// Closes its descriptor at the end of the scope.
struct Socket {
  int fd = -1;
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
};

/// An abstract name (unix(7)): no file, and it disappears with its socket.
sockaddr_un address_of(std::string const& name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

bool same_user(int connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == ::geteuid();
}

/// A message of one byte with room for @p count descriptors in its control data (cmsg(3)).
class DescriptorMessage {
 public:
  explicit DescriptorMessage(std::size_t count) : control_(CMSG_SPACE(count * sizeof(int))) {
    message_.msg_iov = &data_;
    message_.msg_iovlen = 1;
    message_.msg_control = control_.data();
    message_.msg_controllen = control_.size();
  }
  DescriptorMessage(DescriptorMessage const&) = delete;
  DescriptorMessage& operator=(DescriptorMessage const&) = delete;

  bool send(int connection, int const* descriptors, std::size_t count) {
    cmsghdr* const header = CMSG_FIRSTHDR(&message_);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
    return ::sendmsg(connection, &message_, MSG_NOSIGNAL) == 1;
  }
  /// The descriptors of the next message; nothing when none comes.
  std::vector<int> receive(int connection) {
    if (::recvmsg(connection, &message_, MSG_CMSG_CLOEXEC) != 1) return {};
    cmsghdr const* const header = CMSG_FIRSTHDR(&message_);
    if (!header || header->cmsg_type != SCM_RIGHTS) return {};
    std::vector<int> descriptors((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(descriptors.data(), CMSG_DATA(header), descriptors.size() * sizeof(int));
    return descriptors;
  }

 private:
  char byte_ = 'd';
  iovec data_{&byte_, 1};
  std::vector<char> control_;
  msghdr message_{};
};

/// Sends a batch and waits for the receiver's byte.
bool send_batch(int connection, int const* descriptors, std::size_t count) {
  char answer = 0;
  return DescriptorMessage(count).send(connection, descriptors, count) &&
         ::recv(connection, &answer, 1, 0) == 1;
}

bool receive_batch(int connection, std::size_t count, std::vector<int>& out) {
  auto const batch = DescriptorMessage(count).receive(connection);
  out.insert(out.end(), batch.begin(), batch.end());
  return batch.size() == count && ::send(connection, "d", 1, MSG_NOSIGNAL) == 1;
}

void set_timeout(int connection) {
  timeval const limit{timeout_ms / 1000, 0};
  ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

/// Sends the descriptors to the ranks in turn. A receiver opens the files that it does not get.
void serve(int listener, int peers, std::vector<int> const& descriptors) {
  for (int i = 0; i < peers; ++i) {
    pollfd ready{listener, POLLIN, 0};
    if (::poll(&ready, 1, timeout_ms) <= 0) return;
    Socket const connection{::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)};
    if (connection.fd < 0 || !same_user(connection.fd)) continue;
    set_timeout(connection.fd);
    for (std::size_t at = 0; at < descriptors.size(); at += max_batch)
      if (!send_batch(connection.fd, descriptors.data() + at,
                      std::min(max_batch, descriptors.size() - at)))
        break;
  }
}

std::vector<int> received(int connection, std::size_t count) {
  std::vector<int> descriptors;
  set_timeout(connection);
  while (descriptors.size() < count)
    if (!receive_batch(connection, std::min(max_batch, count - descriptors.size()), descriptors))
      break;
  return descriptors;
}

/// Opens the files that have no descriptor yet. @returns an error, or an empty text
std::string open_rest(std::vector<fs::path> const& files, std::vector<int>& descriptors) {
  while (descriptors.size() < files.size()) {
    fs::path const& file = files[descriptors.size()];
    int const fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return path_error("cannot open", file, errno);
    descriptors.push_back(fd);
  }
  return "";
}

int listen_as(std::string const& name) {
  int const fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  socklen_t length = 0;
  sockaddr_un const address = address_of(name, length);
  if (fd >= 0 && ::bind(fd, reinterpret_cast<sockaddr const*>(&address), length) == 0 &&
      ::listen(fd, 4096) == 0)
    return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

int connect_to(std::string const& name) {
  int const fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  socklen_t length = 0;
  sockaddr_un const address = address_of(name, length);
  if (fd >= 0 && ::connect(fd, reinterpret_cast<sockaddr const*>(&address), length) == 0 &&
      same_user(fd))
    return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

/// Paths as one text, each ended by a zero byte.
std::string pack(std::vector<fs::path> const& files) {
  std::string text;
  for (auto const& file : files) text += file.string() + '\0';
  return text;
}

std::vector<fs::path> unpack(std::string const& text) {
  std::vector<fs::path> files;
  for (std::size_t at = 0; at < text.size(); at = text.find('\0', at) + 1)
    files.emplace_back(text.substr(at, text.find('\0', at) - at));
  return files;
}

}  // namespace

NodeFiles::~NodeFiles() {
  for (int const fd : descriptors_) ::close(fd);
}

NodeFiles open_on_node(MpiSession const& session, std::vector<fs::path> const& files) {
  MPI_Comm const node = from_handle(session.node());
  bool const leads = session.info().local_rank == 0;
  NodeFiles opened;
  if (leads) opened.failure = open_rest(files, opened.descriptors_);
  opened.names_ = unpack(broadcast_text(node, pack(files)));
  opened.failure = broadcast_text(node, opened.failure);
  if (session.info().local_size == 1 || !opened.failure.empty()) return opened;

  std::random_device random;
  std::string const name = broadcast_text(node, concat("tessera-", random(), '-', random()));
  Socket listener;
  if (leads) listener.fd = listen_as(name);
  MPI_Barrier(node);
  Socket connection;
  if (!leads) connection.fd = connect_to(name);
  int const reached = connection.fd >= 0 ? 1 : 0;
  int peers = 0;
  MPI_Reduce(&reached, &peers, 1, MPI_INT, MPI_SUM, 0, node);
  if (leads && listener.fd >= 0) serve(listener.fd, peers, opened.descriptors_);
  if (leads) return opened;
  if (reached != 0) opened.descriptors_ = received(connection.fd, opened.names_.size());
  opened.failure = open_rest(opened.names_, opened.descriptors_);
  return opened;
}

}  // namespace tessera::topology
