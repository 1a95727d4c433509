#include "nccl/nccl_streams.hpp"

#ifdef TESSERA_HAVE_CUDA
#include <optional>

#include "nccl/nccl_collectives.hpp"
#include "nccl/nccl_start.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::comm::detail {
namespace {

CommStream make_stream(std::string const& name, int rank, Deadline deadline, NcclLimits limits) {
  return {memory::make_stream_queue(name, memory::StreamPriority::high),
          std::make_unique<NcclComm>(name, rank, deadline, limits),
          {},
          {}};
}

void abort(std::vector<CommStream> const& streams) { NcclComm::abort_all(comms_of(streams)); }

/// Calls @p body, which makes @p streams. When it fails on a rank, every rank throws.
template <class Body>
void on_all_ranks(Collectives& host, std::vector<CommStream>& streams, std::string const& problem,
                  Body const& body) {
  std::optional<Error> refused;
  try {
    body();
  } catch (PeerLostError const&) {
    abort(streams);
    throw;
  } catch (Error const& error) {
    refused = error;
  }
  bool const all = agree(host, !refused);
  if (!all) abort(streams);
  if (refused) throw *refused;
  TESSERA_VALIDATE(all, ConfigError, problem, " on another rank; see the log of that rank");
}

}  // namespace

NcclStart start_streams(Collectives& host, Deadline deadline, NcclOptions const& options) {
  int const version = common_nccl_version(host);
  expect_cta_policy(host, version, options.cta_policy);
  bool const two = nccl_keeps_launch_order(host, version);
  bool const zero = options.cta_policy == NcclCtaPolicy::zero;
  NcclWindows const windows{wants_windows(host, version), zero};
  auto const id = common_nccl_id(host);
  bool const halves = two && options.multiprocessors > 1;
  NcclLimits const limits{halves ? options.multiprocessors / 2 : options.multiprocessors,
                          options.cta_policy};
  NcclStart out{{}, windows};
  auto& streams = out.streams;
  on_all_ranks(host, streams, "NCCL could not be started", [&] {
    streams.push_back(make_stream("tessera", host.rank(), deadline, limits));
    streams.front().comm->start(host.size(), id);
    if (!two) return;
    streams.push_back(make_stream("tessera reductions", host.rank(), deadline, limits));
    streams.back().comm->split_from(*streams.front().comm, 0, host.rank());
  });
  log::debug(concat(
      "NCCL ", nccl_version_text(version), " (built with ", nccl_version_text(NCCL_VERSION_CODE),
      "): ",
      two ? "one communicator for reductions and one for everything else" : "one communicator",
      two ? ""
          : "; two, which overlap, need NCCL 2.26 and NCCL_LAUNCH_ORDER_IMPLICIT other than 0"));
  note_nccl({nccl_version_text(version), two ? 2 : 1, options.cta_policy, {}});
  return out;
}

std::vector<CommStream> split_streams(Collectives& host, std::vector<CommStream> const& parents,
                                      topology::RankGroup const& group, int rank,
                                      Deadline deadline) {
  std::vector<CommStream> streams;
  on_all_ranks(host, streams, "NCCL could not split off " + group.name, [&] {
    for (auto const& parent : parents) {
      char const* const suffix = streams.empty() ? "" : " reductions";
      streams.push_back(make_stream(group.name + suffix, rank, deadline, parent.comm->limits()));
      streams.back().comm->split_from(*parent.comm, group.color, group.key);
    }
  });
  return streams;
}

std::vector<NcclComm*> comms_of(std::vector<CommStream> const& streams) {
  std::vector<NcclComm*> out;
  for (auto const& stream : streams) out.push_back(stream.comm.get());
  return out;
}

}  // namespace tessera::comm::detail
#endif
