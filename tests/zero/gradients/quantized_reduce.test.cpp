/// Gradients that are reduced as codes (ZeRO++ qgZ): errors within half a code of each encoding,
/// bytes of each level, error feedback.
#include "gradients/quantized_reduce.hpp"

#include <algorithm>
#include <span>

#include "engine_fixture.hpp"
#include "engine_settings.hpp"
#include "layout/shard_groups.hpp"

namespace tessera::zero::detail {
namespace {

using namespace tessera::test;

int world() { return session().info().world_size; }

EngineConfig quantized(int ranks_per_node,
                       std::optional<QuantizedGradients::ErrorFeedback> feedback = {}) {
  auto config = config_of(3);
  weights_of(config).quantized_gradients = {ranks_per_node, feedback};
  return config;
}

/// Parts of an engine with one unit of `numel` elements.
struct Parts {
  explicit Parts(EngineConfig c, std::int64_t numel)
      : config(std::move(c)),
        recording(comm::make_recording(make_comm())),
        plan({{"unit", {{"w", {numel}, {}, true, {}}}}}, recording->size()),
        groups(std::make_shared<comm::Mesh>(*recording,
                                            topology::data_parallel_mesh(recording->size())),
               config),
        context{config, plan, {&plan, Rank(recording->rank()), false}, *recording, *compute} {
    context.node = groups.node();
    context.rail = groups.rail();
  }
  std::int64_t shard() const { return plan.unit(first_unit).shard_numel; }
  std::int64_t padded() const { return plan.unit(first_unit).padded_numel; }

