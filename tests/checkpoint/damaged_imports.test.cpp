// DeepSpeed's files damaged by hand and at random: a DataError or IoError, never a crash, never
// another outcome.
#include <zlib.h>

#include <random>

#include "fixture.hpp"
#include "interchange/detail/deepspeed_reader.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

using test::ScratchDirectory;
using testing::HasSubstr;

fs::path const data = fs::path(TESSERA_TEST_DATA) / "checkpoint/data/deepspeed";

std::string read_file(fs::path const& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_file(fs::path const& path, std::string const& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// Thousands of small files: in memory where there is a file system for that.
bool const in_memory = fs::is_directory("/dev/shm") && ::access("/dev/shm", W_OK) == 0 &&
                       ::setenv("TMPDIR", "/dev/shm", 1) == 0;

class Damaged : public testing::Test {
 protected:
  fs::path copy(std::string const& name) {
    fs::path const to = scratch_ / concat(name, ++count_);
    fs::copy(data / name, to, fs::copy_options::recursive);
    return to / "step3";
  }
  static void expect_refused(fs::path const& directory, std::string const& reason) {
    SCOPED_TRACE(reason);
    EXPECT_THAT([&] { read_deepspeed(directory, Wanted::training_state, CrcCheck::everything); },
                testing::Throws<Error>(testing::Property(&Error::what, HasSubstr(reason))));
  }
  ScratchDirectory scratch_;
  int count_ = 0;
};

fs::path optim(fs::path const& directory, int rank) {
  return directory / concat("zero_pp_rank_", rank, "_mp_rank_00_optim_states.pt");
}

TEST_F(Damaged, MissingAndMixedFiles) {
  auto directory = copy("z2_w3_groups");
  fs::remove(optim(directory, 1));
  expect_refused(directory, "no optimizer file of rank 1");
  directory = copy("z2_w3_groups");
  fs::remove(optim(directory, 2));
  expect_refused(directory, "one of 3 partitions");
  directory = copy("z3_w3");
  fs::remove(directory / "zero_pp_rank_0_mp_rank_00_model_states.pt");
  expect_refused(directory, "zero_pp_rank_0_mp_rank_00_model_states.pt");
  directory = copy("z2_w2_fp16");
  fs::rename(optim(directory, 0), directory / "x");
  fs::rename(optim(directory, 1), optim(directory, 0));
  fs::rename(directory / "x", optim(directory, 1));
  expect_refused(directory, "was saved as");
  directory = copy("z2_w2_fp16");
  fs::copy_file(optim(data / "z1_w2_frozen/step3", 1), optim(directory, 1),
                fs::copy_options::overwrite_existing);
  expect_refused(directory, "does not belong");
  directory = copy("z2_w2_fp16");
  fs::copy_file(data / "z2_w3_groups/step3/mp_rank_00_model_states.pt",
                directory / "mp_rank_00_model_states.pt", fs::copy_options::overwrite_existing);
  expect_refused(directory, "different saves");
  directory = copy("z2_w2_fp16");
  fs::remove(optim(directory, 0));
  fs::remove(optim(directory, 1));
  expect_refused(directory, "its model states were saved with ZeRO");
  directory = copy("z2_w2_fp16");
  write_file(directory / "zero_pp_rank_0_mp_rank_01_optim_states.pt", "");
  expect_refused(directory, "model-parallel");
  directory = copy("universal_z2").parent_path() / "step3_universal";
  fs::remove_all(directory / "zero/transformer.wpe.weight");
  expect_refused(directory, "no directory of parameter transformer.wpe.weight");
}

TEST_F(Damaged, ATagThatIsNotThere) {
  EXPECT_EQ(find_deepspeed(data / "z3_w3", "step4"), std::nullopt);
  EXPECT_THROW(find_deepspeed(data / "z3_w3", "../z1_w1/step3"), UsageError);
  EXPECT_EQ(find_deepspeed(data / "z3_w3", ""), data / "z3_w3/step3");
  EXPECT_EQ(find_deepspeed(data / "z3_w3/step3", ""), data / "z3_w3/step3");
  EXPECT_EQ(find_deepspeed(data / "torch_files", ""), std::nullopt);
}

TEST_F(Damaged, EveryFlippedBitOfAFileIsNoticed) {
  // CRC-32 finds any single flip in a member; the rest of the archive is checked by structure or
  // does not matter
  auto const directory = copy("z2_w2_fp16");
  std::string const good = read_file(optim(directory, 1));
  ZipReader const zip(File::open_read(optim(directory, 1)));
  std::mt19937 random(1);
  for (auto const& member : zip.members()) {
    bool const ignored = member.bytes == 0;
    for (int i = 0; i < 20 && !ignored; ++i) {
      std::string bad = good;
      bad[static_cast<std::size_t>(member.offset) +
          random() % static_cast<std::size_t>(member.bytes)] ^=
          static_cast<char>(1 << random() % 8);
      write_file(optim(directory, 1), bad);
      EXPECT_THROW(read_deepspeed(directory, Wanted::training_state, CrcCheck::everything),
                   DataError)
          << member.name;
    }
  }
}

/// Bytes of a file with random damage; the CRC-32 of the pickle is corrected, so that the damage
/// reaches the reader behind it.
class Mutator {
 public:
  explicit Mutator(fs::path const& path) : good_(read_file(path)) {
    if (good_.rfind("PK", 0) != 0) {
      pickle_bytes_ = std::min<std::size_t>(good_.size(), 3000);
      return;
    }
    ZipReader const zip(File::open_read(path));
    for (auto const& member : zip.members())
      if (member.name.size() > 9 && member.name.ends_with("/data.pkl")) {
        pickle_at_ = static_cast<std::size_t>(member.offset),
        pickle_bytes_ = static_cast<std::size_t>(member.bytes);
        crc_at_ = good_.rfind(member.name) - 46 + 16;
      }
  }
  std::string next(std::mt19937& random) const {
    std::string bad = good_;
    bool const in_pickle = random() % 4 != 0;
    int const changes = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < changes; ++i) {
      std::size_t const at =
          in_pickle ? pickle_at_ + random() % pickle_bytes_
                    : bad.size() - 1 - random() % std::min<std::size_t>(bad.size(), 1200);
      switch (random() % 4) {
        case 0:
          bad[at] ^= static_cast<char>(1 << random() % 8);
          break;
        case 1:
          bad[at] = static_cast<char>(random());
          break;
        case 2:
          bad[at] = "\xff\x7f\x80\x00.(tRQb}]"[random() % 12];
          break;
        default:
          bad[at] = bad[pickle_at_ + random() % pickle_bytes_];
          break;
      }
    }
    if (crc_at_ > 0) {
      auto const crc =
          crc32_z(0, reinterpret_cast<Bytef const*>(bad.data() + pickle_at_), pickle_bytes_);
      for (std::size_t i = 0; i < 4; ++i) bad[crc_at_ + i] = static_cast<char>(crc >> (8 * i));
    }
    if (random() % 50 == 0) bad.resize(random() % bad.size());
    return bad;
  }

 private:
  std::string good_;
  std::size_t pickle_at_ = 0, pickle_bytes_ = 0, crc_at_ = 0;
};

/// Everything that a consolidation would read.
void read_all(TrainingSource& source) {
  std::vector<float> values(100'000);
  for (std::size_t t = 0; t < source.tensors.size(); ++t)
    for (std::size_t s = 0; s < 3; ++s)
      source.read(t, s, 0, std::min<std::int64_t>(source.tensors[t].numel, 100'000), values.data());
}

class RandomDamage : public testing::TestWithParam<char const*> {};

TEST_P(RandomDamage, EndsInAnErrorOrInOrder) {
  ScratchDirectory const scratch;
  std::string const name = GetParam();
  fs::path const directory =
      scratch / "c" / (name.rfind("universal", 0) == 0 ? "step3_universal" : "step3");
  fs::copy(data / name, scratch / "c", fs::copy_options::recursive);
  std::vector<fs::path> files;
  for (auto const& entry : fs::recursive_directory_iterator(directory))
    if (entry.path().extension() == ".pt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::mt19937 random(12345);
  int refused = 0, rounds = 200;
  for (int i = 0; i < rounds; ++i) {
    auto const& file = files[random() % files.size()];
    std::string const good = read_file(file);
    write_file(file, Mutator(file).next(random));
    try {
      auto source = read_deepspeed(directory, Wanted::training_state, CrcCheck::pickle);
      read_all(source);
    } catch (DataError const&) {
      ++refused;
    } catch (IoError const&) {
      ++refused;
    }
    write_file(file, good);
  }
  RecordProperty("refused", refused);
  EXPECT_GT(refused, rounds / 5);
  auto source = read_deepspeed(directory, Wanted::training_state, CrcCheck::everything);
  EXPECT_EQ(source.tensors.size(), 16u);
}

INSTANTIATE_TEST_SUITE_P(Cases, RandomDamage,
                         testing::Values("z1_w2_bf16_wrapper", "z2_w3_groups", "z2_w2_fp16",
                                         "z2_w2_elastic", "z2_w2_legacy", "z3_w2_bf16", "z3_w3",
                                         "universal_z2"),
                         [](auto const& info) { return std::string(info.param); });

TEST(RandomDamageOfTorchFiles, EndsInAnErrorOrInOrder) {
  ScratchDirectory const scratch;
  std::mt19937 random(777);
  std::vector<float> values(4096);
  for (auto const* name : {"zip.pt", "legacy.pt"}) {
    Mutator const mutator(data / "torch_files" / name);
    for (int i = 0; i < 1000; ++i) {
      write_file(scratch / name, mutator.next(random));
      try {
        TorchFile const file(scratch / name);
        for (std::size_t v = 0; v < file.pickle().values(); ++v)
          if (auto const place = file.find_tensor(file.pickle().value(static_cast<Pickle::Id>(v))))
            read_as_fp32(file.file(), *place, 0, std::min<std::int64_t>(place->numel, 4096),
                         values.data());
      } catch (DataError const&) {
      }
    }
  }
}

}  // namespace
}  // namespace tessera::checkpoint::detail
