#include "tessera/checkpoint/save/background_saver.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "format/detail/file.hpp"
#include "save/detail/collective_try.hpp"
#include "save/detail/commit.hpp"
#include "save/detail/memory_shards.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/streaming.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Time between two checks of the other ranks while a save is waited for: a slow disk is no lost
/// rank.
constexpr std::chrono::milliseconds look_around{1000};
constexpr std::chrono::minutes delete_deadline{10};

/// Adds the time of a scope.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += seconds_since(start_); }
  Stopwatch(Stopwatch const&) = delete;
  Stopwatch& operator=(Stopwatch const&) = delete;

 private:
  double& sum_;
  Clock::time_point start_ = Clock::now();
};

struct Copy {
  char* to = nullptr;
  char const* from = nullptr;
  std::size_t bytes = 0;
};

constexpr std::size_t copy_at_once = std::size_t{16} << 20;

/// Copies by non-temporal stores: nobody reads the copy before the disk's thread, and states are
/// larger than the caches. The C library's memcpy uses them only for single copies of 3/8 of the
/// last cache and more; pieces for several threads are smaller.
void copy_in_parallel(std::vector<Copy> const& copies, int threads) {
  std::vector<Copy> parts;
  for (auto const& copy : copies)
    for (std::size_t at = 0; at < copy.bytes; at += copy_at_once)
      parts.push_back({copy.to + at, copy.from + at, std::min(copy_at_once, copy.bytes - at)});
  std::atomic<std::size_t> next{0};
  auto const work = [&] {
    for (std::size_t i = next++; i < parts.size(); i = next++)
      stream_bytes(parts[i].to, parts[i].from, parts[i].bytes);
    finish_streaming();
  };
  std::vector<std::jthread> helpers;
  for (std::size_t i = 1; i < std::min(parts.size(), static_cast<std::size_t>(threads)); ++i)
    helpers.emplace_back([&] {
      use_allowed_cores();
      work();
    });
  work();
}

/// A rank's partition of every state.
std::vector<std::size_t> bytes_of_states(zero::PartitionPlan const& plan,
                                         StateLayers const& layers) {
  auto const plans = plans_of(plan, layers);
  std::vector<std::size_t> out;
  for (std::size_t k = 0; k < layers.size(); ++k)
    out.insert(out.end(), layers[k].states.size(),
               static_cast<std::size_t>(plans[k].partition_numel()) * sizeof(float));
  return out;
}

}  // namespace

struct BackgroundSaver::Impl {
  /// A save between begin() and its outcome. The disk's thread owns `disk` while disk_works(), the
  /// caller's thread everything else.
  struct Flight {
    enum class Phase { laying_out, writing, publishing };
    Flight(SaveRequest const& what, StateViews const& states)
        : request(what), layers(layers_of(states)), views(states) {}
    SaveRequest request;
    StateLayers layers;
    StateViews views;                   ///< that are written
    std::optional<NodeMemory> nodes{};  ///< with a save to memory; none: to disk
    fs::path temporary;                 ///< in memory: the checkpoint's directory on this node
    std::string manifest{};             ///< text, of a save to memory
    Phase phase = Phase::writing;
    Clock::time_point started = Clock::now();
    double stall_seconds = 0.0, work_seconds = 0.0;
    struct {
      detail::Failure failure;
      double seconds = 0.0;
      detail::WrittenShard shard;
      SavedCheckpoint saved;
    } disk;
    memory::Event done;
  };

  Impl(comm::Collectives& group, int threads) : comm(group), copy_threads(threads) {}

  comm::Collectives& comm;
  int copy_threads;
  std::vector<std::shared_ptr<memory::Buffer>> snapshots;  ///< one a state: this rank's partition
  std::unique_ptr<Flight> flight;
  memory::Event deleted;  ///< what earlier saves have replaced or pruned
  std::unique_ptr<memory::Queue> disk =
      memory::make_worker_queue("disk");  // last: its thread ends before what it uses

