#include "tessera/checkpoint/tools/verify.hpp"

#include <algorithm>

#include "format/detail/checksum.hpp"
#include "format/detail/chunk_reader.hpp"
#include "format/detail/hdf5.hpp"
#include "format/detail/shard_file.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/core/error.hpp"
#include "tools/detail/structure_check.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

/// How far ahead of the checksums the page cache is asked to fetch.
constexpr std::int64_t read_ahead_bytes = std::int64_t{32} << 20;
/// Tensors named when a file is missing.
constexpr std::size_t most_named = 4;

/// One state of an extent with its place.
struct StoredState {
  Manifest const* manifest = nullptr;  ///< manifest of its layer
  detail::ExtentState what;
  std::int64_t chunks = 0;
  std::int64_t first = 0, end = 0;  ///< bytes of the shard, from its first chunk to its last
};

/// Adds what of every shard is to be read.
void add_stored_states(Manifest const& manifest, std::vector<std::vector<StoredState>>& shards) {
  for (auto const& tensor : manifest.tensors)
    for (auto const& extent : tensor.extents)
      for (std::size_t s = 0; s < manifest.states.size(); ++s) {
        detail::ExtentState const what{&tensor, &extent, s};
        std::int64_t const chunks = detail::chunk_count(extent.numel * 4, manifest.checksum_chunk);
        std::int64_t const first = detail::location_of(manifest, what, 0).offset,
                           end = detail::location_of(manifest, what, chunks - 1).end();
        shards[static_cast<std::size_t>(extent.shard)].push_back(
            {&manifest, what, chunks, first, end});
      }
}

/// Returns the stored states of each shard, ordered by their offset in the file.
std::vector<std::vector<StoredState>> stored_states_of(Manifest const& manifest,
                                                       std::vector<Manifest> const& reduced) {
  std::vector<std::vector<StoredState>> shards(manifest.shards.size());
  add_stored_states(manifest, shards);
  for (auto const& layer : reduced) add_stored_states(layer, shards);
  for (auto& stored : shards)
    std::sort(stored.begin(), stored.end(),
              [](auto const& a, auto const& b) { return a.first < b.first; });
  return shards;
}

class Verification {
 public:
  Verification(Manifest const& manifest, VerifyOptions const& options, VerifyReport& report)
      : manifest_(manifest),
        options_(options),
        report_(report),
        files_(manifest, detail::ShardFiles::Sizes::any) {}

  void run() {
    auto const reduced = manifest_.reduced_manifests();
    auto const stored = stored_states_of(manifest_, reduced);
    for (int i = 0; i < static_cast<int>(manifest_.shards.size()); ++i)
      check_shard(i, stored[static_cast<std::size_t>(i)]);
    check_view();
    add_nonfinite();
    report_.tensors = static_cast<std::int64_t>(manifest_.tensors.size());
  }

  void add(Damage damage) {
    if (static_cast<std::size_t>(++report_.damages) > options_.max_reported) return;
    report_.problems.push_back(damage.text);
    report_.found.push_back(std::move(damage));
  }

 private:
  void check_shard(int index, std::vector<StoredState> const& stored) {
    fs::path const path = manifest_.shard_path(index);
    std::int64_t size = 0;
    try {
      size = files_.open(index).size();
    } catch (Error const& e) {
      add({path.string(), "", "", 0, 0, concat(e.what(), "; it holds ", lost(stored))});
      report_.unreadable += e.code() == ExitCode::io;
      done_ += bytes_of(stored);
      return;
    }
    ++report_.files;
    std::int64_t const expected = manifest_.shards[static_cast<std::size_t>(index)].bytes;
    if (size != expected)
      add({path.string(), "", "", std::min(size, expected), std::max(size, expected),
           concat("shard ", path.string(), " has ", size, " bytes, ", expected,
                  " were written; it is ", size < expected ? "truncated" : "changed")});
    else
      add_lines(path, detail::run_sandboxed([&] {
                  return detail::compare_structure(manifest_, index, options_.max_reported);
                }));
    if (options_.depth == VerifyOptions::Depth::everything)
      read_shard(path, index, size, stored);
    else
      note_cut_off(path, size, stored);
  }

  void add_lines(fs::path const& path, detail::SandboxResult const& result) {
    for (auto const& line : result.lines) add({path.string(), "", "", 0, 0, line});
    if (!result.failure.empty())
      add({path.string(), "", "", 0, 0,
           concat(path.string(), ": HDF5, reading its structure, ", result.failure,
                  "; the file is malformed")});
  }

  void note_cut_off(fs::path const& path, std::int64_t size,
                    std::vector<StoredState> const& stored) {
    for (auto const& one : stored)
      if (one.end > size)
        add_range(path, one, std::max(one.first, size), one.end, "are after the end of the file");
  }

  /// Damaged chunks side by side are one damage.
  struct Run {
    std::int64_t first = 0, end = 0;
    std::string reason;
  };

