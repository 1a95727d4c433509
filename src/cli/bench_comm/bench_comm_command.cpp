#include "commands.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "installation.hpp"
#include "launch/run_program.hpp"
#include "rank_programs.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

/// Counts of MPI calls are 32-bit.
constexpr std::int64_t largest_message = std::int64_t{4} << 30;

struct BenchCommArguments {
  std::vector<std::string> operations, groups{"world"};
  std::string smallest = "1KiB", largest = "256MiB", dtype = "fp32", collectives = "auto";
  std::string device = "auto", json, plot;
  int repetitions = 0;
};

ConfigTree list_of(std::vector<std::string> const& words) {
  return ConfigTree(ConfigTree::Array(words.begin(), words.end()));
}

std::string absolute_path(std::string const& path) {
  return path.empty() ? path : std::filesystem::absolute(path).string();
}

/// This program does not link MPI: tessera-train measures in its place.
void bench_comm(BenchCommArguments const& a) {
  auto const smallest = parse_size(a.smallest), largest = parse_size(a.largest);
  TESSERA_VALIDATE(smallest <= largest && largest <= largest_message, UsageError, "--smallest ",
                   a.smallest, " and --largest ", a.largest,
                   ": sizes must be in order and at most 4GiB");
  auto const options = ConfigTree::object()
                           .set("operations", list_of(a.operations))
                           .set("groups", list_of(a.groups))
                           .set("smallest", smallest)
                           .set("largest", largest)
                           .set("dtype", a.dtype)
                           .set("collectives", a.collectives)
                           .set("device", a.device)
                           .set("repetitions", a.repetitions)
                           .set("json", absolute_path(a.json))
                           .set("plot", absolute_path(a.plot));
  exec_program({sibling_program("tessera-train").string(), bench_comm_word, options.dump()});
}

}  // namespace

void add_bench_comm(Command& app) {
  auto const a = std::make_shared<BenchCommArguments>();
  auto& command = app.add_command(
      "bench-comm",
      "Time collective operations next to those of the MPI library, under srun or mpirun: "
      "srun tessera bench-comm");
  command
      .add("--operations", a->operations, "operations to time, separated by commas (default: all)")
      .by_commas()
      .one_of({"broadcast", "all_reduce", "reduce", "reduce_scatter", "all_gather", "all_to_all",
               "scatter", "gather"});
  command
      .add("--groups", a->groups,
           "groups of ranks, separated by commas: world, node (ranks of a node), rail (one "
           "rank of each node), shard:N (N consecutive ranks)")
      .by_commas();
  command.add("--smallest SIZE", a->smallest,
              "smallest message, such as 1KiB; each next one is 4 times as large");
  command.add("--largest SIZE", a->largest, "largest message, at most 4GiB");
  command.add("--dtype", a->dtype, "type of the elements: fp32, bf16, fp16")
      .one_of({"fp32", "bf16", "fp16"});
  command
      .add("--collectives", a->collectives,
           "across nodes: auto (by size and links), flat, two-level")
      .one_of({"auto", "flat", "two-level"});
  command.add("--device", a->device, "memory of the operands: auto, gpu, cpu")
      .one_of({"auto", "gpu", "cpu", "cuda"});
  command
      .add("--repetitions", a->repetitions,
           "repetitions of each operation and size; 0: from 5 to 101 by size, at most 5 s")
      .between(0, 100'000);
  command.add("--json FILE", a->json, "JSON file to write");
  command.add("--plot FILE", a->plot, "SVG file to write");
  command.run([a] { bench_comm(*a); });
}

}  // namespace tessera::cli
