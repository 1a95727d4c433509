#include "tessera/checkpoint/save/save_model.hpp"

#include <limits>

#include "fixture.hpp"
#include "mpi_test.hpp"
#include "tessera/checkpoint/save/save.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::HasSubstr;

namespace {

class SaveModel : public ::testing::Test {
 protected:
  SaveModel()
      : comm(comm::make_mpi(session(), std::chrono::seconds(60))),
        units(toy_units()),
        plan(units, comm->size()),
        dir(comm::broadcast_bytes(
            *comm, concat("model-", comm->size(), "-", ::getpid(), "-", ++count), 0)) {
    comm->barrier();
  }
  ~SaveModel() override { comm->barrier(); }

  checkpoint::SaveModelRequest request(std::string const& name, Dtype dtype) {
    checkpoint::SaveModelRequest out{.directory = dir / name, .plan = plan, .units = units};
    out.dtype = dtype;
    out.model_config = request_for(dir.path(), 1, plan, units).model_config;
    return out;
  }
  static std::map<std::string, std::string> contents(fs::path const& directory) {
    std::map<std::string, std::string> out;
    for (auto const& entry : fs::directory_iterator(directory))
      out[entry.path().filename().string()] = read_file(entry.path());
    return out;
  }

  static int count;
  std::unique_ptr<comm::Collectives> comm;
  std::vector<memory::UnitSpec> units;
  zero::PartitionPlan plan;
  ScratchDirectory dir;
};
int SaveModel::count = 0;

/// The oracle is the other way to a model: a checkpoint, consolidated by one process.
TEST_F(SaveModel, EqualsAConsolidatedCheckpointByteForByte) {
  RankState state(plan, comm->rank());
  auto const views = state.fill(7).views();
  auto const saved =
      checkpoint::save(request_for(dir / "checkpoints", 7, plan, units), views, *comm);
  struct Case {
    char const* name;
    Dtype dtype;
    std::int64_t max_shard_bytes;
  };
  for (auto const& c : {Case{"fp32", Dtype::fp32, 5'000'000'000}, Case{"bf16", Dtype::bf16, 4096},
                        Case{"fp16", Dtype::fp16, 9000}}) {
    auto wanted = request(concat(c.name, "-direct"), c.dtype);
    wanted.max_shard_bytes = c.max_shard_bytes;
    auto const model = checkpoint::save_model(wanted, views[0], *comm);
    zero::PartitionPlan const one(units, 1);  // every rank has a copy
    RankState copy(one, 0);
    auto of_copies = request(concat(c.name, "-copies"), c.dtype);
    checkpoint::SaveModelRequest const by_one{.directory = of_copies.directory,
                                              .plan = one,
                                              .units = units,
                                              .dtype = c.dtype,
                                              .model_config = of_copies.model_config,
                                              .max_shard_bytes = c.max_shard_bytes};
    (void)checkpoint::save_model(by_one, copy.fill(7).views()[0], *comm);
    comm->barrier();
    if (comm->rank() == 0) {
      EXPECT_TRUE(contents(of_copies.directory) == contents(wanted.directory)) << c.name;
      fs::path const output = dir / concat(c.name, "-consolidated");
      checkpoint::consolidate({.checkpoint = saved.directory,
                               .output = output,
                               .max_shard_bytes = c.max_shard_bytes,
                               .dtype = c.dtype});
      EXPECT_TRUE(contents(wanted.directory) == contents(output)) << c.name;
      EXPECT_EQ(model.files.size(), contents(output).size());
      EXPECT_TRUE(model.nonfinite.empty());
    }
    comm->barrier();
  }
}

TEST_F(SaveModel, AFailureLeavesTheDirectoryAsItWas) {
  RankState state(plan, comm->rank());
  auto const views = state.fill(7).views();
  checkpoint::save_model(request("model", Dtype::fp32), views[0], *comm);
  comm->barrier();
  auto const before = contents(dir / "model");
  comm->barrier();
  auto broken = request("model", Dtype::bf16);
  broken.extra_files = {dir / "no-such-tokenizer.json"};
  EXPECT_THAT(message_of<IoError>([&] { checkpoint::save_model(broken, views[0], *comm); }),
              HasSubstr("no-such-tokenizer.json"));
  comm->barrier();
  EXPECT_TRUE(contents(dir / "model") == before);
}

TEST_F(SaveModel, ValuesThatAreNotFiniteAreNotWritten) {
  RankState state(plan, comm->rank());
  auto const views = state.fill(7).views();
  for (auto const& extent : plan.extents(Rank(comm->rank())))
    state.memory(0)[static_cast<std::size_t>(extent.partition_offset.value())] = 1e6f;
  auto const beyond = checkpoint::save_model(request("fp16", Dtype::fp16), views[0], *comm);
  EXPECT_FALSE(beyond.nonfinite.empty()) << "fp16 ends at 65504";
  EXPECT_TRUE(
      checkpoint::save_model(request("bf16", Dtype::bf16), views[0], *comm).nonfinite.empty());
  if (comm->rank() == comm->size() - 1)
    for (auto& value : state.memory(0)) value = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { checkpoint::save_model(request("nan", Dtype::bf16), views[0], *comm); }),
              HasSubstr("is not finite"));
  comm->barrier();
  EXPECT_TRUE(contents(dir / "nan").empty());
}

}  // namespace
