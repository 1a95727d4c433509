/// A tensor through view.h5 against the same bytes read plainly from the same shards: open, read,
/// close, in turns, from the page cache.
///   bench.view [RANKS=8] [MIB=256] [ROUNDS=7] [DIRECTORY=.]      one JSON line
#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "interleaved.hpp"
#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/save/save.hpp"
#include "tessera/core/error.hpp"

namespace {

using namespace tessera;

std::filesystem::path save(std::filesystem::path const& directory, std::int64_t rows, int ranks) {
  memory::ParameterSpec spec;
  spec.name = "weight";
  spec.shape = {rows, 1024};
  std::vector<memory::UnitSpec> const units{{"unit", {spec}}};
  zero::PartitionPlan const plan(units, ranks);
  checkpoint::SaveRequest const request{.directory = directory,
                                        .step = 1,
                                        .run_id = "bench",
                                        .plan = plan,
                                        .units = units,
                                        .model_config = {},
                                        .resolved_config = {},
                                        .trainer_state = {},
                                        .versions = {}};
  return checkpoint::save_all(request,
                              checkpoint::StreamedStates{
                                  {"fp32"},
                                  [](auto const&, auto const& extent, std::int64_t first,
                                     std::int64_t numel, float* out) {
                                    for (std::int64_t i = 0; i < numel; ++i)
                                      out[i] = static_cast<float>(
                                          (extent.parameter_offset.value() + first + i) % 8191);
                                  }})
      .directory;
}

void read_view(std::filesystem::path const& view, float* out) {
  hid_t const file = H5Fopen(view.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT),
              dataset = H5Dopen2(file, "/fp32/weight", H5P_DEFAULT);
  TESSERA_VALIDATE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) >= 0,
                   IoError, "cannot read ", view.string());
  H5Dclose(dataset);
  H5Fclose(file);
}

void read_plainly(checkpoint::Manifest const& m, float* out) {
  for (auto const& extent : m.tensors[0].extents) {
    int const file = ::open(m.shard_path(extent.shard).c_str(), O_RDONLY | O_CLOEXEC);
    auto const bytes = static_cast<std::size_t>(extent.numel) * 4;
    TESSERA_VALIDATE(::pread(file, out + extent.offset, bytes, extent.states[0].file_offset) ==
                         static_cast<ssize_t>(bytes),
                     IoError, "short read");
    ::close(file);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int const ranks = argc > 1 ? std::atoi(argv[1]) : 8, rounds = argc > 3 ? std::atoi(argv[3]) : 7;
  std::int64_t const rows = (argc > 2 ? std::atoll(argv[2]) : 256) * 256;
  std::filesystem::path const directory =
      std::filesystem::path(argc > 4 ? argv[4] : ".") / concat("bench.view.", ::getpid());
  auto const step = save(directory, rows, ranks);
  auto const m = checkpoint::read_manifest(step);
  std::vector<float> plain(static_cast<std::size_t>(rows) * 1024, 1), viewed(plain.size(), 2);
  auto const t = bench::interleaved(
      {[&] { read_plainly(m, plain.data()); }, [&] { read_view(step / "view.h5", viewed.data()); }},
      rounds);
  std::filesystem::remove_all(directory);
  std::printf(
      "{\"benchmark\": \"view\", \"ranks\": %d, \"bytes\": %zu, \"plain_s\": %.5f, \"view_s\": "
      "%.5f, \"view_over_plain\": %.2f}\n",
      ranks, plain.size() * 4, t[0].median, t[1].median, t[1].median / t[0].median);
  return std::memcmp(plain.data(), viewed.data(), plain.size() * 4) == 0 ? 0 : 1;
}