  bool leads() const {
    return flight && flight->nodes ? flight->nodes->leads(comm.rank()) : comm.rank() == 0;
  }
  /// The others have copies of the same states.
  bool writes(zero::PartitionPlan const& plan) const { return plan.is_in_first_copy(comm.rank()); }

  void allocate(std::vector<std::size_t> const& bytes) {
    snapshots.resize(std::max(snapshots.size(), bytes.size()));
    for (std::size_t k = 0; k < bytes.size(); ++k) {
      if (snapshots[k] && snapshots[k]->bytes() >= bytes[k]) continue;
      snapshots[k].reset();
      snapshots[k] = std::make_shared<memory::Buffer>("checkpoint snapshot",
                                                      memory::Purpose::workspace, bytes[k]);
    }
  }

  StateViews copy(zero::PartitionPlan const& of_parameters, StateViews const& states) {
    StateViews out;
    std::vector<Copy> copies;
    for (std::size_t s = 0; s < states.size(); ++s) {
      auto const plan = of_parameters.of_extent(states[s].extent);
      auto& view = out.emplace_back(zero::StateView{states[s].name, {}, states[s].extent});
      for (std::size_t u = 0; u < plan.units().size(); ++u) {
        auto const& unit = plan.units()[u];
        if (!unit.is_on(Rank(comm.rank()))) {
          view.unit_shards.push_back(nullptr);
          continue;
        }
        view.unit_shards.push_back(static_cast<float*>(snapshots[s]->data()) +
                                   unit.partition_offset.value());
        copies.push_back({reinterpret_cast<char*>(view.unit_shards.back()),
                          reinterpret_cast<char const*>(states[s].unit_shards[u]),
                          static_cast<std::size_t>(unit.shard_numel) * sizeof(float)});
      }
    }
    copy_in_parallel(copies, copy_threads);
    return out;
  }

  /// Runs @p work on the disk's thread; its error is kept for the agreement.
  void start(std::function<void(Flight&)> work) {
    Flight* const f = flight.get();
    disk->submit([f, work = std::move(work)] {
      Stopwatch const watch(f->disk.seconds);
      f->disk.failure = detail::try_locally([&] { work(*f); });
    });
    f->done = disk->record();
  }

  /// Files that several ranks write into need their structure first.
  void start_layout() {
    flight->phase = Flight::Phase::laying_out;
    if (!writes(flight->request.plan)) return;
    start([rank = Rank(comm.rank())](Flight& f) {
      detail::wait_until_visible(f.temporary, 0);
      detail::create_structure(f.request, f.temporary, rank, f.layers);
    });
  }

  void start_write() {
    flight->phase = Flight::Phase::writing;
    if (!writes(flight->request.plan)) return;
    start([rank = Rank(comm.rank())](Flight& f) {
      detail::wait_until_visible(f.temporary, 0);
      auto const started = Clock::now();
      f.disk.shard = detail::write_rank(f.request, f.temporary, rank, f.views);
      f.disk.shard.microseconds = static_cast<std::int64_t>(1e6 * seconds_since(started));
    });
  }

  /// The end of a phase on all ranks.
  void agree_on_failure() {
    Flight& f = *flight;
    detail::agree_on_failure(comm, f.disk.failure, detail::undo(f.temporary, leads()));
    f.work_seconds += comm::all_reduce_value(comm, f.disk.seconds, comm::ReduceOp::max);
    f.disk.seconds = 0.0;
  }

  /// Records to rank 0, whose disk queue does the rest.
  void start_publish() {
    agree_on_failure();
    Flight& f = *flight;
    auto packed = comm::gather_bytes(comm, f.disk.shard.pack(), 0);
    if (f.nodes) return exchange(packed);
    f.phase = Flight::Phase::publishing;
    if (!leads()) return;
    start([packed = std::move(packed)](Flight& own) {
      own.disk.saved =
          detail::publish(own.request, own.layers, own.temporary, unpacked(own, packed));
      own.disk.saved.pruned = detail::prune(own.request);
    });
  }

