#include "tessera/checkpoint/tools/convert.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "format/detail/checksum.hpp"
#include "format/detail/chunk_codec.hpp"
#include "format/detail/compressed_shard.hpp"
#include "format/detail/file.hpp"
#include "format/detail/shard_file.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/format/view.hpp"
#include "tessera/core/affinity.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/text.hpp"
#include "tools/detail/conversion_plan.hpp"
#include "tools/detail/state_reader.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Memory of the chunks that are compressed at one time: elements, shuffled, compressed.
constexpr std::int64_t compression_bytes = std::int64_t{96} << 20;

/// A part of a planned file with its place among the runs.
struct PlacedPart {
  detail::TensorPart part;
  std::size_t run = 0;
};

class Conversion {
 public:
  Conversion(ConvertOptions const& options, Manifest const& source, fs::path const& directory)
      : options_(options),
        source_(source),
        reader_(detail::open_states(source.directory)),
        target_(source) {
    target_.directory = directory;
    target_.world_size = detail::ranks_after(source, options);
    target_.shards.clear();
    for (auto& tensor : target_.tensors) tensor.extents.clear();
    total_ = source.parameter_count() * 4 * static_cast<std::int64_t>(source.states.size());
  }

  Manifest const& run() {
    auto const files = detail::plan_conversion(source_, options_);
    for (std::size_t i = 0; i < files.size(); ++i) write_file(static_cast<int>(i), files[i]);
    for (auto& tensor : target_.tensors)
      std::sort(tensor.extents.begin(), tensor.extents.end(),
                [](auto const& a, auto const& b) { return a.offset < b.offset; });
    return target_;
  }

 private:
  void write_file(int index, detail::PlannedFile const& file) {
    detail::ShardLayout layout{{source_.run_id,
                                source_.step,
                                {index, Rank(file.first_rank), file.ranks},
                                target_.world_size,
                                source_.zero_stage},
                               source_.states,
                               {}};
    std::vector<PlacedPart> parts;
    for (auto const& part : file.parts) {
      auto const& tensor = source_.tensors[part.tensor];
      if (parts.empty() || parts.back().part.tensor != part.tensor)
        layout.runs.push_back({source_.states, tensor.name, tensor.shape, part.offset, 0, {}, {}});
      auto& run = layout.runs.back();
      run.numel += part.numel;
      if (part.rank >= 0)
        run.part_ranks.push_back(part.rank), run.part_offsets.push_back(part.offset);
      parts.push_back({part, layout.runs.size() - 1});
    }
    fs::path const path = target_.directory / detail::shard_name(index);
    std::int64_t const bytes = options_.compression == Compression::none
                                   ? write_plain(path, layout, parts, index)
                                   : write_compressed(path, layout, parts, index);
    target_.shards.push_back(
        {detail::shard_name(index), bytes, file.first_rank, file.ranks, options_.compression});
  }

  ExtentRecord& add_piece(detail::TensorPart const& part, int shard, bool shares) {
    auto& extents = target_.tensors[part.tensor].extents;
    extents.push_back({shard, part.offset, part.numel,
                       std::vector<StateLocation>(source_.states.size()), shares ? part.rank : -1});
    return extents.back();
  }

