#include "attention/mask_check.hpp"

#include <gtest/gtest.h>

#include "attention/sample_run.hpp"
#include "elementwise/dropout.hpp"
#include "tessera/kernels/attention/attention.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::kernels::detail {
namespace {

/// The host's attention as the library under check; @p change makes it a faulty one.
struct HostLibrary {
  std::function<Dropout(AttentionConfig const&, bool backward)> change =
      [](AttentionConfig const& config, bool) { return config.drop; };

  std::string operator()(AttentionSample& sample) const {
    auto const q = memory::make_inline_queue("compute");
    auto const with = [&](AttentionConfig config, bool backward) {
      config.drop = change(config, backward);
      return config;
    };
    AttentionCalls const calls{
        [&](memory::Queue& queue, auto const& config, auto const& to, auto const& in) {
          attention(queue, with(config, false), to, in);
          return true;
        },
        [&](memory::Queue& queue, auto const& config, auto const& to, auto const& in,
            auto const& saved) {
          memory::Buffer const workspace(
              "workspace", memory::Purpose::workspace,
              static_cast<std::size_t>(attention_backward_workspace(queue, config.shape)) *
                  sizeof(float));
          attention_backward(
              queue, with(config, true), to, in, saved,
              workspace.view(Dtype::fp32, {attention_backward_workspace(queue, config.shape)}));
          return true;
        }};
    return compute_sample(*q, calls, sample);
  }
};

AttentionConfig config_of(Dtype dtype, std::int64_t sequence, float p, int heads = 2,
                          int kv_heads = 2) {
  return {dtype, {4, sequence, heads, kv_heads, 16, 0.25f}, {p, 5, 96, 0}};
}

TEST(MaskCheck, AcceptsTheHostsDropout) {
  for (Dtype const dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    EXPECT_EQ(check_masks(config_of(dtype, 64, 0.1f), HostLibrary()), "") << name_of(dtype);
    EXPECT_EQ(check_masks(config_of(dtype, 75, 0.5f, 8, 2), HostLibrary()), "") << name_of(dtype);
  }
  EXPECT_EQ(check_masks(config_of(Dtype::bf16, 64, 0.001f), HostLibrary()), "");
  EXPECT_EQ(check_masks(config_of(Dtype::bf16, 3, 0.1f), HostLibrary()), "");
}
TEST(MaskCheck, AcceptsTheHostsDropoutOfLongSequences) {
  EXPECT_EQ(check_masks(config_of(Dtype::bf16, 500, 0.1f), HostLibrary()), "");
}

/// What check_masks says about a library with this fault.
template <class Change>
std::string finding(Change const& change, std::int64_t sequence = 64) {
  return check_masks(config_of(Dtype::bf16, sequence, 0.1f), HostLibrary{change});
}
#define EXPECT_SAYS(finding, part) EXPECT_NE(finding.find(part), std::string::npos) << finding

TEST(MaskCheck, SeesOtherMasksInTheBackwardPass) {
  auto const other = [](AttentionConfig const& config, bool backward) {
    Dropout drop = config.drop;
    if (backward) ++drop.first_element;
    return drop;
  };
  EXPECT_SAYS(finding(other), "backward pass drops other weights than its forward pass (query ");
  // only in long sequences
  auto const of_long = [&](AttentionConfig const& config, bool backward) {
    return other(config, backward && config.shape.sequence == 500);
  };
  EXPECT_SAYS(finding(of_long, 500), "backward pass drops other weights");
}

TEST(MaskCheck, SeesAWrongShareOfDroppedWeights) {
  auto const none = [](AttentionConfig const&, bool) { return Dropout{}; };
  EXPECT_SAYS(finding(none), "neither 0 nor");
  // keeps the scale of p but drops more
  HostLibrary const host;
  auto const doubled = [&](AttentionSample& sample) {
    float const p = sample.config.drop.p;
    sample.config.drop.p = 0.2f;
    auto out = host(sample);
    for (auto* part : {&sample.out, &sample.dvalue})
      for (float& value : *part) value *= 0.8f / 0.9f;
    sample.config.drop.p = p;
    return out;
  };
  EXPECT_SAYS(check_masks(config_of(Dtype::fp32, 64, 0.1f), doubled), "it drops 0.");
}

TEST(MaskCheck, SeesMasksThatAreNotScaled) {
  HostLibrary const host;
  auto const unscaled = [&](AttentionSample& sample) {
    auto out = host(sample);
    for (auto* part : {&sample.out, &sample.dvalue})
      for (float& value : *part) value *= 0.8f;
    return out;
  };
  EXPECT_SAYS(check_masks(config_of(Dtype::fp32, 64, 0.1f), unscaled), "neither 0 nor");
}

TEST(MaskCheck, SeesMasksThatRepeat) {
  auto const same_layers = [](AttentionConfig const& config, bool) {
    Dropout drop = config.drop;
    drop.stream = 1;
    return drop;
  };
  EXPECT_SAYS(finding(same_layers), "layers have related masks");
  auto const same_micro_batches = [](AttentionConfig const& config, bool) {
    Dropout drop = config.drop;
    drop.first_element = 0;
    return drop;
  };
  EXPECT_SAYS(finding(same_micro_batches), "micro-batches have related masks");
  int calls = 0;
  auto const other_when_again = [&](AttentionConfig const& config, bool backward) {
    Dropout drop = config.drop;
    calls += !backward;
    drop.seed += static_cast<std::uint64_t>((calls - 1) / 4 == 1);
    return drop;
  };
  EXPECT_SAYS(finding(other_when_again), "the same call does not give the same masks");
}

/// Dropout with one mask for all sequences, heads or queries, by plain loops: only the outputs that
/// probes read.
struct RepeatingLibrary {
  bool per_sequence = true, per_head = true, per_query = true, per_key = true;

