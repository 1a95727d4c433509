// pytorch_model.bin as weights, single or sharded.
#include <map>
#include <set>

#include "detail/text.hpp"
#include "detail/torch_file.hpp"
#include "detail/weight_files.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

class TorchWeights final : public WeightFiles {
 public:
  explicit TorchWeights(fs::path const& directory) {
    std::error_code error;
    fs::path const single = directory / "pytorch_model.bin", index = directory / "pytorch_model.bin.index.json";
    if (fs::exists(single, error)) {
      add(single);
      return;
    }
    ConfigTree const tree = ConfigTree::read(index);
    std::set<std::string> names;
    for (auto const& [tensor, file] : tree.at("weight_map").as_object()) {
      TESSERA_VALIDATE(is_plain_name(file.as_string()), DataError, index.string(), ": tensor ", printable(tensor), " is said to be in '",
                       printable(file.as_string()), "'; only a plain file name beside the index is accepted");
      if (names.insert(file.as_string()).second) add(directory / file.as_string());
    }
    for (auto const& [tensor, file] : tree.at("weight_map").as_object())
      TESSERA_VALIDATE(entries_.contains(tensor), DataError, index.string(), ": tensor ", printable(tensor), " is not in ", file.as_string());
    TESSERA_VALIDATE(!files_.empty(), DataError, index.string(), " names no file");
  }

  std::vector<std::int64_t> const* find(std::string const& name) const override {
    auto const it = entries_.find(name);
    return it == entries_.end() ? nullptr : &it->second.place.shape;
  }
  void read(std::string const& name, std::int64_t first, std::int64_t numel, float* out) const override {
    auto const& entry = entries_.at(name);
    read_as_fp32(files_[entry.file], entry.place, first, numel, out);
  }
  fs::path const& file() const override { return files_[0].path(); }

 private:
  struct Entry {
    std::size_t file;
    TensorPlace place;
  };
  /// Keeps the tensors' places and the open file; the pickle goes.
  void add(fs::path const& path) {
    TorchFile const torch(path);
    TESSERA_VALIDATE(torch.root().is_dict(), DataError, path.string(), " holds no table of tensors");
    torch.root().each_member([&](std::string const& name, PickleValue value) {
      if (auto place = torch.find_tensor(value))
        TESSERA_VALIDATE(entries_.emplace(name, Entry{files_.size(), std::move(*place)}).second, DataError, path.string(), ": tensor ", printable(name),
                         " stands in another file too");
    });
    files_.push_back(File::open_read(path));
  }
  std::vector<File> files_;
  std::map<std::string, Entry> entries_;
};

}  // namespace

std::unique_ptr<WeightFiles> open_torch_weights(fs::path const& directory) { return std::make_unique<TorchWeights>(directory); }

}  // namespace tessera::checkpoint::detail
