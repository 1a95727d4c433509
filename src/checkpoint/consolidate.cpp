#include "tessera/checkpoint/consolidate.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "detail/block_reader.hpp"
#include "detail/checksum.hpp"
#include "detail/convert.hpp"
#include "detail/output_place.hpp"
#include "detail/training_source.hpp"
#include "tessera/checkpoint/directory.hpp"
#include "tessera/checkpoint/import.hpp"
#include "tessera/checkpoint/manifest.hpp"
#include "tessera/checkpoint/tensor_writer.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Memory of all blocks on the way from the reader to the writer.
constexpr std::int64_t buffer_bytes = std::int64_t{64} << 20;
/// How far ahead of the reader the page cache is asked to fetch.
constexpr std::int64_t read_ahead_bytes = std::int64_t{32} << 20;

struct Block {
  std::vector<float> data;
  std::int64_t numel = 0;
};

/// Blocks in order from one thread to another, through a fixed number of buffers. Either side may
/// end it.
class Pipe {
 public:
  Pipe(std::int64_t block_bytes, std::size_t buffers) {
    for (std::size_t i = 0; i < buffers; ++i)
      free_.push_back({std::vector<float>(static_cast<std::size_t>(block_bytes / 4)), 0});
  }
  /// False when the other side has ended.
  bool take_free(Block& block) {
    return take(free_, block, [] { return false; });
  }
  bool take_full(Block& block) {
    return take(full_, block, [this] { return finished_; });
  }
  void give_free(Block block) { give(free_, std::move(block)); }
  void give_full(Block block) { give(full_, std::move(block)); }
  void finish() {
    std::lock_guard const lock(mutex_);
    finished_ = true;
    changed_.notify_all();
  }
  void fail(std::exception_ptr error) {
    std::lock_guard const lock(mutex_);
    if (!error_) error_ = error;
    failed_ = true;
    changed_.notify_all();
  }
  std::exception_ptr error() const { return error_; }

 private:
  template <class Ended>
  bool take(std::deque<Block>& from, Block& block, Ended ended) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failed_ || !from.empty() || ended(); });
    if (failed_ || from.empty()) return false;
    block = std::move(from.front());
    from.pop_front();
    return true;
  }
  void give(std::deque<Block>& to, Block block) {
    std::lock_guard const lock(mutex_);
    to.push_back(std::move(block));
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Block> free_, full_;
  bool finished_ = false, failed_ = false;
  std::exception_ptr error_;
};

/// One checksum block of the state that is read.
struct Source {
  detail::PieceState piece;
  std::int64_t block = 0;
};

/// Blocks of all tensors in order, as an iteration: a list of them would grow with the model.
class Sources {
 public:
  Sources(Manifest const& manifest, std::size_t state) : manifest_(manifest), state_(state) {}
  bool next(Source& out) {
    while (tensor_ < manifest_.tensors.size()) {
      auto const& tensor = manifest_.tensors[tensor_];
      if (piece_ == tensor.pieces.size()) {
        ++tensor_, piece_ = 0;
        continue;
      }
      auto const& piece = tensor.pieces[piece_];
      if (block_ < detail::blocks_of(piece.numel * 4, manifest_.checksum_block)) {
        out = {{&tensor, &piece, state_}, block_++};
        return true;
      }
      ++piece_, block_ = 0;
    }
    return false;
  }

 private:
  Manifest const& manifest_;
  std::size_t state_, tensor_ = 0, piece_ = 0;
  std::int64_t block_ = 0;
};

/// Asks for the blocks ahead, reads, checks, hands over.
void read_all(Manifest const& manifest, std::size_t state, Pipe& pipe) {
  detail::ShardFiles files(manifest);
  Sources sources(manifest, state), ahead(manifest, state);
  std::int64_t asked = 0, read = 0;
  Source source, later;
  Block block;
  while (sources.next(source)) {
    while (asked - read < read_ahead_bytes && ahead.next(later)) {
      auto const place = detail::place_of(manifest, later.piece, later.block);
      files.open(later.piece.piece->shard).read_ahead(place.offset, place.bytes);
      asked += std::min(manifest.checksum_block,
                        later.piece.piece->numel * 4 - later.block * manifest.checksum_block);
    }
    if (!pipe.take_free(block)) return;
    std::int64_t const bytes =
        detail::read_block(manifest, files, source.piece, source.block, block.data.data());
    read += bytes;
    block.numel = bytes / 4;
    pipe.give_full(std::move(block));
  }
  pipe.finish();
}