  std::string operator()(AttentionSample& sample) const {
    auto const& s = sample.config.shape;
    DropoutFactors const factors(sample.config.drop);
    auto const index = [&](std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t c) {
      return static_cast<std::size_t>(((b * s.sequence + t) * s.heads + h) * s.head_dim + c);
    };
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t t = 0; t < s.sequence; ++t)
          for (std::int64_t k = 0; k <= t; ++k) {
            std::int64_t const place =
                (((per_sequence ? b : 0) * s.heads + (per_head ? h : 0)) * s.sequence +
                 (per_query ? t : 0)) *
                    s.sequence +
                (per_key ? k : 0);
            float const weight =
                factors.factor(static_cast<std::uint64_t>(place)) / static_cast<float>(t + 1);
            for (std::int64_t c = 0; c < s.head_dim; ++c) {
              sample.out[index(b, t, h, c)] += weight * sample.value[index(b, k, h, c)];
              sample.dvalue[index(b, k, h, c)] += weight * sample.dout[index(b, t, h, c)];
            }
          }
    return "";
  }
};

TEST(MaskCheck, SeesMasksThatAreNotIndependent) {
  auto const config = config_of(Dtype::fp32, 64, 0.1f);
  EXPECT_SAYS(check_masks(config, RepeatingLibrary{.per_sequence = false}),
              "sequences of a batch have related masks");
  EXPECT_SAYS(check_masks(config, RepeatingLibrary{.per_head = false}), "heads have related masks");
  EXPECT_SAYS(check_masks(config, RepeatingLibrary{.per_query = false}),
              "queries next to each other have related masks");
  EXPECT_SAYS(check_masks(config, RepeatingLibrary{.per_key = false}),
              "keys next to each other have related masks");
  EXPECT_SAYS(check_masks(config, RepeatingLibrary()), "with the masks that it uses its output");
}

TEST(MaskCheck, SeesWrongResultsUnderRightMasks) {
  HostLibrary const host;
  using Part = std::vector<float> AttentionSample::*;
  struct Fault {
    char const* name;
    Part part;
  };
  for (Fault const& fault : {Fault{"log-sum-exp", &AttentionSample::lse},
                             {"gradient of the queries", &AttentionSample::dquery},
                             {"gradient of the keys", &AttentionSample::dkey}}) {
    auto const faulty = [&](AttentionSample& sample) {
      auto out = host(sample);
      for (float& value : sample.*fault.part) value *= 1.05f;
      return out;
    };
    auto const said = check_masks(config_of(Dtype::bf16, 64, 0.1f), faulty);
    EXPECT_SAYS(said, concat("its ", fault.name, " differs by "));
  }
}

TEST(MaskCheck, SaysWhyASampleWasNotComputed) {
  EXPECT_EQ(check_masks(config_of(Dtype::bf16, 64, 0.1f),
                        [](AttentionSample&) { return std::string("no plan"); }),
            "no plan");
}

}  // namespace
}  // namespace tessera::kernels::detail