  static std::vector<detail::WrittenShard> unpacked(Flight const& f,
                                                    std::vector<std::string> const& packed) {
    std::vector<detail::WrittenShard> shards;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(f.request.plan.ranks()); ++rank)
      shards.push_back(detail::WrittenShard::unpack(packed[rank]));
    return shards;
  }

  /// Shards to the next nodes; then each rank compares what it has written and received with the
  /// checksums, in the background.
  void exchange(std::vector<std::string> const& packed) {
    Stopwatch const watch(flight->work_seconds);
    Flight& f = *flight;
    f.manifest = comm::broadcast_from_root(comm, [&] {
      return detail::manifest_of(f.request, f.layers, f.temporary, unpacked(f, packed));
    });
    auto manifest = parse_manifest(f.manifest, f.temporary);
    int const writers = f.request.plan.ranks();
    auto const transfers = ring_transfers(*f.nodes, writers);
    detail::collective_try(
        comm, [&] { detail::carry_out(transfers, manifest, comm); },
        detail::undo(f.temporary, leads()));
    f.phase = Flight::Phase::publishing;
    std::vector<int> held;
    if (comm.rank() < writers) held.push_back(comm.rank());
    for (auto const& one : transfers)
      if (one.to == comm.rank()) held.push_back(one.shard);
    start([manifest = std::move(manifest), held](Flight& own) {
      for (int const shard : held) detail::check_shard(manifest, shard);
      own.disk.saved.bytes = manifest.shard_bytes();
    });
  }

  SavedCheckpoint conclude() {
    agree_on_failure();
    Flight& f = *flight;
    if (f.nodes)
      detail::collective_try(
          comm,
          [&] {
            if (leads()) write_file_atomically(f.temporary / "manifest.json", f.manifest);
          },
          detail::undo(f.temporary, leads()));
    SavedCheckpoint saved = std::move(f.disk.saved);
    saved.directory = f.request.directory / step_name(f.request.step);
    saved.bytes = comm::all_reduce_value(comm, saved.bytes, comm::ReduceOp::max);
    saved.work_seconds = f.work_seconds;
    if (leads() && !f.nodes) delete_old(f.request.directory);
    return saved;
  }

  /// Deletes old checkpoints while the training continues: a file system takes 0.1 s per GiB.
  void delete_old(fs::path const& checkpoints) {
    disk->submit([checkpoints] { detail::remove_trash(checkpoints); });
    deleted = disk->record();
  }

  void wait_for_deletion() { deleted.wait("deletion of old checkpoints", delete_deadline); }

  /// Rank 0: an empty directory, when the room of deleted checkpoints is free.
  std::string prepare(Flight const& f) {
    if (f.nodes) return detail::prepare_in_memory(f.request).string();
    auto const& checkpoints = f.request.directory;
    std::error_code error;
    if (!deleted.done() && fs::exists(checkpoints, error) &&
        detail::free_bytes(checkpoints) < detail::bytes_needed(f.request, f.layers))
      wait_for_deletion();
    return detail::prepare(f.request, f.layers).string();
  }

  /// A failed phase ends the flight.
  template <class Work>
  auto or_give_up(Work&& work) {
    try {
      return work();
    } catch (...) {
      flight.reset();
      throw;
    }
  }
};

BackgroundSaver::BackgroundSaver(comm::Collectives& comm, int copy_threads)
    : impl_(std::make_unique<Impl>(comm, copy_threads)) {}
BackgroundSaver::~BackgroundSaver() = default;

std::size_t BackgroundSaver::snapshot_bytes(zero::PartitionPlan const& plan,
                                            StateLayers const& layers) {
  std::size_t sum = 0;
  for (auto const bytes : bytes_of_states(plan, layers)) sum += bytes;
  return sum;
}

