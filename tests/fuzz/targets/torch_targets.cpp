#include <zlib.h>

#include <algorithm>

#include "checkpoint/interchange/detail/deepspeed_reader.hpp"
#include "fuzz.hpp"
#include "tessera/checkpoint/interchange/safetensors_reader.hpp"

namespace tessera::fuzz {
namespace {

using namespace checkpoint;
using namespace checkpoint::detail;

constexpr std::int64_t most_read = 4096;

void read_some(TorchFile const& file, PickleValue value) {
  auto const place = file.find_tensor(value);
  if (!place) return;
  std::vector<float> out(static_cast<std::size_t>(std::min(most_read, place->numel)));
  read_as_fp32(file.file(), *place, 0, static_cast<std::int64_t>(out.size()), out.data());
  read_as_fp32(file.file(), *place, place->numel - static_cast<std::int64_t>(out.size()),
               static_cast<std::int64_t>(out.size()), out.data());
}

/// Every value in every way it can be asked for.
void visit(TorchFile const& file) {
  auto const& pickle = file.pickle();
  for (std::size_t i = 0; i < std::min<std::size_t>(pickle.values(), 2000); ++i) {
    auto const value = pickle.value(static_cast<Pickle::Id>(i));
    for (auto const &look : {+[](TorchFile const&f, PickleValue v) { read_some(f, v); },
                             +[](TorchFile const&f, PickleValue v) { (void)f.number(v); },
                             +[](TorchFile const&, PickleValue v) { (void)v.to_tree().dump(); },
                             +[](TorchFile const&, PickleValue v) {
                               v.each_member([](std::string const&, PickleValue) {});
                             },
                             +[](TorchFile const&, PickleValue v) { (void)read_shape(v); }})
      try {
        look(file, value);
      } catch (Error const&) {
      }
  }
}

class Bytes {
 public:
  Bytes& number(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  Bytes& text(std::string_view text) {
    text_ += text;
    return *this;
  }
  std::string take() { return std::move(text_); }
  std::size_t size() const { return text_.size(); }

 private:
  std::string text_;
};

void add_member(Bytes& file, Bytes& directory, std::string const& name, std::string_view content) {
  auto const crc = crc32_z(0, reinterpret_cast<Bytef const*>(content.data()), content.size());
  std::size_t const at = file.size();
  auto const common = [&](Bytes& to) {
    to.number(0, 2)
        .number(0, 2)
        .number(0, 4)
        .number(crc, 4)
        .number(content.size(), 4)
        .number(content.size(), 4)
        .number(name.size(), 2)
        .number(0, 2);
  };
  file.number(0x04034b50, 4).number(20, 2);
  common(file);
  file.text(name).text(content);
  directory.number(0x02014b50, 4).number(20, 2).number(20, 2);
  common(directory);
  directory.number(0, 2).number(0, 2).number(0, 2).number(0, 4).number(at, 4).text(name);
}

/// [u32 bytes of the first][first][second]
std::pair<std::string_view, std::string_view> split(std::string_view bytes) {
  if (bytes.size() < 4) return {bytes, {}};
  std::size_t first = 0;
  for (std::size_t i = 4; i-- > 0;) first = first << 8 | static_cast<unsigned char>(bytes[i]);
  bytes.remove_prefix(4);
  first = std::min(first, bytes.size());
  return {bytes.substr(0, first), bytes.substr(first)};
}

}  // namespace

std::string archive_of(std::string const& root, std::string_view pickle, int storages) {
  static std::string const storage(16384, '\x3d');
  Bytes file, directory;
  for (int i = 0; i < storages; ++i)
    add_member(file, directory, concat(root, "/data/", i), storage);
  add_member(file, directory, root + "/data.pkl", pickle);
  std::size_t const at = file.size(), bytes = directory.size();
  auto const members = static_cast<std::uint64_t>(storages) + 1;
  file.text(directory.take())
      .number(0x06054b50, 4)
      .number(0, 4)
      .number(members, 2)
      .number(members, 2)
      .number(bytes, 4)
      .number(at, 4)
      .number(0, 2);
  return file.take();
}

void safetensors(std::string_view bytes) {
  try {
    SafetensorsReader const reader(put("model.safetensors", bytes));
    std::vector<float> out(static_cast<std::size_t>(most_read));
    for (auto const& [name, entry] : reader.entries()) try {
        std::int64_t const count = std::min(most_read, entry.numel);
        reader.read_as_fp32(name, 0, count, out.data());
        reader.read_as_fp32(name, entry.numel - count, count, out.data());
      } catch (Error const&) {
      }
  } catch (Error const&) {
  }
}

/// A complete file, in either format of torch.save.
void torch_file(std::string_view bytes) {
  try {
    TorchFile const file(put("file.pt", bytes), CrcCheck::everything);
    visit(file);
  } catch (Error const&) {
  }
}

/// The pickle of an archive whose checksums are right.
void torch_pickle(std::string_view bytes) {
  try {
    TorchFile const file(put("pickle.pt", archive_of("pickle", bytes, 2)));
    visit(file);
  } catch (Error const&) {
  }
}

/// The two pickles of a checkpoint of one rank.
void deepspeed(std::string_view bytes) {
  auto const [optimizer, model] = split(bytes);
  std::filesystem::create_directories(folder() / "step1");
  put("step1/zero_pp_rank_0_mp_rank_00_optim_states.pt",
      archive_of("zero_pp_rank_0_mp_rank_00_optim_states", optimizer, 6));
  for (auto const* name : {"mp_rank_00_model_states", "zero_pp_rank_0_mp_rank_00_model_states"})
    put(concat("step1/", name, ".pt"), archive_of(name, model, 20));
  try {
    auto source = read_deepspeed(folder() / "step1", Wanted::training_state, CrcCheck::pickle);
    std::vector<float> out(static_cast<std::size_t>(most_read));
    for (std::size_t t = 0; t < source.tensors.size(); ++t)
      for (std::size_t s = 0; s < 3; ++s)
        source.read(t, s, 0, std::min(most_read, source.tensors[t].numel), out.data());
  } catch (Error const&) {
  }
}

}  // namespace tessera::fuzz