  EngineConfig config;
  std::unique_ptr<memory::Queue> compute = memory::make_inline_queue("compute");
  std::unique_ptr<comm::RecordingCollectives> recording;
  PartitionPlan plan;
  ShardGroups groups;
  StoreContext context;
};

float gradient_of(int rank, std::int64_t i) {
  return (2.0f *
              Philox{11, static_cast<std::uint64_t>(rank)}.uniform(static_cast<std::uint64_t>(i)) -
          1.0f) *
         (i / 700 % 2 == 0 ? 1.0f : 1e-3f);
}

double largest_in_chunk(std::vector<double> const& values, std::int64_t i) {
  constexpr std::int64_t chunk = kernels::QuantizedFormat{}.chunk;
  std::int64_t const begin = i / chunk * chunk,
                     end = std::min(begin + chunk, static_cast<std::int64_t>(values.size()));
  double largest = 0.0;
  for (std::int64_t k = begin; k < end; ++k)
    largest = std::max(largest, std::abs(values[static_cast<std::size_t>(k)]));
  return largest;
}

/// Half a code of the chunk of element @p i. A scale may be 1/128 above its exact value.
double half_code(std::vector<double> const& values, std::int64_t i,
                 kernels::QuantizedFormat const& format) {
  return largest_in_chunk(values, i) / (format.bits == 8 ? 254 : 14) * (1.0 + 1.0 / 128);
}

/// Holds the exact sum of this rank's shard, and the sum of half a code of each encoding.
struct Reference {
  Reference(Parts const& parts, int per_node) {
    auto const n = static_cast<std::size_t>(parts.shard());
    sum.resize(n), bound.resize(n);
    for (int node = 0; node < world() / per_node; ++node) {
      std::vector<double> of_node(n), errors(n);
      for (int rank = node * per_node; rank < (node + 1) * per_node; ++rank) {
        std::vector<double> region;
        for (std::size_t i = 0; i < n; ++i)
          region.push_back(gradient_of(
              rank, parts.recording->rank() * parts.shard() + static_cast<std::int64_t>(i)));
        for (std::size_t i = 0; i < n; ++i) {
          of_node[i] += region[i];
          errors[i] += half_code(region, static_cast<std::int64_t>(i),
                                 per_node == 1 ? rail_format : node_format);
        }
      }
      for (std::size_t i = 0; i < n; ++i) {
        auto const at = static_cast<std::int64_t>(i);
        double const again =
            per_node == 1 || world() == per_node
                ? 0.0
                : half_code(of_node, at, rail_format) + half_code(errors, at, rail_format);
        sum[i] += of_node[i];
        bound[i] += errors[i] + again;
      }
    }
  }
  std::vector<double> sum, bound;
};

std::vector<float> whole_of(Parts const& parts) {
  std::vector<float> whole;
  for (std::int64_t i = 0; i < parts.padded(); ++i)
    whole.push_back(gradient_of(parts.recording->rank(), i));
  return whole;
}
memory::TensorView view(std::vector<float>& values) {
  return {values.data(), Dtype::fp32, {static_cast<std::int64_t>(values.size())}};
}

std::vector<int> node_sizes() {
  std::vector<int> out;
  for (int size = 1; size <= world(); ++size)
    if (world() % size == 0) out.push_back(size);
  return out;
}

TEST(QuantizedReduce, AddsWithinHalfACodeOfEachEncoding) {
  for (int const per_node : node_sizes())
    for (std::int64_t const numel : {std::int64_t{5000}, std::int64_t{96}}) {
      Parts parts(quantized(per_node), numel);
      QuantizedReduce reduce(parts.context);
      auto whole = whole_of(parts);
      std::vector<float> out(static_cast<std::size_t>(parts.shard()), 9.0f);
      int reduced = 0;
      for (bool const first : {true, false})  // the second one adds
        reduce.start(first_unit, view(whole), view(out), {.first = first},
                     [&](memory::Event const&) { ++reduced; });
      reduce.finish();
      EXPECT_EQ(reduced, 2);
      Reference const reference(parts, per_node);
      for (std::size_t i = 0; i < out.size(); ++i)
        ASSERT_LE(std::abs(out[i] - 2 * reference.sum[i]), 2.00001 * reference.bound[i] + 1e-6)
            << i << ", " << per_node << " ranks per node";
      EXPECT_GT(reduce.bytes(), 0u);
    }
}

/// Inside a node a byte per element and all shards but those that stay; between nodes half a byte
/// and one shard per node. Two bytes per 64 elements are scales.
TEST(QuantizedReduce, SendsCodesInTwoLevels) {
  for (int const per_node : node_sizes()) {
    Parts parts(quantized(per_node), 4096 * world());
    QuantizedReduce reduce(parts.context);
    auto whole = whole_of(parts);
    std::vector<float> out(static_cast<std::size_t>(parts.shard()));
    parts.recording->clear();
    reduce.start(first_unit, view(whole), view(out), {}, {});
    reduce.finish();
    std::size_t inside = 0, between = 0;
    for (auto const& r : parts.recording->records()) {
      EXPECT_EQ(r.operation, "all_to_all");
      (r.group.starts_with("gradient node") ? inside : between) += r.bytes_sent;
    }
    std::size_t const scales = 4096 / 64 * 2;
    auto const l = static_cast<std::size_t>(per_node),
               m = static_cast<std::size_t>(world() / per_node);
    EXPECT_EQ(inside, (l - 1) * m * (4096 + scales));
    EXPECT_EQ(between, (m - 1) * (4096 / 2 + scales));
  }
}

/// With equal gradients in each step and feedback the mean of the sums becomes exact.
TEST(QuantizedReduce, FeedbackReturnsWhatCodesLose) {
  int const per_node = world() > 2 ? 2 : 1;
  constexpr int steps = 40;
  auto const mean_error = [&](std::optional<QuantizedGradients::ErrorFeedback> feedback) {
    Parts parts(quantized(per_node, feedback), 3000);
    QuantizedReduce reduce(parts.context);
    Reference const reference(parts, per_node);
    std::vector<double> sums(static_cast<std::size_t>(parts.shard()));
    for (int t = 0; t < steps; ++t) {
      auto whole = whole_of(parts);
      std::vector<float> out(sums.size());
      reduce.start(first_unit, view(whole), view(out), {.step = t + 1}, {});
      reduce.finish();
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += out[i];
    }
    double error = 0.0;
    for (std::size_t i = 0; i < sums.size(); ++i)
      error += std::abs(sums[i] / steps - reference.sum[i]);
    return error / static_cast<double>(sums.size());
  };
  double const without = mean_error({}), with = mean_error({{.beta = 0.0, .reset_steps = 1000}}),
               reset = mean_error({{.beta = 0.0, .reset_steps = 1}});
  EXPECT_LT(with, 0.1 * without);
  EXPECT_NEAR(reset, without, 0.02 * without) << "errors that start from zero in each step";
}

QuantizedGradients::ErrorFeedback feedback(double beta, std::int64_t reset_steps) {
  return {.beta = beta, .reset_steps = reset_steps};
}

/// Codes of one reduction after another, as the steps of a training.
struct Reductions {
  Reductions(int per_node, QuantizedGradients::ErrorFeedback const& f, float size = 1.0f)
      : parts(quantized(per_node, f), 3000), size_(size) {}
  std::vector<float> step(std::int64_t number) {
    auto whole = whole_of(parts);
    for (auto& value : whole) value *= size_ * static_cast<float>(number);
    std::vector<float> out(static_cast<std::size_t>(parts.shard()));
    reduce.start(first_unit, view(whole), view(out), {.step = number}, {});
    reduce.finish();
    return out;
  }
  /// The errors of all ranks of this rank's shard.
  float* saved() {
    std::vector<StateView> states{{"fp32", {}, {}}, {"row", {}, optim::Extent::per_row}};
    reduce.save_errors(states);
    EXPECT_EQ(states.size(), 3u);
    EXPECT_EQ(states[1].name, gradient_error_name);
    return states[1].unit_shards.at(0);
  }
  Parts parts;
  QuantizedReduce reduce{parts.context};

