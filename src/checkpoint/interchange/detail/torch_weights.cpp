#include "interchange/detail/weight_files.hpp"

#include <map>
#include <set>

#include "format/detail/json_reader.hpp"
#include "interchange/detail/torch_file.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

class TorchWeights final : public WeightFiles {
 public:
  explicit TorchWeights(fs::path const& directory) {
    std::error_code error;
    fs::path const single = fs::is_regular_file(directory, error) ? directory
                                                                  : directory / "pytorch_model.bin",
                   index = directory / "pytorch_model.bin.index.json";
    if (fs::exists(single, error)) {
      add(single);
      return;
    }
    ConfigTree const tree = ConfigTree::read(index);
    std::set<std::string> names;
    for (auto const& [tensor, file] : tree.at("weight_map").as_object()) {
      TESSERA_VALIDATE(is_plain_name(file.as_string()), DataError, index.string(), ": tensor ",
                       printable(tensor), " is said to be in '", printable(file.as_string()),
                       "'; only a plain file name next to the index is accepted");
      if (names.insert(file.as_string()).second) add(directory / file.as_string());
    }
    TESSERA_VALIDATE(!files_.empty(), DataError, index.string(), " names no file");
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (auto const& [name, entry] : entries_) out.push_back(name);
    return out;
  }
  std::vector<std::int64_t> const* find(std::string const& name) const override {
    auto const it = entries_.find(name);
    return it == entries_.end() ? nullptr : &it->second.place.shape;
  }
  void read(std::string const& name, std::int64_t first, std::int64_t numel,
            float* out) const override {
    auto const& entry = entries_.at(name);
    read_as_fp32(files_[entry.file], entry.place, first, numel, out);
  }
  std::vector<fs::path> const& files() const override { return paths_; }

  TorchWeights(ConfigTree const& layout, std::vector<int> const& descriptors) {
    for (auto const& path : layout.at("files").as_array()) {
      paths_.push_back(path.as_string());
      files_.push_back(File::adopt(descriptors[files_.size()], path.as_string()));
    }
    for (auto const& [name, t] : layout.at("tensors").as_object()) {
      Entry entry;
      entry.file = static_cast<std::size_t>(t.at("file").as_int());
      entry.place.type = static_cast<ElementType>(t.at("type").as_int());
      entry.place.file_offset = t.at("offset").as_int();
      entry.place.numel = t.at("numel").as_int();
      for (auto const& dim : t.at("shape").as_array()) entry.place.shape.push_back(dim.as_int());
      for (auto const& stride : t.at("strides").as_array())
        entry.place.strides.push_back(stride.as_int());
      entries_.emplace(name, std::move(entry));
    }
  }
  ConfigTree layout() const override {
    ConfigTree::Array files;
    for (auto const& path : paths_) files.emplace_back(path.string());
    ConfigTree::Object tensors;
    for (auto const& [name, entry] : entries_) {
      ConfigTree t;
      t.set("file", static_cast<std::int64_t>(entry.file))
          .set("type", static_cast<int>(entry.place.type))
          .set("offset", entry.place.file_offset);
      t.set("numel", entry.place.numel)
          .set("shape", integers(entry.place.shape))
          .set("strides", integers(entry.place.strides));
      tensors.emplace_back(name, std::move(t));
    }
    ConfigTree layout;
    return layout.set("files", std::move(files)).set("tensors", std::move(tensors));
  }

 private:
  static ConfigTree integers(std::vector<std::int64_t> const& values) {
    return ConfigTree::Array(values.begin(), values.end());
  }
  struct Entry {
    std::size_t file = 0;
    TensorLocation place;
  };
  /// Keeps the tensors' places and the open file; the pickle goes.
  void add(fs::path const& path) {
    TorchFile const torch(path);
    TESSERA_VALIDATE(torch.root().is_dict(), DataError, path.string(),
                     " holds no table of tensors");
    torch.root().each_member([&](std::string const& name, PickleValue value) {
      if (auto place = torch.find_tensor(value))
        TESSERA_VALIDATE(entries_.emplace(name, Entry{files_.size(), std::move(*place)}).second,
                         DataError, path.string(), ": tensor ", printable(name),
                         " is also in another file");
    });
    files_.push_back(File::open_read(path));
    paths_.push_back(path);
  }
  std::vector<File> files_;
  std::vector<fs::path> paths_;
  std::map<std::string, Entry> entries_;
};

}  // namespace

std::unique_ptr<WeightFiles> open_torch_weights(fs::path const& directory) {
  return std::make_unique<TorchWeights>(directory);
}
std::unique_ptr<WeightFiles> torch_weights_of_layout(ConfigTree const& layout,
                                                     std::vector<int> const& descriptors) {
  return std::make_unique<TorchWeights>(layout, descriptors);
}

}  // namespace tessera::checkpoint::detail