  std::int64_t write_plain(fs::path const& path, detail::ShardLayout const& layout,
                           std::vector<PlacedPart> const& parts, int index) {
    detail::create_shard(path, layout);
    auto const places = detail::read_places(path, layout);
    detail::File file = detail::File::open_write(path);
    std::vector<float> buffer(static_cast<std::size_t>(source_.checksum_chunk / 4));
    std::vector<std::size_t> extent_of;
    for (auto const& placed : parts) {
      extent_of.push_back(target_.tensors[placed.part.tensor].extents.size());
      add_piece(placed.part, index, layout.identity.group.count > 1);
    }
    for (std::size_t s = 0; s < source_.states.size(); ++s)
      for (std::size_t i = 0; i < parts.size(); ++i) {
        auto const& [part, run] = parts[i];
        auto& location = target_.tensors[part.tensor].extents[extent_of[i]].states[s];
        location.file_offset = places[run][s] + (part.offset - layout.runs[run].offset) * 4;
        for (std::int64_t done = 0; done < part.numel;) {
          std::int64_t const count =
              std::min(static_cast<std::int64_t>(buffer.size()), part.numel - done);
          reader_->read(part.tensor, s, part.offset + done, count, buffer.data());
          location.xxh3.push_back(detail::xxh3(buffer.data(), count * 4));
          file.write(buffer.data(), count * 4, location.file_offset + done * 4);
          file.start_writeback(location.file_offset + done * 4, count * 4);
          done += count;
          step(count);
        }
      }
    std::int64_t const bytes = file.size();
    file.sync();
    file.close();
    return bytes;
  }

  /// The parts of a run become one extent: chunks span the complete dataset.
  std::int64_t write_compressed(fs::path const& path, detail::ShardLayout const& layout,
                                std::vector<PlacedPart> const& parts, int index) {
    detail::CompressedShard shard(path, layout, source_.checksum_chunk, options_.level);
    std::vector<std::size_t> tensors;
    for (auto const& placed : parts)
      if (placed.run == tensors.size()) tensors.push_back(placed.part.tensor);
    for (std::size_t r = 0; r < layout.runs.size(); ++r)
      add_piece({tensors[r], -1, layout.runs[r].offset, layout.runs[r].numel}, index, false);
    for (std::size_t s = 0; s < source_.states.size(); ++s)
      for (std::size_t r = 0; r < layout.runs.size(); ++r)
        compress_run(shard, tensors[r], layout.runs[r], r, s);
    return shard.finish();
  }

  struct Chunk {
    std::vector<float> data;
    std::vector<char> stored;
    std::int64_t numel = 0;
  };

  /// Chunks are compressed side by side and written in order.
  void compress_run(detail::CompressedShard& shard, std::size_t tensor,
                    detail::RunLayout const& run, std::size_t index, std::size_t state) {
    std::int64_t const chunk_numel = std::min(run.numel, source_.checksum_chunk / 4);
    chunks_.resize(static_cast<std::size_t>(
        std::clamp<std::int64_t>(compression_bytes / (source_.checksum_chunk * 3), 1,
                                 static_cast<std::int64_t>(allowed_cores().size()))));
    auto& location = target_.tensors[tensor].extents.back().states[state];
    for (std::int64_t at = 0, number = 0; at < run.numel;) {
      std::vector<std::jthread> workers;
      std::size_t used = 0;
      for (; used < chunks_.size() && at < run.numel; ++used) {
        Chunk& chunk = chunks_[used];
        chunk.numel = std::min(chunk_numel, run.numel - at);
        chunk.data.resize(static_cast<std::size_t>(chunk_numel));
        reader_->read(tensor, state, run.offset + at, chunk.numel, chunk.data.data());
        location.xxh3.push_back(detail::xxh3(chunk.data.data(), chunk.numel * 4));
        workers.emplace_back([&chunk, chunk_numel, this] {
          detail::compress_chunk(chunk.data.data(), chunk.numel, chunk_numel, options_.level,
                                 chunk.stored);
        });
        at += chunk.numel;
      }
      workers.clear();
      for (std::size_t i = 0; i < used; ++i) {
        location.chunks.push_back(shard.put(index, state, number++, chunks_[i].stored));
        step(chunks_[i].numel);
      }
    }
    location.file_offset = location.chunks.front().offset;
  }

  void step(std::int64_t numel) {
    done_ += numel * 4;
    if (options_.progress) options_.progress(done_, total_);
  }

  ConvertOptions const& options_;
  Manifest const& source_;
  std::unique_ptr<detail::StateReader> reader_;
  Manifest target_;
  std::vector<Chunk> chunks_;
  std::int64_t done_ = 0, total_ = 0;  ///< bytes of elements
};

