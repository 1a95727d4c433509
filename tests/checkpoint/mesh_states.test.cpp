/// Checkpoints of a model of which some units belong to one coordinate of an axis of the mesh: each
/// expert is on the ranks with its coordinate along axis expert, and partitioned along axis shard.
#include "shared_fixture.hpp"
#include "tessera/checkpoint/save/background_saver.hpp"
#include "tessera/checkpoint/tools/compare.hpp"
#include "tessera/checkpoint/tools/verify.hpp"
#include "tessera/topology/mesh.hpp"

namespace tessera::test {
namespace {

using topology::Axis;
using topology::Mesh;

constexpr int experts = 4;

bool is_expert(std::string const& unit) { return unit.starts_with("expert."); }

/// The toy model, with experts of different sizes between its block and its head.
std::vector<memory::UnitSpec> units_with_experts() {
  auto units = toy_units();
  for (int e = 0; e < experts; ++e) {
    memory::UnitSpec unit{concat("expert.", e), {}};
    for (auto const& [name, shape] :
         {std::pair("up", std::vector<std::int64_t>{24, 31 + e}), {"bias", {31 + e}}}) {
      memory::ParameterSpec spec;
      spec.name = concat(unit.name, ".", name);
      spec.shape = shape;
      unit.parameters.push_back(std::move(spec));
    }
    units.insert(units.end() - 1, std::move(unit));
  }
  return units;
}

/// The plan of the ranks of @p mesh as one with coordinate @p copy along axis expert has it: units
/// that are no experts are on the ranks with its coordinate, and others have copies.
zero::PartitionPlan plan_on(Mesh const& mesh, int copy) {
  auto const units = units_with_experts();
  std::vector<std::vector<Rank>> owners;
  int expert = 0;
  for (auto const& unit : units) {
    int const coordinate =
        is_expert(unit.name) ? expert++ * mesh.size(Axis::expert) / experts : copy;
    auto& of_unit = owners.emplace_back();
    for (int const rank :
         mesh.ranks_of_group(Axis::shard, mesh.rank_at({{Axis::expert, coordinate}})))
      of_unit.push_back(Rank(rank));
  }
  return {units, mesh.size(), owners};
}

class MeshStates : public SharedRun {
 protected:
  /// The states of this rank on @p mesh, without memory for the units of other ranks.
  checkpoint::StateViews views_of(RankState& state, zero::PartitionPlan const& of, int rank) {
    auto views = state.views();
    for (auto& view : views)
      for (std::size_t u = 0; u < of.units().size(); ++u)
        if (!of.units()[u].is_on(Rank(rank))) view.unit_shards[u] = nullptr;
    return views;
  }
  /// By the ranks of @p ranks, which form @p mesh: of the copies along axis expert the first.
  fs::path save_on(Mesh const& mesh, comm::Collectives& ranks, std::string const& name) {
    auto const first_copy = plan_on(mesh, 0);
    RankState state(first_copy, ranks.rank());
    state.fill(step);
    auto const views = views_of(state, first_copy, ranks.rank());
    auto const model = units_with_experts();
    auto const request = request_for(dir / name, step, first_copy, model);
    checkpoint::BackgroundSaver saver(ranks);
    saver.begin(request, views, checkpoint::BackgroundSaver::Source::snapshot);
    return saver.finish().directory;
  }
  std::int64_t wrong_on(Mesh const& mesh, comm::Collectives& ranks, fs::path const& from) {
    auto const own = plan_on(mesh, mesh.coordinate(ranks.rank(), Axis::expert));
    RankState state(own, ranks.rank());
    checkpoint::restore(checkpoint::read_manifest(from, ranks), own,
                        views_of(state, own, ranks.rank()), ranks);
    return state.wrong(step);
  }
  static constexpr std::int64_t step = 11;
  Mesh const two_by_two{{{Axis::expert, 2}, {Axis::shard, 2}}};
};

TEST_F(MeshStates, HaveEachElementOnce) {
  auto const from = save_on(two_by_two, *comm, "two-by-two");
  EXPECT_TRUE(checkpoint::verify(from).ok());
  auto const manifest = checkpoint::read_manifest(from);
  EXPECT_EQ(manifest.shards.size(), 4U);
  for (auto const& [name, owners] : {std::pair("expert.0.up", std::vector{0, 1}),
                                     {"expert.1.bias", {0, 1}},
                                     {"expert.2.up", {2, 3}},
                                     {"expert.3.bias", {2, 3}},
                                     {"transformer.wte.weight", {0, 1}}}) {
    auto const* const tensor = manifest.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->owners, owners) << name;
    for (auto const& extent : tensor->extents)
      EXPECT_TRUE(extent.shard == owners[0] || extent.shard == owners[1]) << name;
  }
}

/// The mesh of a resume may have more or fewer coordinates along either axis, and another order.
TEST_F(MeshStates, ResumeOnAnyMesh) {
  auto const from = save_on(two_by_two, *comm, "two-by-two");
  auto const alone = comm::make_loopback();
  struct Target {
    std::string name;
    Mesh mesh;
    comm::Collectives& ranks;
  };
  for (auto const& [name, mesh, ranks] :
       {Target{"2x2", two_by_two, *comm},
        {"4x1", Mesh({{Axis::expert, 4}, {Axis::shard, 1}}), *comm},
        {"1x4", Mesh({{Axis::expert, 1}, {Axis::shard, 4}}), *comm},
        {"inner-experts", Mesh({{Axis::shard, 2}, {Axis::expert, 2}}), *comm},
        {"1x1", Mesh({}), *alone}}) {
    EXPECT_EQ(wrong_on(mesh, ranks, from), 0) << name;
    if (&ranks == comm.get() || comm->rank() == 0) {
      auto const again = save_on(mesh, ranks, concat("from-", name));
      if (comm->rank() == 0) {
        auto const report = checkpoint::compare({.a = from, .b = again});
        EXPECT_TRUE(report.same_tensors()) << name;
        EXPECT_EQ(report.tensors.size(), 3 * (8U + 2 * experts)) << name;
        for (auto const& tensor : report.tensors)
          EXPECT_EQ(tensor.different, 0) << name << " " << tensor.name;
      }
    }
    comm->barrier();
  }
}

}  // namespace
}  // namespace tessera::test
