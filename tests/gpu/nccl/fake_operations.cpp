/// Operations of the fake NCCL, their groups, and the end of a communicator in a group.
#include <chrono>
#include <utility>

#include "fake_state.hpp"
#include "tessera/core/error.hpp"

namespace tessera::test {
namespace {

thread_local int depth = 0;
thread_local std::vector<std::pair<std::shared_ptr<State>, NcclCall>> grouped;
thread_local cudaStream_t grouped_stream = nullptr;
thread_local std::vector<std::shared_ptr<State>> grouped_aborts;

/// In place, one operand follows from the other, and its offset from the rank.
void note_places(State const& s, NcclCall& c) {
  auto const in = read_by(c, s.ranks(), s.rank()), out = written_by(c, s.ranks(), s.rank());
  bool const in_place = overlap(in, out);
  if (!in_place || c.kind != NcclKind::all_gather) c.send_at = place(s, in);
  if (!in_place || c.kind != NcclKind::reduce_scatter) c.receive_at = place(s, out);
}

void check_memory(State const& s, NcclCall const& c) {
  auto const in = read_by(c, s.ranks(), s.rank()), out = written_by(c, s.ranks(), s.rank());
  if (!in_device_memory(in))
    breach(concat(name_of(c.kind), ": the ", in.bytes,
                  " bytes of its input are not all in device memory"));
  if (!in_device_memory(out))
    breach(concat(name_of(c.kind), ": the ", out.bytes,
                  " bytes of its output are not all in device memory"));
  if (!placed_well(c, s.ranks(), s.rank()))
    breach(concat(name_of(c.kind), ": input and output overlap, and not in place"));
}

/// Operations of a group run at the same time.
void check_group(State const& s, std::vector<NcclCall> const& calls) {
  for (std::size_t i = 0; i < calls.size(); ++i)
    for (std::size_t k = 0; k < calls.size(); ++k) {
      auto const out = written_by(calls[i], s.ranks(), s.rank());
      if (i != k && (overlap(out, read_by(calls[k], s.ranks(), s.rank())) ||
                     overlap(out, written_by(calls[k], s.ranks(), s.rank()))))
        return breach(concat(name_of(calls[i].kind), " writes what ", name_of(calls[k].kind),
                             " of the same group uses"));
    }
}

ncclResult_t start(std::shared_ptr<State> const& s, std::vector<NcclCall> calls,
                   cudaStream_t stream) {
  std::lock_guard const lock(s->mutex);
  if (!ready(*s, name_of(calls[0].kind).c_str())) return ncclInvalidArgument;
  if (!stream) breach("an operation on the default stream");
  check_group(*s, calls);
  s->launch = {std::move(calls), 0, true};
  for (auto& c : s->launch.calls) note_places(*s, c);
  for (auto const& c : s->launch.calls)
    s->launch.registered = s->launch.registered &&
                           is_registered(*s, read_by(c, s->ranks(), s->rank())) &&
                           is_registered(*s, written_by(c, s->ranks(), s->rank()));
  s->stream = stream;
  return begin(s, Phase::launching);
}

void wait_for_aborts() {
  if (!grouped_aborts.empty()) {
    std::lock_guard const lock(world().mutex);
    world().abort_groups.push_back(static_cast<int>(grouped_aborts.size()));
  }
  for (auto const& s : std::exchange(grouped_aborts, {}))
    for (int queued = s->queued; queued > 0; queued = s->queued) s->queued.wait(queued);
}

ncclResult_t call(ncclComm_t comm, NcclCall const& c, cudaStream_t stream) {
  auto const s = find(comm, name_of(c.kind).c_str());
  if (!s) return ncclInvalidArgument;
  check_memory(*s, c);
  bool const message = c.kind == NcclKind::send || c.kind == NcclKind::receive;
  if (c.peer >= s->ranks() ||
      (c.peer < 0 && (message || c.kind == NcclKind::broadcast || c.kind == NcclKind::reduce))) {
    breach(concat(name_of(c.kind), ": there is no rank ", c.peer));
    return ncclInvalidArgument;
  }
  if (depth == 0) return start(s, {c}, stream);
  if (!grouped.empty() && (grouped[0].first != s || grouped_stream != stream))
    breach("a group of several communicators or streams");
  grouped.emplace_back(s, c);
  grouped_stream = stream;
  return ncclSuccess;
}

}  // namespace
}  // namespace tessera::test

using namespace tessera::test;

extern "C" {

/// Waits until the streams have left the operations of this communicator, in a group at its end.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  auto const s = find(comm, "ncclCommAbort");
  if (!s) return ncclInvalidArgument;
  ncclComm_t unborn = nullptr;
  {
    std::lock_guard const lock(s->mutex);
    s->ended = true;
    s->ended.notify_all();
    s->registered.clear();
    if (s->phase == Phase::splitting) unborn = s->split;
  }
  {
    std::lock_guard const lock(world().mutex);
    for (auto* const ended : {comm, unborn})
      if (ended && world().communicators.erase(ended)) delete ended;
  }
  grouped_aborts.push_back(s);
  if (depth == 0) wait_for_aborts();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ++depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (depth == 0) breach("ncclGroupEnd without ncclGroupStart");
  if (--depth > 0) return ncclSuccess;
  wait_for_aborts();
  if (grouped.empty()) return ncclSuccess;
  auto const calls = std::exchange(grouped, {});
  std::vector<NcclCall> all;
  for (auto const& [state, c] : calls) all.push_back(c);
  return start(calls[0].first, std::move(all), grouped_stream);
}

ncclResult_t ncclBroadcast(void const* in, void* out, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {NcclKind::broadcast, in, out, count, type, ncclSum, root}, stream);
}
ncclResult_t ncclAllReduce(void const* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {NcclKind::all_reduce, in, out, count, type, op, -1}, stream);
}
ncclResult_t ncclReduce(void const* in, void* out, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {NcclKind::reduce, in, out, count, type, op, root}, stream);
}
ncclResult_t ncclReduceScatter(void const* in, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {NcclKind::reduce_scatter, in, out, count, type, op, -1}, stream);
}
ncclResult_t ncclAllGather(void const* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {NcclKind::all_gather, in, out, count, type, ncclSum, -1}, stream);
}
ncclResult_t ncclSend(void const* in, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {NcclKind::send, in, nullptr, count, type, ncclSum, peer}, stream);
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, {NcclKind::receive, nullptr, out, count, type, ncclSum, peer}, stream);
}

/// Replaces the CUDA runtime in builds that link none.
__attribute__((weak)) cudaError_t cudaGetLastError() { return cudaSuccess; }
}