  void read_shard(fs::path const& path, int index, std::int64_t size,
                  std::vector<StoredState> const& stored) {
    asked_ = 0;
    for (auto const& one : stored) {
      Run bad;
      for (std::int64_t b = 0; b < one.chunks; ++b) {
        auto const place = detail::location_of(*one.manifest, one.what, b);
        std::int64_t const first = place.offset, end = place.end();
        if (end > size) break;
        fetch_ahead(index, end, size);
        std::string reason = problem_of(one, b);
        if (reason != bad.reason) end_run(path, one, bad);
        if (!reason.empty()) bad = {bad.end == first ? bad.first : first, end, std::move(reason)};
        step(end - first);
      }
      end_run(path, one, bad);
    }
    note_cut_off(path, size, stored);
  }

  void fetch_ahead(int index, std::int64_t end, std::int64_t size) {
    for (; asked_ < std::min(end + read_ahead_bytes, size); asked_ += read_ahead_bytes / 8)
      files_.open(index).read_ahead(asked_, read_ahead_bytes / 8);
  }

  void end_run(fs::path const& path, StoredState const& one, Run& run) {
    if (run.end > run.first) add_range(path, one, run.first, run.end, run.reason);
    run = {};
  }

  /// Empty when the chunk is what was written.
  std::string problem_of(StoredState const& one, std::int64_t chunk) {
    buffer_.resize(static_cast<std::size_t>(manifest_.checksum_chunk));
    try {
      auto const bytes = detail::read_chunk(*one.manifest, files_, one.what, chunk, buffer_.data());
      report_.bytes += bytes;
      nonfinite_.add(one.what.tensor->name, one.manifest->states[one.what.state],
                     count_nonfinite(reinterpret_cast<float const*>(buffer_.data()), bytes / 4));
      return "";
    } catch (DataError const&) {
      return "do not have the checksum they were written with";
    } catch (Error const& e) {
      return concat("cannot be read (", e.what(), ")");
    }
  }

  /// Without reading, what the manifest says about the save.
  void add_nonfinite() {
    bool const read = options_.depth == VerifyOptions::Depth::everything;
    for (auto const& one : read || !manifest_.nonfinite ? nonfinite_.list() : *manifest_.nonfinite)
      add({manifest_.directory.string(), one.tensor, one.state, 0, 0,
           concat(manifest_.directory.string(), " is not finite: ", text_of({one}))});
  }

  void add_range(fs::path const& path, StoredState const& one, std::int64_t first, std::int64_t end,
                 std::string const& why) {
    auto const& name = one.what.tensor->name;
    auto const& state = one.manifest->states[one.what.state];
    add({path.string(), name, state, first, end,
         concat("shard ", path.string(), " is damaged: ", state, " of tensor ", name, ", bytes ",
                first, " to ", end, " ", why)});
  }

  void check_view() {
    fs::path const path = manifest_.directory / "view.h5";
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path, error))) return;
    if (!fs::is_regular_file(fs::symlink_status(path, error))) {
      add({path.string(), "", "", 0, 0, path.string() + " is not a regular file"});
      return;
    }
    ++report_.files;
    add_lines(path, detail::run_sandboxed(
                        [&] { return detail::compare_view(manifest_, options_.max_reported); }));
  }

  std::string lost(std::vector<StoredState> const& stored) const {
    std::vector<std::string> names;
    for (auto const& one : stored)
      if (one.manifest == &manifest_ && one.what.state == 0) names.push_back(one.what.tensor->name);
    std::string text;
    for (std::size_t i = 0; i < std::min(names.size(), most_named); ++i)
      text += (i ? ", " : "") + names[i];
    return names.size() > most_named
               ? concat(text, " and ", names.size() - most_named, " more tensors' parts")
               : "parts of " + (text.empty() ? "no tensor" : text);
  }

  static std::int64_t bytes_of(std::vector<StoredState> const& stored) {
    std::int64_t bytes = 0;
    for (auto const& one : stored) bytes += one.end - one.first;
    return bytes;
  }
  void step(std::int64_t bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(done_, manifest_.shard_bytes());
  }

  Manifest const& manifest_;
  VerifyOptions const& options_;
  VerifyReport& report_;
  detail::ShardFiles files_;
  std::vector<char> buffer_;
  NonFiniteTally nonfinite_;
  std::int64_t done_ = 0,
               asked_ = 0;  ///< bytes of all shards; of this shard, asked from the page cache
};

}  // namespace

VerifyReport verify(std::filesystem::path const& step_directory, VerifyOptions const& options) {
  VerifyReport report;
  try {
    Manifest const manifest = read_manifest(step_directory);
    report.files = 1;
    Verification(manifest, options, report).run();
  } catch (Error const& e) {
    ++report.damages;
    report.unreadable += examine(step_directory).state == CheckpointState::unreadable;
    report.found.push_back({(step_directory / "manifest.json").string(), "", "", 0, 0, e.what()});
    report.problems.emplace_back(e.what());
  }
  if (auto const more = report.damages - static_cast<std::int64_t>(report.found.size()); more > 0)
    report.problems.push_back(concat("and ", more, " more"));
  return report;
}

}  // namespace tessera::checkpoint
