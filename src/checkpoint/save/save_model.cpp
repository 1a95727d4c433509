#include "tessera/checkpoint/save/save_model.hpp"
#include "tessera/checkpoint/interchange/model_weights.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "format/detail/file.hpp"
#include "format/detail/shard_file.hpp"
#include "interchange/detail/element_conversion.hpp"
#include "interchange/detail/model_directory.hpp"
#include "interchange/detail/safetensors_layout.hpp"
#include "save/detail/collective_try.hpp"
#include "save/detail/commit.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/zero/layout/parameter_subset.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t largest_extra_file = std::int64_t{1} << 30;
constexpr std::int64_t write_numel = std::int64_t{1} << 20;  ///< elements per write

/// All parameters in the order of the plan's units, with their further names.
detail::NamedTensors tensors_of(std::vector<memory::UnitSpec> const& units) {
  detail::NamedTensors out;
  for (auto const& unit : units)
    for (auto const& parameter : unit.parameters) {
      for (auto const& alias : parameter.aliases)
        out.aliases.push_back({alias, out.tensors.size()});
      out.tensors.push_back({parameter.name, parameter.shape});
    }
  return out;
}

detail::SafetensorsLayout layout_of(SaveModelRequest const& request) {
  auto const [tensors, aliases] = tensors_of(request.units);
  return {detail::with_copies(tensors, aliases, request.what), request.dtype,
          request.max_shard_bytes, detail::stem_of(request.what)};
}

std::int64_t bytes_of(detail::SafetensorsLayout const& layout) {
  std::int64_t bytes = 0;
  for (std::size_t file = 0; file < layout.files(); ++file) bytes += layout.bytes(file);
  return bytes;
}

/// Files under temporary names, on rank 0. What is not published is removed.
class PendingModel {
 public:
  PendingModel(SaveModelRequest const& request, detail::SafetensorsLayout const& layout)
      : layout_(layout), directory_(request.directory) {
    detail::make_directories(directory_);
    detail::remove_leftovers(directory_, [](std::string const& name) {
      return name == "config.json" || name == detail::adapter_config_name ||
             name.starts_with(detail::stem_of(WeightsOf::model)) ||
             name.starts_with(detail::stem_of(WeightsOf::adapter));
    });
    std::int64_t const needed = bytes_of(layout), room = detail::free_bytes(directory_);
    TESSERA_VALIDATE(needed <= room, IoError, "the model needs ", human_bytes(needed), ", ",
                     directory_.string(), " has ", human_bytes(room), " left; make room");
    auto const& config = request.model_config;
    if (request.what == WeightsOf::adapter)
      add_text(detail::adapter_config_name, config.dump(2) + "\n");
    else
      add_text("config.json", detail::model_config_text(config, request.dtype));
    for (auto const& file : request.extra_files) {
      std::error_code error;
      fs::path const name = companion_name(file);
      if (fs::equivalent(file, directory_ / name, error)) continue;
      detail::make_directories((directory_ / name).parent_path());
      add_text(name, detail::read_text(file, largest_extra_file));
    }
    for (std::size_t file = 0; file < layout.files(); ++file) {
      auto& pending = *weights_.emplace_back(
          std::make_unique<detail::PendingFile>(directory_ / layout.name(file)));
      pending.file().reserve(layout.bytes(file));
      pending.file().truncate(layout.bytes(file));
      auto const& header = layout.header(file);
      pending.file().write(header.data(), static_cast<std::int64_t>(header.size()), 0);
    }
  }

  /// Their temporary names, a line each.
  std::string names() const {
    std::string names;
    for (auto const& file : weights_) names += file->temporary_path().filename().string() + "\n";
    return names;
  }

  std::vector<fs::path> publish() {
    for (auto& file : weights_) file->seal();
    auto written = detail::publish_weights(directory_, layout_,
                                           [this](std::size_t file) { weights_[file]->publish(); });
    for (auto& file : small_) {
      file->publish();
      written.push_back(file->final_path());
    }
    return written;
  }

 private:
  void add_text(fs::path const& name, std::string const& text) {
    auto& pending = *small_.emplace_back(std::make_unique<detail::PendingFile>(directory_ / name));
    pending.file().write(text.data(), static_cast<std::int64_t>(text.size()), 0);
    pending.seal();
  }

  detail::SafetensorsLayout const& layout_;
  fs::path directory_;
  std::vector<std::unique_ptr<detail::PendingFile>> weights_, small_;
};

/// This rank's elements, converted block by block, at their places.
class ShardWriter {
 public:
  ShardWriter(SaveModelRequest const& request, detail::SafetensorsLayout const& layout,
              std::vector<fs::path> const& files)
      : request_(request), layout_(layout), files_(files), open_(files.size()) {
    if (request.what == WeightsOf::adapter) copies_ = tensors_of(request.units).aliases;
  }

  void write(zero::StateView const& weights, Rank rank) {
    auto const trained = zero::trained_parameters(request_.units);
    for (auto const& extent : request_.plan.extents(rank))
      write_extent(detail::extent_data(weights, request_.plan, extent), extent, trained);
    if (request_.frozen_plan) write_frozen(rank);
    for (auto& file : open_)
      if (file.is_open()) {
        file.sync();
        file.close();
      }
  }

