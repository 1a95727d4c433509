#include "tessera/checkpoint/interchange/tensor_writer.hpp"

#include <algorithm>

#include "format/detail/file.hpp"
#include "interchange/detail/safetensors_layout.hpp"
#include "interchange/detail/stream_writer.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using Metadata = std::map<std::string, std::string>;

class SingleWriter final : public detail::StreamWriter {
 public:
  SingleWriter(fs::path const& path, std::vector<TensorHeader> const& tensors, Dtype dtype,
               Metadata const& metadata)
      : StreamWriter(tensors, dtype), file_(path, bytes_of(0, tensors.size())) {
    file_.write(detail::safetensors_header(tensors, 0, tensors.size(), dtype, metadata));
  }
  std::vector<fs::path> finish() override {
    require_complete();
    file_.flush();
    file_.pending().commit();
    return {file_.pending().final_path()};
  }

 private:
  void put(void const* data, std::int64_t bytes) override { file_.write(data, bytes); }
  detail::SequentialFile file_;
};

class ShardedWriter final : public detail::StreamWriter {
 public:
  /// @param copies  tensors of the layout after @p tensors
  ShardedWriter(fs::path directory, std::vector<TensorHeader> const& tensors,
                std::vector<TensorAlias> copies, Dtype dtype, detail::SafetensorsLayout layout)
      : StreamWriter(tensors, dtype),
        directory_(std::move(directory)),
        copies_(std::move(copies)),
        layout_(std::move(layout)) {}

  std::vector<fs::path> finish() override {
    require_complete();
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      begin(tensors().size() + i);
      copy(copies_[i].tensor);
      end(tensors().size() + i);
    }
    return detail::publish_weights(directory_, layout_,
                                   [this](std::size_t file) { files_[file]->pending().publish(); });
  }

 private:
  void begin(std::size_t tensor) override {
    std::size_t const file = layout_.location(tensor).file;
    if (tensor != layout_.first(file)) return;
    files_.push_back(std::make_unique<detail::SequentialFile>(directory_ / layout_.name(file),
                                                              layout_.bytes(file)));
    files_.back()->write(layout_.header(file));
  }
  void put(void const* data, std::int64_t bytes) override { files_.back()->write(data, bytes); }
  void end(std::size_t tensor) override {
    if (tensor + 1 != layout_.last(layout_.location(tensor).file)) return;
    files_.back()->flush();
    files_.back()->pending().seal();
  }

  /// Appends the values of a tensor, from the file that has it.
  void copy(std::size_t tensor) {
    auto const [file, offset] = layout_.location(tensor);
    files_[file]->flush();
    auto const from = detail::File::open_read(files_[file]->pending().temporary_path());
    std::vector<char> part(std::size_t{1} << 20);
    std::int64_t const bytes = bytes_of(tensor);
    for (std::int64_t done = 0; done < bytes;) {
      auto const count = std::min(static_cast<std::int64_t>(part.size()), bytes - done);
      from.read(part.data(), count, offset + done);
      put(part.data(), count);
      done += count;
    }
  }

  fs::path directory_;
  std::vector<TensorAlias> copies_;
  detail::SafetensorsLayout layout_;
  std::vector<std::unique_ptr<detail::SequentialFile>> files_;
};

}  // namespace

std::unique_ptr<TensorWriter> make_safetensors_writer(fs::path const& file,
                                                      std::vector<TensorHeader> const& tensors,
                                                      Dtype dtype, Metadata const& metadata) {
  return std::make_unique<SingleWriter>(file, tensors, dtype, metadata);
}

std::unique_ptr<TensorWriter> make_sharded_safetensors_writer(
    fs::path const& directory, std::vector<TensorHeader> const& tensors,
    std::vector<TensorAlias> const& aliases, Dtype dtype, std::int64_t max_shard_bytes,
    WeightsOf what) {
  detail::make_directories(directory);
  return std::make_unique<ShardedWriter>(
      directory, tensors, what == WeightsOf::adapter ? aliases : std::vector<TensorAlias>(), dtype,
      detail::SafetensorsLayout(detail::with_copies(tensors, aliases, what), dtype, max_shard_bytes,
                                detail::stem_of(what)));
}

}  // namespace tessera::checkpoint