/// Reader and writer overlap; the first error of either ends both. @return bytes read
std::int64_t stream(Manifest const& manifest, std::size_t state, TensorWriter& writer,
                    ProgressCall const& progress) {
  Pipe pipe(manifest.checksum_block, static_cast<std::size_t>(std::max<std::int64_t>(
                                         2, buffer_bytes / manifest.checksum_block)));
  std::thread reader([&] {
    try {
      read_all(manifest, state, pipe);
    } catch (...) {
      pipe.fail(std::current_exception());
    }
  });
  std::int64_t const total = manifest.parameter_count() * 4;
  std::int64_t bytes = 0;
  try {
    Block block;
    while (pipe.take_full(block)) {
      writer.write(block.data.data(), block.numel);
      bytes += block.numel * 4;
      if (progress) progress(bytes, total);
      pipe.give_free(std::move(block));
    }
  } catch (...) {
    pipe.fail(std::current_exception());
  }
  reader.join();
  if (pipe.error()) std::rethrow_exception(pipe.error());
  return bytes;
}

std::unique_ptr<TensorWriter> make_writer(ConsolidateOptions const& options,
                                          Manifest const& manifest, ConsolidateReport& report) {
  report.leftovers = detail::prepare_output(
      options.output, report.checkpoint,
      manifest.parameter_count() * static_cast<std::int64_t>(size_of(options.dtype)));
  std::vector<TensorHeader> tensors;
  std::vector<TensorAlias> aliases;
  for (auto const& tensor : manifest.tensors) {
    for (auto const& alias : tensor.aliases) aliases.push_back({alias, tensors.size()});
    tensors.push_back({tensor.name, tensor.shape});
  }
  auto const suffix = options.output.extension();
  // safetensors has no shared storage; Hugging Face leaves tied names out and ties them when it
  // loads
  if (suffix == ".safetensors")
    return make_safetensors_writer(options.output, tensors, options.dtype);
  if (suffix == ".bin") return make_torch_writer(options.output, tensors, aliases, options.dtype);
  if (suffix == ".h5" || suffix == ".hdf5")
    return make_hdf5_writer(options.output, tensors, aliases, options.dtype);
  return make_sharded_safetensors_writer(options.output, tensors, options.dtype,
                                         options.max_shard_bytes);
}

/// config.json says which type the weights are in.
fs::path write_config(ConsolidateOptions const& options, Manifest const& manifest) {
  ConfigTree config = manifest.model_config;
  for (auto const* key : {"torch_dtype", "dtype"})
    if (config.contains(key) ||
        (std::string_view(key) == "dtype" && !config.contains("torch_dtype")))
      config.set(key, options.dtype == Dtype::fp32   ? "float32"
                      : options.dtype == Dtype::bf16 ? "bfloat16"
                                                     : "float16");
  write_file_atomically(options.output / "config.json", config.dump(2) + "\n");
  return options.output / "config.json";
}

void finish(ConsolidateOptions const& options, Manifest const& manifest, TensorWriter& writer,
            ConsolidateReport& report) {
  report.files = writer.finish();
  if (!detail::is_model_file(options.output) && manifest.model_config.is_object())
    report.files.push_back(write_config(options, manifest));
  report.step = manifest.step;
  report.tensors = static_cast<std::int64_t>(manifest.tensors.size());
  report.parameters = manifest.parameter_count();
  for (auto const& file : report.files)
    report.bytes_written += static_cast<std::int64_t>(fs::file_size(file));
}

ConsolidateReport consolidate_shards(ConsolidateOptions const& options) {
  ConsolidateReport report;
  report.format = "Tessera";
  report.checkpoint = resolve_checkpoint(options.checkpoint, options.tag);
  Manifest const manifest = read_manifest(report.checkpoint);
  std::size_t const state = manifest.state_index(options.state);
  auto const writer = make_writer(options, manifest, report);
  report.bytes_read = stream(manifest, state, *writer, options.progress);
  finish(options, manifest, *writer, report);
  return report;
}

