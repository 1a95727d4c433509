/// What a checkpoint of many ranks costs besides its data: writing view.h5, writing and reading the
/// manifest. remake_view_s: what `tessera checkpoint view` does, from reading the manifest to the
/// view's flush and rename.
///   bench.manifest [RANKS=1000] [UNITS=40] [DIRECTORY=.] [RANKS_PER_FILE=1]      one JSON line; no
///   data is written
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "format/detail/shard_file.hpp"
#include "interleaved.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

int main(int argc, char** argv) {
  using namespace tessera;
  int const ranks = argc > 1 ? std::atoi(argv[1]) : 1000,
            units = argc > 2 ? std::atoi(argv[2]) : 40,
            ranks_per_file = argc > 4 ? std::atoi(argv[4]) : 1;
  std::filesystem::path const directory = std::filesystem::path(argc > 3 ? argv[3] : ".") /
                                          concat("bench.manifest.", ::getpid()),
                              view = directory / "first.h5";
  std::filesystem::create_directory(directory);
  constexpr int parameters = 8;
  std::vector<memory::UnitSpec> specs;
  for (int u = 0; u < units; ++u) {
    specs.push_back({concat("h.", u), {}});
    for (int p = 0; p < parameters; ++p) {
      memory::ParameterSpec spec;
      spec.name = concat("h.", u, ".weight", p);
      spec.shape = {512, 1000};
      specs.back().parameters.push_back(std::move(spec));
    }
  }
  zero::PartitionPlan const plan(specs, ranks);
  checkpoint::Manifest m;
  m.states = {"fp32", "exp_avg", "exp_avg_sq"};
  m.run_id = "bench";
  m.world_size = ranks;
  m.checksum_chunk = std::int64_t{4} << 20;
  for (auto const& unit : specs)
    for (auto const& p : unit.parameters)
      m.tensors.push_back({p.name, p.shape, {}, Dtype::fp32, {}, {}});
  std::size_t extents = 0;
  for (int r = 0; r < ranks; ++r) {
    int const shard = r / ranks_per_file;
    if (r % ranks_per_file == 0)
      m.shards.push_back({checkpoint::detail::shard_name(shard), std::int64_t{1} << 40, r,
                          std::min(ranks_per_file, ranks - r)});
    for (auto const& p : plan.extents(Rank(r))) {
      m.tensors[position(p.unit) * parameters + static_cast<std::size_t>(p.parameter)]
          .extents.push_back(
              {shard, p.parameter_offset.value(), p.numel,
               std::vector<checkpoint::StateLocation>(
                   3, {4096 + 4 * p.parameter_offset.value(), {0x0123456789abcdefu}, {}}),
               ranks_per_file > 1 ? r : -1});
      ++extents;
    }
  }
  std::string text;
  checkpoint::Manifest read;
  double const view_s = bench::seconds_of([&] { checkpoint::write_view(view, m); });
  double const write_s = bench::seconds_of([&] { text = checkpoint::manifest_text(m); });
  double const read_s = bench::seconds_of([&] { read = checkpoint::parse_manifest(text, "."); });
  write_file_atomically(directory / "manifest.json", text);
  double const remake_s = bench::seconds_of([&] { checkpoint::make_view(directory); });
  std::filesystem::remove_all(directory);
  std::printf(
      "{\"benchmark\": \"manifest\", \"ranks\": %d, \"shards\": %zu, \"tensors\": %zu, \"pieces\": "
      "%zu, \"view_s\": "
      "%.3f, \"remake_view_s\": %.3f, \"manifest_bytes\": %zu, "
      "\"manifest_write_s\": %.3f, \"manifest_read_s\": %.3f}\n",
      ranks, m.shards.size(), m.tensors.size(), extents, view_s, remake_s, text.size(), write_s,
      read_s);
  return read.tensors == m.tensors ? 0 : 1;
}
