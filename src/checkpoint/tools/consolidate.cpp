// A checkpoint as a model directory that Hugging Face programs load.

#include "tessera/checkpoint/tools/consolidate.hpp"

#include <algorithm>
#include <chrono>

#include "format/detail/checksum.hpp"
#include "format/detail/chunk_reader.hpp"
#include "interchange/detail/deepspeed_reader.hpp"
#include "interchange/detail/element_conversion.hpp"
#include "interchange/detail/model_directory.hpp"
#include "interchange/detail/safetensors_layout.hpp"
#include "interchange/detail/stream_writer.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/interchange/tensor_writer.hpp"
#include "tessera/checkpoint/tools/import.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/text.hpp"
#include "tools/detail/model_output.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Counts what is not finite in the dtype of the file, tensor by tensor, on the way to a writer.
class CountingWriter final : public TensorWriter {
 public:
  CountingWriter(std::unique_ptr<TensorWriter> writer, ConsolidateOptions const& options,
                 Manifest const& manifest)
      : writer_(std::move(writer)), options_(options), tensors_(manifest.tensors) {}

  void write(float const* data, std::int64_t numel) override {
    for (std::int64_t at = 0; at < numel;) {
      auto const& tensor = tensors_[tensor_];
      std::int64_t const count = std::min(numel - at, tensor.numel() - done_);
      tally_.add(tensor.name, options_.state, count_nonfinite(data + at, count, options_.dtype));
      at += count, done_ += count;
      if (done_ == tensor.numel()) ++tensor_, done_ = 0;
    }
    writer_->write(data, numel);
  }
  std::vector<fs::path> finish() override { return writer_->finish(); }
  std::vector<NonFinite> const& nonfinite() const { return tally_.list(); }

 private:
  std::unique_ptr<TensorWriter> writer_;
  ConsolidateOptions const& options_;
  std::vector<TensorRecord> const& tensors_;
  NonFiniteTally tally_;
  std::size_t tensor_ = 0;  ///< that the next element belongs to
  std::int64_t done_ = 0;   ///< elements of it
};

std::unique_ptr<TensorWriter> make_writer(ConsolidateOptions const& options,
                                          Manifest const& manifest, ConsolidateReport& report) {
  bool const is_directory =
      detail::output_format(options.output) == detail::OutputFormat::directory;
  auto const what = is_directory ? detail::weights_in(manifest) : WeightsOf::model;
  auto const [tensors, aliases] = detail::tensors_of(manifest);
  std::int64_t bytes = 0;
  for (auto const& tensor : detail::with_copies(tensors, aliases, what))
    bytes += tensor.numel() * static_cast<std::int64_t>(size_of(options.dtype));
  auto prepared =
      detail::prepare_output({options.output, report.checkpoint, bytes, options.when_present});
  report.leftovers = std::move(prepared.leftovers);
  report.replaced = std::move(prepared.replaced);
  switch (detail::output_format(options.output)) {
    case detail::OutputFormat::safetensors:
      // safetensors has no shared storage; Hugging Face leaves tied names out and ties them when it
      // loads
      return make_safetensors_writer(options.output, tensors, options.dtype);
    case detail::OutputFormat::torch:
      return make_torch_writer(options.output, tensors, aliases, options.dtype);
    case detail::OutputFormat::hdf5:
      return make_hdf5_writer(options.output, tensors, aliases, options.dtype);
    case detail::OutputFormat::directory:
      break;
  }
  return make_sharded_safetensors_writer(options.output, tensors, aliases, options.dtype,
                                         options.max_shard_bytes, what);
}

void finish(ConsolidateOptions const& options, Manifest const& manifest, CountingWriter& writer,
            ConsolidateReport& report) {
  report.files = writer.finish();
  report.nonfinite = writer.nonfinite();
  if (detail::output_format(options.output) == detail::OutputFormat::directory) {
    for (auto& file : detail::write_config(options.output, manifest, options.dtype))
      report.files.push_back(std::move(file));
    for (auto& copy : detail::copy_companions(
             detail::companion_places(report.checkpoint, manifest.resolved_config), options.output))
      report.files.push_back(std::move(copy));
  }
  report.step = manifest.step;
  report.tensors = static_cast<std::int64_t>(manifest.tensors.size());
  report.parameters = manifest.parameter_count();
  for (auto const& file : report.files)
    report.bytes_written += static_cast<std::int64_t>(fs::file_size(file));
}

/// The manifest of the files with @p state: @p manifest, or that of a reduced state.
Manifest of_state(Manifest const& manifest, std::string const& state) {
  for (auto& reduced : manifest.reduced_manifests())
    if (reduced.states[0] == state) return std::move(reduced);
  return manifest;
}

