#include "tessera/checkpoint/tools/convert.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "format/detail/checksum.hpp"
#include "format/detail/chunk_reader.hpp"
#include "format/detail/compressed_shard.hpp"
#include "format/detail/file.hpp"
#include "format/detail/shard_file.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/process.hpp"
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
  std::size_t layer = 0;  ///< the element-wise states, then each reduced state
  detail::TensorPart part;
  std::size_t run = 0;
};

/// The element-wise states, then each reduced state.
std::vector<Manifest> layers_of(Manifest const& manifest) {
  auto layers = manifest.reduced_manifests();
  layers.insert(layers.begin(), manifest);
  return layers;
}

std::int64_t element_bytes(Manifest const& manifest) {
  std::int64_t bytes = 0;
  for (auto const& layer : layers_of(manifest))
    bytes += layer.parameter_count() * static_cast<std::int64_t>(layer.states.size()) * 4;
  return bytes;
}

class Conversion {
 public:
  Conversion(ConvertOptions const& options, Manifest const& source, fs::path const& directory)
      : options_(options),
        source_(source),
        layers_(layers_of(source)),
        readers_(detail::open_states(source.directory)),
        target_(source),
        total_(element_bytes(source)) {
    target_.directory = directory;
    target_.world_size = detail::ranks_after(source, options);
    target_.shards.clear();
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      for (auto& tensor : tensors_of(layer)) tensor.extents.clear();
  }

  Manifest const& run() {
    std::vector<std::vector<detail::PlannedFile>> files;  // [layer][file]
    for (auto const& layer : layers_) files.push_back(detail::plan_conversion(layer, options_));
    for (std::size_t i = 0; i < files[0].size(); ++i) {
      detail::PlannedFile file = files[0][i];
      std::vector<PlacedPart> parts;
      for (std::size_t layer = 0; layer < files.size(); ++layer)
        for (auto const& part : files[layer][i].parts) parts.push_back({layer, part, 0});
      write_file(static_cast<int>(i), file, std::move(parts));
    }
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      for (auto& tensor : tensors_of(layer))
        std::sort(tensor.extents.begin(), tensor.extents.end(),
                  [](auto const& a, auto const& b) { return a.offset < b.offset; });
    return target_;
  }

 private:
  /// Returns the tensor records of a layer of the target checkpoint.
  std::vector<TensorRecord>& tensors_of(std::size_t layer) {
    return layer == 0 ? target_.tensors : target_.reduced_states[layer - 1].tensors;
  }

