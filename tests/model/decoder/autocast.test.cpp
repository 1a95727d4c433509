/// fp32 weights and residual stream with 16-bit products, against torch.autocast: the stored errors
/// of tests/oracles/autocast.py.
#include "family_suite.hpp"
#include "gpt2_case.hpp"

namespace tessera::test {
namespace {

struct AutocastModel {
  std::unique_ptr<model::CausalLm> lm;
  ResidentParams params;
  std::unique_ptr<memory::Queue> queue = memory::make_inline_queue("compute");

  AutocastModel(StoredCase const& c, Dtype products)
      : lm(model::make_model(c.config, {Dtype::fp32, products})),
        params(lm->units(), Dtype::fp32,
               c.config.at("model_type").as_string() == "gpt2"
                   ? generator_weights()
                   : named_weights(c.config.at("model_type").as_string())) {}

  double train(StoredCase const& c, model::PassSettings const& settings) {
    auto const tokens = c.tokens();
    return lm->train({tokens.data(), c.rows, c.sequence}, settings, params, *queue).value();
  }
};

double relative_error(std::vector<float> const& got, std::vector<float> const& want, double scale) {
  double error = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) / scale - static_cast<double>(want[i]), 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(error / norm);
}

/// Root mean square of the gradients' errors, relative to torch's. Gradients that torch loses
/// completely (key biases have none) are left out. The tensors are small: their errors scatter.
double error_relative_to_torch(StoredCase const& c, Dtype products, ConfigTree const& torch) {
  auto const n = static_cast<double>(c.predictions());
  double const scale = torch.at("scale").as_double();
  AutocastModel m(c, products);
  double const loss = m.train(c, {.gradient_scale = static_cast<float>(scale / n)}) / n;
  double const bound = products == Dtype::bf16 ? 0x1.0p-8 : 0x1.0p-11;
  EXPECT_NEAR(loss, c.loss, bound * c.loss);
  EXPECT_NEAR(loss, torch.at("loss").as_double(), bound * c.loss);
  double squares = 0.0, torch_squares = 0.0, torch_largest = 0.0;
  auto const& errors = torch.at("gradient_errors");
  for (auto const& [name, error] : errors.as_object())
    if (error.as_double() < 1.0) torch_largest = std::max(torch_largest, error.as_double());
  m.params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
    double const theirs = errors.at(spec.name).as_double();
    if (theirs >= 1.0) return;
    double const ours =
        relative_error(m.params.gradient_values(unit, p), c.gradients.at(spec.name), scale);
    EXPECT_LE(ours, 1.5 * torch_largest) << spec.name;
    squares += ours * ours;
    torch_squares += theirs * theirs;
  });
  EXPECT_GT(squares, 0.01 * torch_squares) << "products are in 16 bits";
  return std::sqrt(squares / torch_squares);
}

constexpr char const* family_names[] = {"gpt2",  "gpt_bigcode", "llama",    "mistral", "qwen2",
                                        "qwen3", "starcoder2",  "gpt_neox", "phi",     "phi3",
                                        "olmo2", "gemma",       "gemma2"};

class AutocastFamily : public testing::TestWithParam<char const*> {};
INSTANTIATE_TEST_SUITE_P(Families, AutocastFamily,
                         testing::ValuesIn(std::begin(family_names), std::end(family_names)),
                         [](auto const& info) { return std::string(info.param); });

std::vector<StoredCase> const& cases_of(std::string const& family) {
  return family == "gpt2" ? gpt2_cases() : family_cases(family);
}

/// Returns the errors of every stored case and dtype.
std::vector<double> errors_of(std::string const& name) {
  auto const stored = ConfigTree::read(TESSERA_TEST_DATA "/model/data/autocast.json");
  auto const& family = stored.at("families").at(name);
  std::vector<double> out;
  for (auto const& c : cases_of(name))
    if (auto const* entry = family.find(c.name))
      for (Dtype const dtype : {Dtype::bf16, Dtype::fp16}) {
        SCOPED_TRACE(concat(c.name, ", ", name_of(dtype)));
        out.push_back(error_relative_to_torch(c, dtype, entry->at(name_of(dtype))));
      }
  return out;
}

