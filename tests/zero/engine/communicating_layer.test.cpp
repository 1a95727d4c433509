/// A layer that communicates along one axis of the mesh while the states are sharded along another:
/// a sum over the tokens of a sequence, of which each rank along axis sequence has a part.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "engine_settings.hpp"
#include "mpi_test.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/comm/compose/mesh.hpp"
#include "tessera/core/random.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::test {
namespace {

using memory::first_unit;
using memory::UnitIndex;
using topology::Axis;
using Floats = std::vector<float>;

constexpr int width = 12, features = 10, samples = 4, tokens = 6;
constexpr int parts = 2;  ///< parts of a sequence, and of the samples

struct Range {
  int begin = 0, end = 0;
};
/// The i-th part of @p count samples or tokens.
Range part(int i, int count) { return {i * count / parts, (i + 1) * count / parts}; }

float token(int sample, int position, int i) {
  Philox const random{3, static_cast<std::uint64_t>(sample * tokens + position)};
  return 2.0f * random.uniform(static_cast<std::uint64_t>(i)) - 1.0f;
}
float initial(UnitIndex unit, std::int64_t i) {
  return Philox{5, position(unit)}.uniform(static_cast<std::uint64_t>(i)) - 0.25f;
}

/// h_n = W sum_t x_nt, y_n = g h_n, and the loss  1/2 sum_nt |y_n - x_nt|^2  over the first `width`
/// features of the tokens. Each rank has a part of the tokens: it sums over them, and its loss is
/// that of them.
struct Pooling {
  Range rows, positions;

  /// Sums over this rank's tokens, [sample][feature].
  Floats sums() const {
    Floats out;
    for (int n = rows.begin; n < rows.end; ++n)
      for (int k = 0; k < features; ++k) {
        float sum = 0.0f;
        for (int t = positions.begin; t < positions.end; ++t) sum += token(n, t, k);
        out.push_back(sum);
      }
    return out;
  }
  /// This rank's addend of h, [sample][width].
  Floats forward(float const* weight) const {
    auto const pooled = sums();
    Floats out;
    for (int n = 0; n < rows.end - rows.begin; ++n)
      for (int d = 0; d < width; ++d) {
        float sum = 0.0f;
        for (int k = 0; k < features; ++k)
          sum += weight[d * features + k] * pooled[static_cast<std::size_t>(n * features + k)];
        out.push_back(sum);
      }
    return out;
  }
  /// d loss / d h and d loss / d g of this rank's tokens.
  struct OfLoss {
    Floats hidden, gain = Floats(width);
  };
  OfLoss loss_gradients(Floats const& hidden, float const* gain, float scale) const {
    OfLoss out;
    for (int n = rows.begin; n < rows.end; ++n)
      for (int d = 0; d < width; ++d) {
        float const h = hidden[static_cast<std::size_t>((n - rows.begin) * width + d)];
        float error = 0.0f;
        for (int t = positions.begin; t < positions.end; ++t)
          error += scale * (gain[d] * h - token(n, t, d));
        out.hidden.push_back(error * gain[d]);
        out.gain[static_cast<std::size_t>(d)] += error * h;
      }
    return out;
  }
  /// This rank's addend of d loss / d W.
  Floats backward(Floats const& of_hidden) const {
    auto const pooled = sums();
    Floats out(width * features);
    for (int n = 0; n < rows.end - rows.begin; ++n)
      for (int d = 0; d < width; ++d)
        for (int k = 0; k < features; ++k)
          out[static_cast<std::size_t>(d * features + k)] +=
              of_hidden[static_cast<std::size_t>(n * width + d)] *
              pooled[static_cast<std::size_t>(n * features + k)];
    return out;
  }
};

constexpr UnitIndex pool_unit = first_unit, gain_unit{1};

std::vector<memory::UnitSpec> units() {
  return {{"pool", {{"weight", {width, features}, {}, true, {}}}},
          {"gain", {{"gain", {width}, {}, true, {}}}}};
}

float const* values(memory::WeightLease const& lease) {
  return static_cast<float const*>(lease[0].data());
}
void add_gradient(memory::ParamProvider& provider, UnitIndex unit, Floats const& addend,
                  memory::Queue& queue) {
  auto const lease = provider.gradient(unit, queue);
  auto* const out = static_cast<float*>(lease[0].data());
  for (std::size_t i = 0; i < addend.size(); ++i)
    out[i] = lease.accumulate() ? out[i] + addend[i] : addend[i];
  provider.gradient_complete(unit, queue);
}

/// Acts as a layer of a model: its weights come from a provider, its sums from the ranks of its
/// axis.
class CommunicatingLayer {
 public:
  CommunicatingLayer(Pooling pooling, memory::AxisCommunicator& sequence)
      : pooling_(pooling), sequence_(sequence) {}