void check(ConvertOptions const& options) {
  TESSERA_VALIDATE(options.ranks >= 0 && options.ranks_per_file >= 0, UsageError, "--ranks is ",
                   options.ranks, " and --ranks-per-file ", options.ranks_per_file,
                   "; give numbers from 1");
  TESSERA_VALIDATE(options.ranks <= 1'000'000, UsageError, "--ranks is ", options.ranks,
                   "; at most 1,000,000 are known");
  TESSERA_VALIDATE(options.level >= 1 && options.level <= 9, UsageError,
                   "gzip has levels 1 (quick) to 9 (small), not ", options.level);
  std::error_code error;
  TESSERA_VALIDATE(!fs::exists(fs::symlink_status(options.destination, error)), UsageError,
                   options.destination.string(),
                   " exists already; give a name that does not, a conversion replaces nothing");
}

/// A temporary directory next to the destination.
fs::path make_temporary(fs::path const& destination) {
  for (int attempt = 1;; ++attempt) {
    fs::path temporary = destination;
    temporary += concat(".tmp.", attempt);
    if (::mkdir(temporary.c_str(), 0777) == 0) return temporary;
    TESSERA_VALIDATE(errno == EEXIST && attempt < 10000, IoError,
                     with_errno("cannot create directory " + temporary.string(), errno));
  }
}

void check_room(Manifest const& source, ConvertOptions const& options, fs::path const& directory) {
  if (options.compression != Compression::none) return;  // not known in advance
  std::int64_t const needed = source.parameter_count() * 4 *
                              static_cast<std::int64_t>(source.states.size()),
                     free = detail::free_bytes(directory);
  TESSERA_VALIDATE(free >= needed, IoError, "the converted checkpoint needs ", human_bytes(needed),
                   " in ", directory.string(), ", but ", human_bytes(free),
                   " are free; choose another directory");
}

void commit(Manifest const& manifest, fs::path const& destination) {
  fs::path const view = manifest.directory / "view.h5";
  write_view(view, manifest);
  detail::File::open_write(view).sync();
  write_file_atomically(manifest.file(), manifest_text(manifest));
  detail::flush_directory(manifest.directory);
  std::error_code error;
  TESSERA_VALIDATE(!fs::exists(fs::symlink_status(destination, error)), IoError,
                   destination.string(), " was made by another program meanwhile");
  detail::rename_path(manifest.directory, destination);
  detail::flush_directory(destination.has_parent_path() ? destination.parent_path()
                                                        : fs::path("."));
}

}  // namespace

ConvertReport convert(ConvertOptions const& given) {
  auto const start = Clock::now();
  ConvertOptions options = given;
  if (!options.destination.has_filename()) options.destination = options.destination.parent_path();
  check(options);
  fs::path const directory = resolve_checkpoint(options.source, options.tag, options.when_damaged);
  Manifest const source = read_manifest(directory);
  TESSERA_VALIDATE(source.reduced_states.empty(), UsageError, directory.string(), " has the state ",
                   source.reduced_states[0].name,
                   ", which keeps fewer values than the parameters and is not converted; a run "
                   "resumes from the checkpoint with any number of ranks as it is");
  if (options.destination.has_parent_path())
    detail::make_directories(options.destination.parent_path());
  fs::path const temporary = make_temporary(options.destination);
  ConvertReport report{
      directory, options.destination,  source.step, static_cast<std::int64_t>(source.shards.size()),
      0,         source.shard_bytes(), 0,           0};
  try {
    check_room(source, options, temporary);
    Conversion conversion(options, source, temporary);
    Manifest const& target = conversion.run();
    commit(target, options.destination);
    report.files = static_cast<std::int64_t>(target.shards.size());
    report.bytes = target.shard_bytes();
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

}  // namespace tessera::checkpoint