ConsolidateReport consolidate_shards(ConsolidateOptions const& options) {
  ConsolidateReport report;
  report.format = "Tessera";
  report.checkpoint = resolve_checkpoint(options.checkpoint, options.tag, options.when_damaged);
  Manifest const manifest = of_state(read_manifest(report.checkpoint), options.state);
  std::size_t const state = manifest.state_index(options.state);
  CountingWriter writer(make_writer(options, manifest, report), options, manifest);
  report.bytes_read = detail::stream_state(manifest, state, writer, options.progress);
  finish(options, manifest, writer, report);
  return report;
}

/// DeepSpeed's files: buffers and frozen parameters have weights only.
ConsolidateReport consolidate_deepspeed(ConsolidateOptions const& options,
                                        fs::path const& directory) {
  using Kind = detail::SourceTensor::Kind;
  auto const wanted = options.state == optim::master_weights_name ? detail::Wanted::weights
                                                                  : detail::Wanted::training_state;
  auto source = detail::read_deepspeed(directory, wanted, detail::CrcCheck::everything);
  auto const& names = source.state_names;
  auto const state = static_cast<std::size_t>(std::find(names.begin(), names.end(), options.state) -
                                              names.begin());
  TESSERA_VALIDATE(state < names.size(), DataError, directory.string(), " has no state '",
                   options.state, "'; it has ", join(names));
  std::erase_if(source.tensors, [&](auto const& tensor) {
    return (state > 0 && tensor.kind != Kind::trained) ||
           (options.frozen == FrozenParameters::exclude && tensor.kind == Kind::frozen);
  });
  Manifest manifest;
  manifest.step = source.global_steps;
  for (auto const& tensor : source.tensors)
    manifest.tensors.push_back({tensor.name, tensor.shape, tensor.aliases, Dtype::fp32, {}, {}});
  if (auto const config = find_model_config(directory))
    manifest.model_config = ConfigTree::read(*config);
  ConsolidateReport report;
  report.format = source.format;
  report.checkpoint = directory;
  CountingWriter writer(make_writer(options, manifest, report), options, manifest);
  std::int64_t const total = manifest.parameter_count() * 4;
  std::vector<float> chunk(std::size_t{1} << 20);
  for (std::size_t t = 0; t < source.tensors.size(); ++t)
    for (std::int64_t done = 0; done < source.tensors[t].numel;) {
      std::int64_t const count =
          std::min(static_cast<std::int64_t>(chunk.size()), source.tensors[t].numel - done);
      source.read(t, state, done, count, chunk.data());
      writer.write(chunk.data(), count);
      done += count;
      report.bytes_read += count * 4;
      if (options.progress) options.progress(report.bytes_read, total);
    }
  finish(options, manifest, writer, report);
  std::erase_if(report.nonfinite, [&](auto const& one) {  // masks of -inf are usual
    return std::any_of(source.tensors.begin(), source.tensors.end(), [&](auto const& tensor) {
      return tensor.kind == Kind::buffer && tensor.name == one.tensor;
    });
  });
  return report;
}

}  // namespace

ConsolidateReport consolidate(ConsolidateOptions const& options) {
  auto const start = Clock::now();
  detail::check_model_dtype(options.dtype);
  TESSERA_VALIDATE(options.max_shard_bytes > 0, UsageError, "max_shard_size is ",
                   options.max_shard_bytes, " bytes; it must be positive");
  auto const deepspeed =
      detail::find_deepspeed(options.checkpoint, options.tag, options.when_damaged);
  ConsolidateReport report =
      deepspeed ? consolidate_deepspeed(options, *deepspeed) : consolidate_shards(options);
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

ConsolidateReport export_model(ExportOptions const& options) {
  TESSERA_VALIDATE(detail::output_format(options.output) == detail::OutputFormat::directory,
                   UsageError, options.output.string(),
                   " looks like a file; export writes a directory: use zero-to-fp32 for a single "
                   "file");
  ConsolidateOptions consolidation;
  consolidation.checkpoint = options.checkpoint;
  consolidation.tag = options.tag;
  consolidation.output = options.output;
  consolidation.dtype = dtype_from_name(options.dtype);
  consolidation.max_shard_bytes = options.max_shard_bytes;
  consolidation.progress = options.progress;
  consolidation.when_damaged = options.when_damaged;
  consolidation.when_present = options.when_present;
  return consolidate(consolidation);
}

}  // namespace tessera::checkpoint