  void train(memory::ParamProvider& provider, memory::Queue& queue, float scale) {
    provider.begin_pass(memory::Pass::training, {pool_unit, gain_unit});
    Floats hidden;
    {
      auto const weight = provider.acquire(pool_unit, queue);
      hidden = pooling_.forward(values(weight));
    }
    sum(hidden, queue);
    Pooling::OfLoss of_loss;
    {
      auto const gain = provider.acquire(gain_unit, queue);
      of_loss = pooling_.loss_gradients(hidden, values(gain), scale);
    }
    add_gradient(provider, gain_unit, of_loss.gain, queue);
    sum(of_loss.hidden, queue);
    add_gradient(provider, pool_unit, pooling_.backward(of_loss.hidden), queue);
  }

 private:
  void sum(Floats& values, memory::Queue& queue) {
    sequence_.all_reduce({values.data(), Dtype::fp32, {std::ssize(values)}}, queue);
  }
  Pooling pooling_;
  memory::AxisCommunicator& sequence_;
};

Floats sum(Floats a, Floats const& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// The gradients of all parts on one rank, [unit], with sums in the order of the ranks.
std::array<Floats, 2> gradients_on_one_rank(float const* weight, float const* gain, float scale) {
  std::array<std::array<Floats, parts>, 2> of_rows, of_both;  // [unit][part of the sequence]
  for (int r = 0; r < parts; ++r) {
    std::array<Pooling, parts> pooling;
    std::array<Pooling::OfLoss, parts> of_loss;
    for (int s = 0; s < parts; ++s)
      pooling[static_cast<std::size_t>(s)] = {part(r, samples), part(s, tokens)};
    auto const hidden = sum(pooling[0].forward(weight), pooling[1].forward(weight));
    for (std::size_t s = 0; s < parts; ++s)
      of_loss[s] = pooling[s].loss_gradients(hidden, gain, scale);
    auto const of_hidden = sum(of_loss[0].hidden, of_loss[1].hidden);
    for (std::size_t s = 0; s < parts; ++s) {
      of_rows[0][s] = pooling[s].backward(of_hidden);
      of_rows[1][s] = of_loss[s].gain;
      for (std::size_t u = 0; u < 2; ++u)
        of_both[u][s] = r == 0 ? of_rows[u][s] : sum(of_both[u][s], of_rows[u][s]);
    }
  }
  return {sum(of_both[0][0], of_both[0][1]), sum(of_both[1][0], of_both[1][1])};
}

double loss_on_one_rank(std::vector<double> const& weight, std::vector<double> const& gain) {
  double loss = 0.0;
  for (int n = 0; n < samples; ++n)
    for (int d = 0; d < width; ++d) {
      double hidden = 0.0;
      for (int t = 0; t < tokens; ++t)
        for (int k = 0; k < features; ++k)
          hidden += weight[static_cast<std::size_t>(d * features + k)] * token(n, t, k);
      for (int t = 0; t < tokens; ++t) {
        double const error = gain[static_cast<std::size_t>(d)] * hidden - token(n, t, d);
        loss += 0.5 * error * error;
      }
    }
  return loss;
}

zero::EngineConfig config_of(int stage) {
  zero::EngineConfig config;
  config.partition = zero::partition_of(stage);
  config.optimizer = optim::make_spec("SGD", {{"momentum", 0.5}});
  return config;
}
void initialize(zero::Engine& engine) {
  engine.initialize([](UnitIndex u, int, std::int64_t first, std::int64_t numel, float* out) {
    for (std::int64_t i = 0; i < numel; ++i) out[i] = initial(u, first + i);
  });
}
/// Weights of both units, as a pass sees them. Collective.
Floats weights_of(zero::Engine& engine, memory::Queue& queue) {
  Floats out;
  engine.begin_pass(memory::Pass::evaluation, {pool_unit, gain_unit});
  for (UnitIndex const unit : {pool_unit, gain_unit}) {
    auto const lease = engine.acquire(unit, queue);
    out.insert(out.end(), values(lease), values(lease) + lease[0].numel());
  }
  return out;
}

class CommunicatingLayers : public ::testing::TestWithParam<int> {
 protected:
  CommunicatingLayers()
      : mesh(*world, topology::Mesh({{Axis::sequence, parts}, {Axis::shard, parts}})),
        sequence(comm::make_axis_communicator(mesh, Axis::sequence)),
        engine(zero::make_engine(config_of(GetParam()), units(), mesh, *queue)),
        layer({part(mesh.data_coordinate(), samples), part(sequence->rank(), tokens)}, *sequence) {
    initialize(*engine);
  }
  void step() {
    engine->begin_step();
    engine->begin_micro_step(0, 1);
    layer.train(*engine, *queue, static_cast<float>(engine->gradient_scale()));
    (void)engine->finish_step(1e-3);
  }

  std::unique_ptr<comm::Collectives> world = comm::make_mpi(session(), std::chrono::seconds(60));
  std::unique_ptr<memory::Queue> queue = memory::make_inline_queue("compute");
  comm::Mesh mesh;
  std::unique_ptr<memory::AxisCommunicator> sequence;
  std::unique_ptr<zero::Engine> engine;
  CommunicatingLayer layer;
};

TEST_P(CommunicatingLayers, HaveTheGradientsOfOneRank) {
  step();
  std::array<std::vector<double>, 2> at;
  for (UnitIndex const unit : {pool_unit, gain_unit})
    for (std::int64_t i = 0; i < units()[position(unit)].parameters[0].numel(); ++i)
      at[position(unit)].push_back(initial(unit, i));
  Floats const weight(at[0].begin(), at[0].end()), gain(at[1].begin(), at[1].end());
  auto const expected = gradients_on_one_rank(weight.data(), gain.data(), 1.0f);

  auto const& plan = engine->plan();
  auto const states = engine->state();
  ASSERT_EQ(states.at(1).name, "momentum_buffer") << "after the first step it is the gradient";
  std::int64_t compared = 0;
  Rank const rank{GetParam() == 0 ? mesh.rank() : mesh.coordinate(Axis::shard)};
  for (auto const& extent : plan.extents(rank)) {
    auto const& unit = plan.unit(extent.unit);
    float const* const shard = states[1].unit_shards[position(extent.unit)] +
                               unit.shard_offset(extent.partition_offset).value();
    for (std::int64_t i = 0; i < extent.numel; ++i, ++compared) {
      auto const element = static_cast<std::size_t>(extent.parameter_offset.value() + i);
      std::size_t const u = position(extent.unit);
      EXPECT_EQ(shard[i], expected[u][element]) << unit.name << " " << element;
      double const step = 1e-5;
      auto above = at, below = at;
      above[u][element] += step, below[u][element] -= step;
      double const difference =
          (loss_on_one_rank(above[0], above[1]) - loss_on_one_rank(below[0], below[1])) /
          (2.0 * step);
      EXPECT_NEAR(shard[i], difference, 1e-4 * (1.0 + std::abs(difference)))
          << unit.name << " " << element;
    }
  }
  auto const all = comm::all_reduce_value(*world, compared, comm::ReduceOp::sum);
  EXPECT_EQ(all, (GetParam() == 0 ? 1 : parts) * width * (features + 1)) << "every element";
}

/// The trajectory is that of an engine on one rank, which is given the sum of the gradients.
TEST_P(CommunicatingLayers, TrainAsOneRankDoes) {
  auto const alone = comm::make_loopback();
  auto const reference = zero::make_engine(config_of(0), units(), *alone, *queue);
  initialize(*reference);
  for (int k = 0; k < 3; ++k) {
    step();
    reference->begin_step();
    reference->begin_micro_step(0, 1);
    reference->begin_pass(memory::Pass::training, {pool_unit, gain_unit});
    std::array<Floats, 2> gradients;
    {
      auto const weight = reference->acquire(pool_unit, *queue),
                 gain = reference->acquire(gain_unit, *queue);
      gradients = gradients_on_one_rank(values(weight), values(gain), 1.0f);
    }
    for (UnitIndex const unit : {gain_unit, pool_unit})
      add_gradient(*reference, unit, gradients[position(unit)], *queue);
    (void)reference->finish_step(1e-3);
    EXPECT_EQ(weights_of(*engine, *queue), weights_of(*reference, *queue)) << "step " << k + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, CommunicatingLayers, ::testing::Values(0, 1, 2, 3),
                         [](auto const& info) { return concat("stage_", info.param); });

}  // namespace
}  // namespace tessera::test