 private:
  float size_;
};

/// Without a mean over steps an error is what the last codes have lost.
TEST(QuantizedReduce, SavesWhatAllRanksAndNodesHaveLost) {
  for (int const per_node : node_sizes()) {
    Reductions training(per_node, feedback(0.0, 1000));
    for (float const* saved = training.saved(); auto const value : std::span(saved, 32))
      ASSERT_EQ(value, 0.0f) << "before the first step";
    auto const out = training.step(1);
    Reference const reference(training.parts, per_node);
    float const* const saved = training.saved();
    double largest = 0.0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(saved[i], reference.sum[i] - out[i], 2e-6 * world()) << i << ", " << per_node;
      largest = std::max(largest, std::abs(static_cast<double>(saved[i])));
    }
    EXPECT_GT(largest, 1e-4);
  }
}

/// A resumed run has the bits of the run that saved, also where the errors start from zero.
TEST(QuantizedReduce, ContinuesFromSavedErrors) {
  for (int const per_node : node_sizes())
    for (std::int64_t const reset : {3, 5, 1000}) {
      Reductions first(per_node, feedback(0.5, reset)), resumed(per_node, feedback(0.5, reset)),
          fresh(per_node, feedback(0.5, reset));
      for (std::int64_t step = 1; step <= 3; ++step) (void)first.step(step);
      float const* const saved = first.saved();
      std::copy_n(saved, first.parts.shard(), resumed.saved());
      resumed.reduce.load_errors();
      bool differs = false;
      for (std::int64_t step = 4; step <= 8; ++step) {
        auto const out = first.step(step);
        ASSERT_EQ(resumed.step(step), out) << "step " << step << ", " << per_node;
        differs |= fresh.step(step) != out;
      }
      EXPECT_EQ(differs, reset != 3) << "after 3 steps errors of 3 steps start from zero";
    }
}

/// On any number of ranks the next sums add what was saved, apart from what they lose again.
TEST(QuantizedReduce, GivesSavedErrorsToAnyNumberOfRanks) {
  for (int const per_node : node_sizes()) {
    Reductions resumed(per_node, feedback(0.0, 1000), 0.0f);
    auto const n = static_cast<std::size_t>(resumed.parts.shard());
    std::vector<float> wanted;
    for (std::size_t i = 0; i < n; ++i)
      wanted.push_back(gradient_of(7, resumed.parts.recording->rank() * resumed.parts.shard() +
                                          static_cast<std::int64_t>(i)));
    std::ranges::copy(wanted, resumed.saved());
    resumed.reduce.load_errors();
    auto const out = resumed.step(2);
    float const* const lost = resumed.saved();
    double worst = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(out[i] + lost[i], wanted[i], 2e-6) << i << ", " << per_node;
      worst = std::max(worst, std::abs(static_cast<double>(lost[i])));
    }
    EXPECT_LT(worst, 0.2);
  }
}

TEST(QuantizedReduce, ShowsValuesThatAreNotFinite) {
  Parts parts(quantized(world() > 2 ? 2 : 1), 1000);
  QuantizedReduce reduce(parts.context);
  auto whole = whole_of(parts);
  if (parts.recording->rank() == world() - 1) whole[0] = INFINITY;
  std::vector<float> out(static_cast<std::size_t>(parts.shard()));
  reduce.start(first_unit, view(whole), view(out), {}, {});
  reduce.finish();
  EXPECT_EQ(std::isnan(out[0]), parts.recording->rank() == 0);
}

TEST(QuantizedReduce, TrainsAndRefusesWhatCannotBe) {
  Training training(quantized(world() > 2 ? 2 : 1, QuantizedGradients::ErrorFeedback{}));
  SerialTraining serial(config_of(3), training.model, training.ranks());
  for (int k = 1; k <= 5; ++k) {
    double const norm = serial.step(1e-2);
    EXPECT_NEAR(training.step(1e-2).grad_norm, norm, 0.1 * norm);
  }
  auto const refused = [&](EngineConfig const& config) {
    EXPECT_THROW((void)make_engine(config, QuadraticModel(1).units(), *training.recording,
                                   *training.compute),
                 Error);
  };
  refused(quantized(0));
  refused(quantized(world() + 1));
  refused(quantized(1, QuantizedGradients::ErrorFeedback{.beta = 1.5}));
  refused(quantized(1, QuantizedGradients::ErrorFeedback{.reset_steps = 0}));
}

}  // namespace
}  // namespace tessera::zero::detail