TEST_P(AutocastFamily, IsAboutAsGoodAsTorch) {
  for (double const error : errors_of(GetParam())) EXPECT_LE(error, 1.25);
}

TEST(Autocast, IsBetterThanTorchOnAverage) {
  double sum = 0.0;
  int count = 0;
  for (char const* name : family_names)
    for (double const error : errors_of(name)) sum += error, ++count;
  EXPECT_GE(count, 40);
  EXPECT_LE(sum / count, 1.0);
}

/// Recomputed activations have the same bits, and the arena holds what was planned.
TEST_P(AutocastFamily, PassesAgreeAndNeedThePlannedMemory) {
  auto const& c = cases_of(GetParam())[0];
  AutocastModel kept(c, Dtype::bf16);
  auto const held = [] {
    return memory::MemoryTracker::of_process().current(memory::Purpose::activations);
  };
  kept.lm->reserve_activations(kept.lm->activation_bytes({.rows = c.rows, .sequence = c.sequence},
                                                         memory::MemorySpace::host),
                               *kept.queue);
  auto const reserved = held();
  double const loss = kept.train(c, {});
  EXPECT_EQ(held(), reserved);
  for (auto const recompute : {Recompute::light, Recompute::block}) {
    AutocastModel recomputed(c, Dtype::bf16);
    EXPECT_EQ(loss, recomputed.train(c, {.recompute = recompute}));
    EXPECT_EQ(gradients_of(kept.params), gradients_of(recomputed.params));
  }
  auto const tokens = c.tokens();
  model::Batch const batch{tokens.data(), c.rows, c.sequence};
  EXPECT_EQ(kept.lm->evaluate(batch, kept.params, *kept.queue).value(), loss);
  EXPECT_LE(worst(next_token_logits(*kept.lm, batch, kept.params, *kept.queue), c.last_logits),
            0.03);
}

/// Noise of NEFTune: in training only, the same for every split of the batch.
TEST(ModelOptions, NoiseIsOnTheEmbeddingsInTraining) {
  auto const& c = gpt2_cases()[0];
  auto const loss_of = [&](double alpha, std::uint64_t step, bool trains) {
    model::ModelOptions options(Dtype::fp32);
    options.neftune_noise_alpha = alpha;
    auto const lm = model::make_model(c.config, options);
    ResidentParams params(lm->units(), Dtype::fp32, generator_weights());
    auto const queue = memory::make_inline_queue("compute");
    auto const tokens = c.tokens();
    model::Batch const batch{tokens.data(), c.rows, c.sequence};
    return trains ? lm->train(batch, {.dropout_seed = 1, .step = step}, params, *queue).value()
                  : lm->evaluate(batch, params, *queue).value();
  };
  EXPECT_EQ(loss_of(5.0, 1, false), loss_of(0.0, 1, false));
  EXPECT_NE(loss_of(5.0, 1, true), loss_of(0.0, 1, true));
  EXPECT_EQ(loss_of(5.0, 1, true), loss_of(5.0, 1, true));
  EXPECT_NE(loss_of(5.0, 1, true), loss_of(5.0, 2, true));
  double const small = std::abs(loss_of(0.01, 1, true) - loss_of(0.0, 1, true));
  EXPECT_LT(small, 0.01 * std::abs(loss_of(5.0, 1, true) - loss_of(0.0, 1, true)))
      << "the noise is proportional to alpha";
}

TEST(ModelOptions, SmoothLabelsChangeTrainingAndEvaluation) {
  auto const& c = gpt2_cases()[0];
  model::ModelOptions options(Dtype::fp32);
  options.label_smoothing = 0.1;
  auto const lm = model::make_model(c.config, options);
  ResidentParams params(lm->units(), Dtype::fp32, generator_weights());
  auto const queue = memory::make_inline_queue("compute");
  auto const tokens = c.tokens();
  model::Batch const batch{tokens.data(), c.rows, c.sequence};
  double const loss = lm->evaluate(batch, params, *queue).value();
  EXPECT_GT(std::abs(loss / static_cast<double>(c.predictions()) - c.loss), 1e-3);
  EXPECT_EQ(lm->train(batch, {}, params, *queue).value(), loss);
}

}  // namespace
}  // namespace tessera::test
