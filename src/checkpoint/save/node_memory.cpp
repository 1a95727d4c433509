#include "tessera/checkpoint/save/node_memory.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "format/detail/file.hpp"
#include "save/detail/collective_try.hpp"
#include "save/detail/commit.hpp"
#include "save/detail/memory_shards.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/limits.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::int64_t>;

std::string pack(Words const& words) {
  return {reinterpret_cast<char const*>(words.data()), words.size() * sizeof(Words::value_type)};
}

Words unpack(std::string const& bytes) {
  Words words(bytes.size() / sizeof(Words::value_type));
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

/// Texts of manifests by their steps.
using ManifestTexts = std::map<std::int64_t, std::string>;

/// One that cannot be read is passed over.
ManifestTexts manifests_in(fs::path const& directory, StepRange const& steps) {
  ManifestTexts texts;
  for (auto const& [step, saved] : step_directories(directory)) {
    bool const wanted = steps.after < step && step < steps.before;
    if (!wanted || !detail::path_exists(saved / "manifest.json")) continue;
    auto const failure = detail::try_locally(
        [&, at = step, &from = saved] { texts[at] = read_manifest_text(from); });
    if (failure.code != 0) log::warning(failure.text);
  }
  return texts;
}

/// A rank that has read a manifest. Two trainings of one step have written two texts.
struct Candidate {
  std::int64_t step = 0;
  int holder = 0;
};

/// The candidates of all ranks, those of the newest step first.
std::vector<Candidate> candidates_of(ManifestTexts const& mine, comm::Collectives& comm) {
  Words steps;
  for (auto const& [step, text] : mine) steps.push_back(step);
  auto const lists = comm::gather_bytes(comm, pack(steps), 0);
  std::vector<Candidate> candidates;
  for (std::size_t rank = 0; rank < lists.size(); ++rank)
    for (auto const step : unpack(lists[rank]))
      candidates.push_back({step, static_cast<int>(rank)});
  std::ranges::stable_sort(candidates, std::greater{}, &Candidate::step);
  Words packed;
  for (auto const& one : candidates) packed.insert(packed.end(), {one.step, one.holder});
  packed = unpack(comm::broadcast_bytes(comm, pack(packed), 0));
  candidates.clear();
  for (std::size_t i = 0; i < packed.size(); i += 2)
    candidates.push_back({packed[i], static_cast<int>(packed[i + 1])});
  return candidates;
}

/// The ranks of a node share its shards. @return those of this rank that are undamaged
Words undamaged_shards(Manifest const& manifest, NodeMemory const& memory, int rank) {
  auto const ranks = memory.ranks_of(memory.node_of[static_cast<std::size_t>(rank)]);
  auto const own = std::ranges::find(ranks, rank) - ranks.begin();
  Words good;
  std::ptrdiff_t present = 0;
  std::error_code error;
  for (int shard = 0; shard < static_cast<int>(manifest.shards.size()); ++shard) {
    if (!fs::exists(manifest.shard_path(shard), error)) continue;
    if (present++ % static_cast<std::ptrdiff_t>(ranks.size()) != own) continue;
    auto const failure = detail::try_locally([&] { detail::check_shard(manifest, shard); });
    if (failure.code == 0)
      good.push_back(shard);
    else
      log::warning(concat("a copy in memory is not used: ", failure.text));
  }
  return good;
}

std::vector<std::vector<int>> holders_of(Manifest const& manifest, NodeMemory const& memory,
                                         comm::Collectives& comm) {
  auto const lists =
      comm::gather_bytes(comm, pack(undamaged_shards(manifest, memory, comm.rank())), 0);
  Words pairs;  // node, shard, node, shard, ...
  for (std::size_t rank = 0; rank < lists.size(); ++rank)
    for (auto const shard : unpack(lists[rank]))
      pairs.insert(pairs.end(), {memory.node_of[rank], shard});
  pairs = unpack(comm::broadcast_bytes(comm, pack(pairs), 0));
  std::vector<std::vector<int>> holders(manifest.shards.size());
  for (std::size_t i = 0; i < pairs.size(); i += 2)
    holders[static_cast<std::size_t>(pairs[i + 1])].push_back(static_cast<int>(pairs[i]));
  return holders;
}

/// Why a checkpoint cannot be used; "" if it can.
std::string problem_of(Generation const& generation) {
  auto const lost = std::ranges::find_if(generation.holders, &std::vector<int>::empty);
  if (lost == generation.holders.end()) return "";
  auto const first = static_cast<std::size_t>(lost - generation.holders.begin());
  auto const count = std::ranges::count_if(generation.holders, &std::vector<int>::empty);
  return concat("no undamaged copy is left of ", generation.manifest.shards[first].file,
                count > 1 ? concat(" and ", count - 1, " more shards") : "");
}

/// On a node that was interrupted before it wrote the manifest, its shards count again.
void keep_manifest(Manifest const& manifest, NodeMemory const& memory, std::string const& text,
                   int rank) {
  if (!memory.leads(rank)) return;
  auto const failure = detail::try_locally([&] {
    if (detail::directory_exists(manifest.directory)) write_file_atomically(manifest.file(), text);
  });
  if (failure.code != 0) log::warning(failure.text);
}

/// What this rank's node lacks of what the ranks read, from nodes that have it: decided by rank 0.
std::vector<ShardTransfer> transfers_of(Words const& lacking, Generation const& generation,
                                        NodeMemory const& memory, comm::Collectives& comm) {
  auto const lists = comm::gather_bytes(comm, pack(lacking), 0);
  Words packed;
  std::vector<std::pair<int, std::int64_t>> planned;  // node and shard
  for (std::size_t rank = 0; rank < lists.size(); ++rank)
    for (auto const shard : unpack(lists[rank])) {
      std::pair const one(memory.node_of[rank], shard);
      if (std::ranges::find(planned, one) != planned.end()) continue;
      planned.push_back(one);
      auto const at = static_cast<std::size_t>(shard);
      auto const& holders = generation.holders[at];
      auto const senders = memory.ranks_of(holders[at % holders.size()]);
      packed.insert(packed.end(),
                    {shard, senders[at % senders.size()], static_cast<std::int64_t>(rank)});
    }
  packed = unpack(comm::broadcast_bytes(comm, pack(packed), 0));
  std::vector<ShardTransfer> transfers;
  for (std::size_t i = 0; i < packed.size(); i += 3)
    transfers.push_back({static_cast<int>(packed[i]), static_cast<int>(packed[i + 1]),
                         static_cast<int>(packed[i + 2])});
  return transfers;
}

std::size_t bytes_below(fs::path const& directory) {
  std::size_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    if (it->is_regular_file(gone)) bytes += it->file_size(gone);
  }
  return bytes;
}