  /// Values beyond the range of the dtype.
  std::vector<NonFinite> const& nonfinite() const { return nonfinite_.list(); }

 private:
  /// A unit's shard at a time.
  void write_frozen(Rank rank) {
    auto const frozen = zero::frozen_parameters(request_.units);
    auto const& plan = *request_.frozen_plan;
    std::vector<float> shard;
    auto at = zero::UnitIndex(-1);
    for (auto const& extent : plan.extents(rank)) {
      if (at != extent.unit) shard = request_.frozen_shard(extent.unit);
      at = extent.unit;
      auto const offset = plan.unit(at).shard_offset(extent.partition_offset).value();
      write_extent(shard.data() + offset, extent, frozen);
    }
  }

  /// The tensor of a unit's first parameter.
  std::size_t first_tensor(zero::UnitIndex unit) const {
    std::size_t tensors = 0;
    for (std::size_t u = 0; u < position(unit); ++u) tensors += request_.units[u].parameters.size();
    return tensors;
  }

  void write_extent(float const* data, zero::ShardExtent const& extent,
                    zero::ParameterSubset const& subset) {
    auto const parameter =
        subset.in_model[position(extent.unit)][static_cast<std::size_t>(extent.parameter)];
    auto const locations = locations_of(first_tensor(extent.unit) + parameter);
    auto const size = static_cast<std::int64_t>(size_of(request_.dtype));
    std::string const& name = request_.units[position(extent.unit)].parameters[parameter].name;
    for (std::int64_t done = 0; done < extent.numel;) {
      std::int64_t const count = std::min(write_numel, extent.numel - done);
      std::int64_t const beyond = count_nonfinite(data + done, count, request_.dtype);
      nonfinite_.add(name, "", beyond);
      TESSERA_VALIDATE(beyond == 0 || count_nonfinite(data + done, count) == 0, ConfigError,
                       "the model in ", request_.directory.string(), " is not written because ",
                       name, " is not finite; training has diverged, or began with such values");
      buffer_.resize(static_cast<std::size_t>(count * size));
      detail::from_fp32(data + done, count, request_.dtype, buffer_.data());
      for (auto const& location : locations) {
        std::int64_t const at = location.offset + (extent.parameter_offset.value() + done) * size;
        auto& file = open(location.file);
        file.write(buffer_.data(), count * size, at);
        file.start_writeback(at, count * size);
      }
      done += count;
    }
  }

  /// Where a tensor goes, and its copies, which follow all tensors.
  std::vector<detail::SafetensorsLayout::Location> locations_of(std::size_t tensor) const {
    std::vector locations{layout_.location(tensor)};
    for (std::size_t i = 0; i < copies_.size(); ++i)
      if (copies_[i].tensor == tensor)
        locations.push_back(layout_.location(layout_.tensors() - copies_.size() + i));
    return locations;
  }

  detail::File& open(std::size_t index) {
    auto& file = open_[index];
    if (!file.is_open()) {
      detail::wait_until_visible(files_[index], 0);
      file = detail::File::open_write(files_[index]);
    }
    return file;
  }

  SaveModelRequest const& request_;
  detail::SafetensorsLayout const& layout_;
  std::vector<fs::path> const& files_;
  std::vector<TensorAlias> copies_;
  std::vector<detail::File> open_;
  std::vector<char> buffer_;
  NonFiniteTally nonfinite_;
};

}  // namespace

SavedModel save_model(SaveModelRequest const& request, zero::StateView const& weights,
                      comm::Collectives& comm) {
  auto const layout = layout_of(request);
  std::optional<PendingModel> pending;
  detail::collective_try(comm, [&] {
    if (comm.rank() == 0) pending.emplace(request, layout);
  });
  std::vector<fs::path> files;
  std::istringstream names(comm::broadcast_bytes(comm, pending ? pending->names() : "", 0));
  for (std::string name; std::getline(names, name);) files.push_back(request.directory / name);
  SavedModel saved;
  detail::collective_try(comm, [&] {
    if (!request.plan.is_in_first_copy(comm.rank())) return;
    ShardWriter writer(request, layout, files);
    writer.write(weights, Rank(comm.rank()));
    saved.nonfinite = writer.nonfinite();
  });
  saved.nonfinite = merge_nonfinite(saved.nonfinite, comm);
  detail::collective_try(comm, [&] {
    if (pending) saved.files = pending->publish();
  });
  return saved;
}

void require_room(SaveModelRequest const& model, SaveRequest const* checkpoint,
                  StateLayers const& layers, comm::Collectives& comm) {
  detail::collective_try(comm, [&] {
    if (comm.rank() != 0) return;
    auto const layout = layout_of(model);
    std::int64_t const needed = bytes_of(layout),
                       saves = checkpoint ? detail::bytes_needed(*checkpoint, layers) : 0,
                       room = detail::free_bytes(model.directory);
    TESSERA_VALIDATE(needed + saves <= room, IoError, model.directory.string(), " has ",
                     human_bytes(room), " left, but the trained model needs ", human_bytes(needed),
                     checkpoint ? concat(" and each checkpoint ", human_bytes(saves)) : "",
                     "; make room, or use another --output_dir");
  });
}

}  // namespace tessera::checkpoint