void BackgroundSaver::reserve(zero::PartitionPlan const& plan, StateLayers const& layers) {
  if (!impl_->writes(plan)) return;
  impl_->allocate(bytes_of_states(plan, layers));
  // shared with the task: a larger snapshot may take the place of this one before it has run
  for (auto const& snapshot : impl_->snapshots)
    impl_->disk->submit([snapshot] { (void)snapshot->populate(); });
}

void BackgroundSaver::begin(SaveRequest const& request, StateViews const& states, Source source) {
  TESSERA_EXPECT(!in_flight());
  impl_->flight = std::make_unique<Impl::Flight>(request, states);
  begin_flight(states, source);
}

void BackgroundSaver::begin_in_memory(NodeMemory const& memory, SaveRequest request,
                                      StateViews const& states, Source source) {
  TESSERA_EXPECT(!in_flight());
  request.directory = memory.directory;
  request.file_starts.clear();
  request.model_files.reset();
  impl_->flight = std::make_unique<Impl::Flight>(request, states);
  impl_->flight->nodes = memory;
  begin_flight(states, source);
}

void BackgroundSaver::begin_flight(StateViews const& states, Source source) {
  auto& comm = impl_->comm;
  Impl::Flight& f = *impl_->flight;
  SaveRequest const& request = f.request;
  impl_->or_give_up([&] {
    std::string name;
    detail::collective_try(
        comm,
        [&] {
          detail::check_request(request, states);
          TESSERA_VALIDATE(comm.size() % request.plan.ranks() == 0, InternalError, "a plan for ",
                           request.plan.ranks(), " ranks is saved by ", comm.size());
          if (impl_->leads()) name = impl_->prepare(f);
          if (source == Source::in_place || !impl_->writes(request.plan)) return;
          impl_->allocate(bytes_of_states(request.plan, f.layers));
          f.views = impl_->copy(request.plan, states);
        },
        [&] { detail::undo(name, !name.empty())(); });
    f.temporary = f.nodes ? f.nodes->directory / step_name(request.step)
                          : fs::path(comm::broadcast_bytes(comm, name, 0));
    if (detail::shares_files(request))
      impl_->start_layout();
    else
      impl_->start_write();
    f.stall_seconds = f.work_seconds = seconds_since(f.started);
  });
}

bool BackgroundSaver::in_flight() const { return impl_->flight != nullptr; }
std::int64_t BackgroundSaver::step() const {
  return in_flight() ? impl_->flight->request.step : -1;
}
bool BackgroundSaver::disk_works() const { return in_flight() && !impl_->flight->done.done(); }

std::optional<SavedCheckpoint> BackgroundSaver::advance() {
  TESSERA_EXPECT(in_flight() && !disk_works());
  auto const started = Clock::now();
  return impl_->or_give_up([&]() -> std::optional<SavedCheckpoint> {
    Impl::Flight& f = *impl_->flight;
    if (f.phase != Impl::Flight::Phase::publishing) {
      if (f.phase == Impl::Flight::Phase::writing) {
        impl_->start_publish();
      } else {
        impl_->agree_on_failure();
        impl_->start_write();
      }
      f.stall_seconds += seconds_since(started);
      return std::nullopt;
    }
    SavedCheckpoint saved = impl_->conclude();
    saved.stall_seconds = f.stall_seconds + seconds_since(started);
    saved.seconds = seconds_since(f.started);  // last: it contains all stalls
    impl_->flight.reset();
    return saved;
  });
}

SavedCheckpoint BackgroundSaver::finish() {
  TESSERA_EXPECT(in_flight());
  for (;;) {
    auto const started = Clock::now();
    do (void)impl_->flight->done.wait_for(look_around);
    while (comm::all_reduce_value(impl_->comm, std::int64_t{disk_works()}, comm::ReduceOp::max) !=
           0);
    impl_->flight->stall_seconds += seconds_since(started);
    if (auto saved = advance()) return *saved;
  }
}

void BackgroundSaver::finish_deletion() {
  TESSERA_EXPECT(!in_flight());
  if (impl_->leads()) impl_->wait_for_deletion();
  impl_->comm.barrier();
}

}  // namespace tessera::checkpoint
