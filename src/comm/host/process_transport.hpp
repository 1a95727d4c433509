#pragma once
/// The transport of a group of processes.

#include <memory>

#include "base/transport.hpp"
#include "host/mpi_comm.hpp"
#include "tessera/comm/host/node_transport.hpp"

namespace tessera::comm::detail {

/// Loopback for one rank, shared memory when all ranks are on one node, else MPI calls; null
/// without a communicator. Collective.
/// @param session outlives it  @param transport also of the groups that it is split into
std::unique_ptr<Transport> make_process_transport(std::unique_ptr<MpiComm> comm,
                                                  topology::MpiSession const& session,
                                                  Deadline deadline, NodeTransport transport);

/// What all transports between processes leave to MPI: sends and receives, parts of different
/// sizes, and splits.
class ProcessTransport : public Transport {
 public:
  ProcessTransport(std::unique_ptr<MpiComm> comm, GroupMembers members,
                   topology::MpiSession const& session, Deadline deadline, NodeTransport transport);

  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }
  bool is_on_node(int peer) const override { return members_.peers.is_on_this_node(peer); }
  using Transport::all_to_all;
  void all_to_all(Operation const& operation, std::byte const* in, Parts const& send,
                  std::byte* out, Parts const& receive) override {
    calls_.all_to_all(operation, in, send, out, receive);
  }
  void send(Operation const& operation, std::byte const* data) override {
    calls_.send(operation, data);
  }
  void receive(Operation const& operation, std::byte* data) override {
    calls_.receive(operation, data);
  }
  std::unique_ptr<Transport> split(Operation const& operation,
                                   topology::RankGroup const& group) override;

 protected:
  MPI_Comm comm() const { return comm_->get(); }
  GroupMembers const& members() const { return members_; }
  MpiCalls& calls() { return calls_; }
  Deadline deadline() const { return deadline_; }

 private:
  topology::MpiSession const& session_;
  std::unique_ptr<MpiComm> comm_;
  GroupMembers members_;
  Deadline deadline_;
  NodeTransport transport_;
  MpiCalls calls_;
};

}  // namespace tessera::comm::detail