std::string size_text(std::size_t bytes) { return human_bytes(static_cast<std::int64_t>(bytes)); }

}  // namespace

int NodeMemory::nodes() const {
  return node_of.empty() ? 0 : *std::max_element(node_of.begin(), node_of.end()) + 1;
}

std::vector<int> NodeMemory::ranks_of(int node) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < node_of.size(); ++rank)
    if (node_of[rank] == node) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

bool NodeMemory::leads(int rank) const {
  return ranks_of(node_of[static_cast<std::size_t>(rank)]).front() == rank;
}

bool Generation::has(int node, int shard) const {
  auto const& nodes = holders[static_cast<std::size_t>(shard)];
  return std::ranges::find(nodes, node) != nodes.end();
}

std::vector<ShardTransfer> ring_transfers(NodeMemory const& memory, int writers) {
  std::vector<ShardTransfer> transfers;
  int const nodes = memory.nodes();
  if (nodes < 2) return transfers;
  std::vector<std::vector<int>> ranks(static_cast<std::size_t>(nodes));
  for (std::size_t rank = 0; rank < memory.node_of.size(); ++rank)
    ranks[static_cast<std::size_t>(memory.node_of[rank])].push_back(static_cast<int>(rank));
  for (std::size_t const parity : {0U, 1U})
    for (std::size_t node = parity; node < ranks.size(); node += 2) {
      auto const& next = ranks[(node + 1) % ranks.size()];
      for (std::size_t i = 0; i < ranks[node].size(); ++i)
        if (int const rank = ranks[node][i]; rank < writers)
          transfers.push_back({rank, rank, next[i % next.size()]});
    }
  return transfers;
}

