#include "tessera/checkpoint/interchange/tensor_writer.hpp"

#include "format/detail/hdf5.hpp"
#include "interchange/detail/stream_writer.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The structure first, through HDF5; then the elements at the datasets' places.
class Hdf5Writer final : public detail::StreamWriter {
 public:
  Hdf5Writer(fs::path const& path, std::vector<TensorHeader> const& tensors,
             std::vector<TensorAlias> const& aliases, Dtype dtype)
      : StreamWriter(tensors, dtype), pending_(path) {
    pending_.give_name_away();
    h5::Id file = h5::create_file(pending_.temporary_path(),
                                  static_cast<std::int64_t>(tensors.size() + aliases.size()));
    h5::set_attribute(file, "format", std::string("tessera-model"));
    h5::set_attribute(file, "creator", std::string("Tessera"));
    for (auto const& tensor : tensors) {
      h5::Id dataset = h5::create_dataset(file, tensor.name, tensor.shape, dtype);
      offsets_.push_back(h5::offset_of(dataset, tensor.name));
      dataset.close("cannot close HDF5 dataset " + tensor.name);
    }
    for (auto const& alias : aliases)
      h5::check(H5Lcreate_hard(file, tensors[alias.tensor].name.c_str(), file, alias.name.c_str(),
                               H5P_DEFAULT, H5P_DEFAULT),
                "cannot link HDF5 dataset " + alias.name);
    file.close("cannot close HDF5 file " + pending_.temporary_path().string());
    pending_.reopen();
    pending_.file().reserve(pending_.file().size());
  }

  std::vector<fs::path> finish() override {
    require_complete();
    pending_.commit();
    return {pending_.final_path()};
  }

 private:
  void begin(std::size_t tensor) override { at_ = offsets_[tensor]; }
  void put(void const* data, std::int64_t bytes) override {
    pending_.file().write(data, bytes, at_);
    pending_.file().start_writeback(at_, bytes);
    at_ += bytes;
  }

  detail::PendingFile pending_;
  std::vector<std::int64_t> offsets_;
  std::int64_t at_ = 0;
};

}  // namespace

std::unique_ptr<TensorWriter> make_hdf5_writer(fs::path const& file,
                                               std::vector<TensorHeader> const& tensors,
                                               std::vector<TensorAlias> const& aliases,
                                               Dtype dtype) {
  return std::make_unique<Hdf5Writer>(file, tensors, aliases, dtype);
}

}  // namespace tessera::checkpoint
