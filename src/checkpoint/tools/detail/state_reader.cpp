#include "tools/detail/state_reader.hpp"

#include <algorithm>

#include "format/detail/checksum.hpp"
#include "format/detail/chunk_reader.hpp"
#include "interchange/detail/deepspeed_reader.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/interchange/safetensors_reader.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

/// Keeps the last chunk of each, so that reading in order reads every chunk once.
class ShardStates final : public StateReader {
 public:
  explicit ShardStates(Manifest manifest)
      : manifest_(std::move(manifest)),
        files_(manifest_),
        chunk_(static_cast<std::size_t>(manifest_.checksum_chunk / 4)) {
    path_ = manifest_.directory;
    format_ =
        concat("Tessera, ", manifest_.world_size, manifest_.world_size == 1 ? " rank" : " ranks",
               ", ZeRO stage ", manifest_.zero_stage);
    step_ = manifest_.step;
    states_ = manifest_.states;
    for (auto const& tensor : manifest_.tensors)
      tensors_.push_back(
          {tensor.name, tensor.shape, tensor.numel(), tensor.aliases, states_.size()});
  }

  void read(std::size_t tensor, std::size_t state, std::int64_t first, std::int64_t numel,
            float* out) override {
    auto const& record = manifest_.tensors[tensor];
    auto extent =
        std::upper_bound(record.extents.begin(), record.extents.end(), first,
                         [](std::int64_t at, ExtentRecord const& p) { return at < p.offset; });
    --extent;  // extents start at element 0
    std::int64_t const block_numel = manifest_.checksum_chunk / 4;
    while (numel > 0) {
      std::int64_t const skip = first - extent->offset, inside = skip % block_numel;
      std::int64_t const count = std::min({numel, extent->numel - skip, block_numel - inside});
      load(record, *extent, state, skip / block_numel);
      std::copy_n(chunk_.data() + inside, count, out);
      first += count, numel -= count, out += count;
      if (first == extent->offset + extent->numel) ++extent;
    }
  }

 private:
  void load(TensorRecord const& tensor, ExtentRecord const& extent, std::size_t state,
            std::int64_t chunk) {
    if (extent_ == &extent && state_ == state && number_ == chunk) return;
    extent_ = nullptr;
    read_chunk(manifest_, files_, {&tensor, &extent, state}, chunk, chunk_.data());
    extent_ = &extent, state_ = state, number_ = chunk;
  }

  Manifest const manifest_;
  ShardFiles files_;
  std::vector<float> chunk_;  ///< chunk `number_` of state `state_` of `*extent_`
  ExtentRecord const* extent_ = nullptr;
  std::size_t state_ = 0;
  std::int64_t number_ = 0;
};

class DeepSpeedStates final : public StateReader {
 public:
  explicit DeepSpeedStates(fs::path const& directory)
      : source_(read_deepspeed(directory, Wanted::training_state, CrcCheck::everything)) {
    path_ = directory;
    format_ = source_.format;
    step_ = source_.global_steps;
    states_ = source_.state_names;
    for (auto const& tensor : source_.tensors)
      tensors_.push_back({tensor.name, tensor.shape, tensor.numel, tensor.aliases,
                          tensor.kind == SourceTensor::Kind::trained ? states_.size() : 1});
  }
  void read(std::size_t tensor, std::size_t state, std::int64_t first, std::int64_t numel,
            float* out) override {
    source_.read(tensor, state, first, numel, out);
  }

 private:
  TrainingSource source_;
};

class SafetensorsStates final : public StateReader {
 public:
  explicit SafetensorsStates(fs::path const& path) : reader_(path) {
    path_ = path;
    format_ = "safetensors";
    for (auto const& [name, entry] : reader_.entries())
      tensors_.push_back({name, entry.shape, entry.numel, {}, 1});
  }
  void read(std::size_t tensor, std::size_t, std::int64_t first, std::int64_t numel,
            float* out) override {
    reader_.read_as_fp32(tensors_[tensor].name, first, numel, out);
  }

 private:
  SafetensorsReader reader_;
};

bool is_model(fs::path const& given) {
  std::error_code error;
  if (fs::is_regular_file(given, error)) return given.extension() == ".safetensors";
  bool const has_checkpoints = fs::is_directory(given / "checkpoints", error);
  return !has_checkpoints && (fs::exists(given / "model.safetensors", error) ||
                              fs::exists(given / "model.safetensors.index.json", error));
}

}  // namespace

std::vector<std::unique_ptr<StateReader>> open_states(fs::path const& given, std::string const& tag,
                                                      WhenDamaged when_damaged) {
  std::vector<std::unique_ptr<StateReader>> out;
  if (auto const deepspeed = find_deepspeed(given, tag, when_damaged)) {
    out.push_back(std::make_unique<DeepSpeedStates>(*deepspeed));
  } else if (tag.empty() && is_model(given)) {
    out.push_back(std::make_unique<SafetensorsStates>(given));
  } else {
    Manifest const manifest = read_manifest(resolve_checkpoint(given, tag, when_damaged));
    out.push_back(std::make_unique<ShardStates>(manifest));
    for (auto& reduced : manifest.reduced_manifests())
      out.push_back(std::make_unique<ShardStates>(std::move(reduced)));
  }
  return out;
}

}  // namespace tessera::checkpoint::detail