std::optional<Generation> find_generation(NodeMemory const& memory, StepRange const& steps,
                                          comm::Collectives& comm) {
  ManifestTexts mine;
  if (memory.leads(comm.rank())) {
    auto const failure = detail::try_locally([&] { mine = manifests_in(memory.directory, steps); });
    if (failure.code != 0)
      log::warning(
          concat("checkpoints in ", memory.directory.string(), " are not used: ", failure.text));
  }
  std::string tried;
  for (auto const& candidate : candidates_of(mine, comm)) {
    bool const holds = candidate.holder == comm.rank();
    auto const text =
        comm::broadcast_bytes(comm, holds ? mine.at(candidate.step) : "", candidate.holder);
    if (text == std::exchange(tried, text)) continue;
    Generation generation;
    auto problem = detail::try_locally([&] {
                     generation.manifest =
                         parse_manifest(text, memory.directory / step_name(candidate.step));
                   }).text;
    if (problem.empty()) {
      generation.holders = holders_of(generation.manifest, memory, comm);
      problem = problem_of(generation);
    }
    if (problem.empty()) {
      keep_manifest(generation.manifest, memory, text, comm.rank());
      return generation;
    }
    if (comm.rank() == 0)
      log::warning(
          concat("the checkpoint of step ", candidate.step, " in memory is not used: ", problem));
  }
  return std::nullopt;
}

std::vector<fs::path> fetch_shards(Generation const& generation, NodeMemory const& memory,
                                   zero::PartitionPlan const& plan, StateLayers const& layers,
                                   comm::Collectives& comm) {
  auto const& manifest = generation.manifest;
  int const node = memory.node_of[static_cast<std::size_t>(comm.rank())];
  Words lacking;
  for (int const shard : shards_of(manifest, plan, plan.rank_of(comm.rank()), layers))
    if (!generation.has(node, shard)) lacking.push_back(shard);
  auto const transfers = transfers_of(lacking, generation, memory, comm);
  std::vector<fs::path> received;
  auto failure = detail::try_locally([&] { detail::make_directories(manifest.directory); });
  auto const moved = detail::try_locally([&] { detail::carry_out(transfers, manifest, comm); });
  if (failure.code == 0) failure = moved;
  for (auto const& one : transfers) {
    if (one.to != comm.rank()) continue;
    received.push_back(manifest.shard_path(one.shard));
    if (failure.code == 0)
      failure = detail::try_locally([&] { detail::check_shard(manifest, one.shard); });
  }
  if (failure.code != 0) failure.code = static_cast<int>(ExitCode::bad_data);
  detail::agree_on_failure(comm, failure, [&] {
    std::error_code ignored;
    for (auto const& file : received) fs::remove(file, ignored);
  });
  return received;
}

void forget_after(NodeMemory const& memory, std::int64_t step, comm::Collectives const& comm) {
  if (!memory.leads(comm.rank())) return;
  auto const failure = detail::try_locally([&] {
    for (auto const& [saved, directory] : step_directories(memory.directory))
      if (saved > step || !detail::path_exists(directory / "manifest.json"))
        detail::discard(directory);
    detail::remove_trash(memory.directory);
  });
  if (failure.code != 0) log::warning(failure.text);
}

void require_memory(NodeMemory const& memory, std::size_t state_bytes, int snapshots,
                    comm::Collectives& comm) {
  comm::run_on_ranks(comm, [&] {
    if (!memory.leads(comm.rank())) return;
    auto const ranks =
        memory.ranks_of(memory.node_of[static_cast<std::size_t>(comm.rank())]).size();
    detail::make_directories(memory.directory);
    std::size_t const files =
        ranks * static_cast<std::size_t>(memory_copies(memory.nodes())) * state_bytes;
    std::size_t const all = files + ranks * static_cast<std::size_t>(snapshots) * state_bytes;
    std::size_t const held = bytes_below(memory.directory);
    auto const room = static_cast<std::size_t>(detail::free_bytes(memory.directory));
    auto const left = memory::available_memory();
    TESSERA_VALIDATE(files <= held + room && all <= held + left.bytes, OutOfMemoryError,
                     "--memory_save_steps needs ", size_text(all), " on host ", host_name(), ", ",
                     size_text(files), " of it in ", memory.directory.string(), " (",
                     memory_generations, " checkpoints of ", ranks, " ranks, ",
                     memory.nodes() > 1 ? "with" : "without",
                     " copies of another node's), but the directory has ", size_text(room),
                     " and memory ", size_text(left.bytes), " left (", left.limited_by,
                     "); use more ranks, or leave the option out");
  });
}

}  // namespace tessera::checkpoint