/// DeepSpeed's files: buffers and frozen parameters have weights only.
ConsolidateReport consolidate_deepspeed(ConsolidateOptions const& options,
                                        fs::path const& directory) {
  using Kind = detail::SourceTensor::Kind;
  auto const state = static_cast<std::size_t>(
      std::find(detail::state_names.begin(), detail::state_names.end(), options.state) -
      detail::state_names.begin());
  TESSERA_VALIDATE(state < detail::state_names.size(), DataError, directory.string(),
                   " has no state '", options.state, "'; it has fp32, exp_avg and exp_avg_sq");
  auto const wanted = state == 0 ? detail::Wanted::weights : detail::Wanted::training_state;
  auto source = detail::read_deepspeed(directory, wanted, detail::CrcCheck::everything);
  std::erase_if(source.tensors, [&](auto const& tensor) {
    return (state > 0 && tensor.kind != Kind::trained) ||
           (options.frozen == FrozenParameters::exclude && tensor.kind == Kind::frozen);
  });
  Manifest manifest;
  manifest.step = source.global_steps;
  for (auto const& tensor : source.tensors)
    manifest.tensors.push_back({tensor.name, tensor.shape, tensor.aliases, Dtype::fp32, {}});
  if (auto const config = find_model_config(directory))
    manifest.model_config = ConfigTree::read(*config);
  ConsolidateReport report;
  report.format = source.format;
  report.checkpoint = directory;
  auto const writer = make_writer(options, manifest, report);
  std::int64_t const total = manifest.parameter_count() * 4;
  std::vector<float> block(std::size_t{1} << 20);
  for (std::size_t t = 0; t < source.tensors.size(); ++t)
    for (std::int64_t done = 0; done < source.tensors[t].numel;) {
      std::int64_t const count =
          std::min(static_cast<std::int64_t>(block.size()), source.tensors[t].numel - done);
      source.read(t, state, done, count, block.data());
      writer->write(block.data(), count);
      done += count;
      report.bytes_read += count * 4;
      if (options.progress) options.progress(report.bytes_read, total);
    }
  finish(options, manifest, *writer, report);
  return report;
}

}  // namespace

ConsolidateReport consolidate(ConsolidateOptions const& options) {
  auto const start = Clock::now();
  detail::check_model_dtype(options.dtype);
  TESSERA_VALIDATE(options.max_shard_bytes > 0, UsageError, "max_shard_size is ",
                   options.max_shard_bytes, " bytes; it must be positive");
  auto const deepspeed = detail::find_deepspeed(options.checkpoint, options.tag);
  ConsolidateReport report =
      deepspeed ? consolidate_deepspeed(options, *deepspeed) : consolidate_shards(options);
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

std::vector<fs::path> write_model_beside(Manifest const& manifest, Dtype dtype) {
  ConsolidateOptions options;
  options.output = manifest.directory;
  options.dtype = dtype;
  std::vector<TensorHeader> tensors;
  for (auto const& tensor : manifest.tensors) tensors.push_back({tensor.name, tensor.shape});
  auto const writer =
      make_sharded_safetensors_writer(options.output, tensors, dtype, options.max_shard_bytes);
  stream(manifest, manifest.state_index("fp32"), *writer, {});
  ConsolidateReport report;
  finish(options, manifest, *writer, report);
  return report.files;
}

std::int64_t parse_size(std::string const& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr Unit units[] = {{"", 1},         {"B", 1},           {"KB", 1e3},
                                   {"MB", 1e6},     {"GB", 1e9},        {"TB", 1e12},
                                   {"KIB", 1024.0}, {"MIB", 1048576.0}, {"GIB", 1073741824.0}};
  double number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size()
                                                                 : unit.find_first_not_of(' '));
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (auto const& known : units)
    if (error == std::errc{} && unit == known.name && number * known.bytes >= 1 &&
        number * known.bytes < 9e18)
      return static_cast<std::int64_t>(number * known.bytes);
  throw UsageError(concat("'", text, "' is no size; write 5GB, 500MB, 2GiB or a number of bytes"));
}

}  // namespace tessera::checkpoint