  void write_file(int index, detail::PlannedFile const& file, std::vector<PlacedPart> parts) {
    detail::ShardLayout layout{{source_.run_id,
                                source_.step,
                                {index, Rank(file.first_rank), file.ranks},
                                target_.world_size,
                                source_.zero_stage},
                               source_.state_names(),
                               {}};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      auto const& [layer, part, of_run] = parts[i];
      auto const& tensor = layers_[layer].tensors[part.tensor];
      if (i == 0 || parts[i - 1].layer != layer || parts[i - 1].part.tensor != part.tensor)
        layout.runs.push_back(
            {layers_[layer].states, tensor.name, tensor.shape, part.offset, 0, {}, {}});
      auto& run = layout.runs.back();
      run.numel += part.numel;
      if (part.rank >= 0)
        run.part_ranks.push_back(part.rank), run.part_offsets.push_back(part.offset);
      parts[i].run = layout.runs.size() - 1;
    }
    fs::path const path = target_.directory / detail::shard_name(index);
    std::int64_t const bytes = options_.compression == Compression::none
                                   ? write_plain(path, layout, parts, index)
                                   : write_compressed(path, layout, parts, index);
    target_.shards.push_back(
        {detail::shard_name(index), bytes, file.first_rank, file.ranks, options_.compression});
  }

  void add_extent(std::size_t layer, detail::TensorPart const& part, int shard, bool shares) {
    tensors_of(layer)[part.tensor].extents.push_back(
        {shard, part.offset, part.numel, std::vector<StateLocation>(layers_[layer].states.size()),
         shares ? part.rank : -1});
  }

  std::int64_t write_plain(fs::path const& path, detail::ShardLayout const& layout,
                           std::vector<PlacedPart> const& parts, int index) {
    detail::create_shard(path, layout);
    auto const places = detail::read_places(path, layout);
    detail::File file = detail::File::open_write(path);
    std::vector<std::size_t> extent_of;
    for (auto const& placed : parts) {
      extent_of.push_back(tensors_of(placed.layer)[placed.part.tensor].extents.size());
      add_extent(placed.layer, placed.part, index, layout.identity.group.count > 1);
    }
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      for (std::size_t s = 0; s < layers_[layer].states.size(); ++s)
        for (std::size_t i = 0; i < parts.size(); ++i) {
          if (parts[i].layer != layer) continue;
          auto const& [of_layer, part, run] = parts[i];
          auto& location = tensors_of(layer)[part.tensor].extents[extent_of[i]].states[s];
          location.file_offset = places[run][s] + (part.offset - layout.runs[run].offset) * 4;
          copy_part(file, parts[i], s, location);
        }
    std::int64_t const bytes = file.size();
    file.sync();
    file.close();
    return bytes;
  }

  void copy_part(detail::File& file, PlacedPart const& placed, std::size_t state,
                 StateLocation& location) {
    buffer_.resize(static_cast<std::size_t>(source_.checksum_chunk / 4));
    auto const& part = placed.part;
    for (std::int64_t done = 0; done < part.numel;) {
      std::int64_t const count =
          std::min(static_cast<std::int64_t>(buffer_.size()), part.numel - done);
      readers_[placed.layer]->read(part.tensor, state, part.offset + done, count, buffer_.data());
      location.xxh3.push_back(detail::xxh3(buffer_.data(), count * 4));
      file.write(buffer_.data(), count * 4, location.file_offset + done * 4);
      file.start_writeback(location.file_offset + done * 4, count * 4);
      done += count;
      step(count);
    }
  }

  /// The parts of a run become one extent: chunks span the complete dataset.
  std::int64_t write_compressed(fs::path const& path, detail::ShardLayout const& layout,
                                std::vector<PlacedPart> const& parts, int index) {
    detail::CompressedShard shard(path, layout, source_.checksum_chunk, options_.level);
    std::vector<PlacedPart> first;  // first part of each run
    for (auto const& placed : parts)
      if (placed.run == first.size()) first.push_back(placed);
    for (std::size_t r = 0; r < layout.runs.size(); ++r)
      add_extent(first[r].layer,
                 {first[r].part.tensor, -1, layout.runs[r].offset, layout.runs[r].numel}, index,
                 false);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      for (std::size_t s = 0; s < layers_[layer].states.size(); ++s)
        for (auto const& placed : first)
          if (placed.layer == layer) compress_run(shard, placed, layout.runs[placed.run], s);
    return shard.finish();
  }

  struct Chunk {
    std::vector<float> data;
    std::vector<char> stored;
    std::int64_t numel = 0;
  };

  /// Chunks are compressed side by side and written in order.
  void compress_run(detail::CompressedShard& shard, PlacedPart const& placed,
                    detail::RunLayout const& run, std::size_t state) {
    std::int64_t const chunk_numel = std::min(run.numel, source_.checksum_chunk / 4);
    chunks_.resize(static_cast<std::size_t>(
        std::clamp<std::int64_t>(compression_bytes / (source_.checksum_chunk * 3), 1,
                                 static_cast<std::int64_t>(allowed_cores().size()))));
    std::size_t const tensor = placed.part.tensor;
    auto& location = tensors_of(placed.layer)[tensor].extents.back().states[state];
    for (std::int64_t at = 0, number = 0; at < run.numel;) {
      std::vector<std::jthread> workers;
      std::size_t used = 0;
      for (; used < chunks_.size() && at < run.numel; ++used) {
        Chunk& chunk = chunks_[used];
        chunk.numel = std::min(chunk_numel, run.numel - at);
        chunk.data.resize(static_cast<std::size_t>(chunk_numel));
        readers_[placed.layer]->read(tensor, state, run.offset + at, chunk.numel,
                                     chunk.data.data());
        location.xxh3.push_back(detail::xxh3(chunk.data.data(), chunk.numel * 4));
        workers.emplace_back([&chunk, chunk_numel, this] {
          detail::compress_chunk(chunk.data.data(), chunk.numel, chunk_numel, options_.level,
                                 chunk.stored);
        });
        at += chunk.numel;
      }
      workers.clear();
      for (std::size_t i = 0; i < used; ++i) {
        location.chunks.push_back(shard.put(placed.run, state, number++, chunks_[i].stored));
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
  std::vector<Manifest> layers_;
  std::vector<std::unique_ptr<detail::StateReader>> readers_;  ///< parallel to layers_
  Manifest target_;
  std::vector<float> buffer_;
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
  std::int64_t const needed = element_bytes(source), free = detail::free_bytes(directory);
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
