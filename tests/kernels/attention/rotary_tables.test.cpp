#include "tessera/kernels/attention/rotary_tables.hpp"

#include <map>

#include "decoder_oracle.hpp"
#include "tessera/core/error.hpp"

namespace tessera::kernels::test {
namespace {

RotaryOptions options_of(ConfigTree const& stored) {
  std::map<std::string, RotaryScaling> const types = {{"default", RotaryScaling::none},
                                                      {"linear", RotaryScaling::linear},
                                                      {"dynamic", RotaryScaling::dynamic},
                                                      {"yarn", RotaryScaling::yarn},
                                                      {"llama3", RotaryScaling::llama3}};
  ConfigTree const& p = stored.at("parameters");
  RotaryOptions o;
  o.scaling = types.at(p.at("rope_type").as_string());
  o.rotary_dim = static_cast<int>(stored.at("rotary_dim").as_int());
  o.theta = p.at("rope_theta").as_double();
  o.factor = p.get_double("factor", o.factor);
  o.max_positions = stored.at("max_positions").as_int();
  o.original_max_positions = p.get_int("original_max_position_embeddings", 0);
  o.low_freq_factor = p.get_double("low_freq_factor", o.low_freq_factor);
  o.high_freq_factor = p.get_double("high_freq_factor", o.high_freq_factor);
  o.beta_fast = p.get_double("beta_fast", o.beta_fast);
  o.beta_slow = p.get_double("beta_slow", o.beta_slow);
  if (p.find("attention_factor")) o.attention_factor = p.at("attention_factor").as_double();
  o.mscale = p.get_double("mscale", 0.0);
  o.mscale_all_dim = p.get_double("mscale_all_dim", 0.0);
  o.truncate = p.get_bool("truncate", true);
  return o;
}

void expect_near(float value, double want, double error) {
  EXPECT_NEAR(static_cast<double>(value), want, error);
}

TEST(RotaryFrequencies, EqualTransformers) {
  auto const stored = decoder_oracle("rope");
  ASSERT_EQ(stored.size(), 11u);
  int different = 0, all = 0;
  for (auto const& c : stored.as_array()) {
    SCOPED_TRACE(c.at("parameters").dump());
    auto const f = rotary_frequencies(options_of(c), c.at("length").as_int());
    expect_near(f.attention_scaling, c.at("scaling").as_double(), 1e-7);
    Reals const want = reals(c.at("inverse"));
    ASSERT_EQ(f.inverse.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(f.inverse[i]), want[i], 2.5e-7 * want[i]) << i;
      different += f.inverse[i] != static_cast<float>(want[i]);
      ++all;
    }
  }
  EXPECT_LE(different * 10, all) << "most have the same bits";
}

TEST(RotaryTables, EqualTransformers) {
  auto const stored = decoder_oracle("rope");
  for (auto const& c : stored.as_array()) {
    SCOPED_TRACE(c.at("parameters").dump());
    auto const f = rotary_frequencies(options_of(c), c.at("length").as_int());
    Reals const cos = reals(c.at("cos")), sin = reals(c.at("sin")),
                inverse = reals(c.at("inverse"));
    std::size_t const half = f.inverse.size();
    std::size_t row = 0;
    for (auto const& position : c.at("positions").as_array()) {
      std::vector<float> x(half), y(half);
      rotary_tables(f, {position.as_int(), 1, Dtype::fp32}, x.data(), y.data());
      for (std::size_t i = 0; i < half; ++i) {
        // where the frequency has other bits, the angle is off by one rounding
        bool const same = f.inverse[i] == static_cast<float>(inverse[i]);
        double const error = same ? 2e-7 : 2e-7 + 2.5e-7 * position.as_double() * inverse[i];
        expect_near(x[i], cos[row * half + i], error);
        expect_near(y[i], sin[row * half + i], error);
      }
      ++row;
    }
  }
}

TEST(RotaryTables, OfARangeAreThoseOfItsPositions) {
  RotaryOptions o;
  o.rotary_dim = 6;
  auto const f = rotary_frequencies(o);
  std::vector<float> cos(3 * 10), sin(cos), one_cos(3), one_sin(3);
  rotary_tables(f, {5, 10, Dtype::fp32}, cos.data(), sin.data());
  for (std::int64_t p = 0; p < 10; ++p) {
    rotary_tables(f, {5 + p, 1, Dtype::fp32}, one_cos.data(), one_sin.data());
    for (std::int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(cos[static_cast<std::size_t>(3 * p + i)], one_cos[static_cast<std::size_t>(i)]);
      EXPECT_EQ(sin[static_cast<std::size_t>(3 * p + i)], one_sin[static_cast<std::size_t>(i)]);
    }
  }
}

TEST(RotaryTables, AreRoundedToTheDtypeOfTheHeads) {
  RotaryOptions o;
  o.rotary_dim = 8;
  auto const f = rotary_frequencies(o);
  std::vector<float> cos(4 * 9), sin(cos), exact_cos(cos), exact_sin(cos);
  rotary_tables(f, {0, 9, Dtype::fp32}, exact_cos.data(), exact_sin.data());
  rotary_tables(f, {0, 9, Dtype::bf16}, cos.data(), sin.data());
  for (std::size_t i = 0; i < cos.size(); ++i) {
    EXPECT_EQ(cos[i], static_cast<float>(bfloat16(exact_cos[i])));
    EXPECT_EQ(sin[i], static_cast<float>(bfloat16(exact_sin[i])));
  }
  rotary_tables(f, {0, 9, Dtype::fp16}, cos.data(), sin.data());
  for (std::size_t i = 0; i < cos.size(); ++i)
    EXPECT_EQ(cos[i], static_cast<float>(float16(exact_cos[i])));
}

/// The message of the refusal of @p o.
std::string refusal(RotaryOptions const& o) {
  try {
    rotary_frequencies(o);
  } catch (ConfigError const& error) {
    return error.what();
  }
  return "";
}

TEST(RotaryFrequencies, RefuseWhatHasNoMeaning) {
  RotaryOptions good;
  good.rotary_dim = 64;
  EXPECT_EQ(refusal(good), "");
  auto const with = [&](auto const& change) {
    RotaryOptions o = good;
    change(o);
    return refusal(o);
  };
  EXPECT_NE(with([](auto& o) { o.rotary_dim = 7; }).find("partial_rotary_factor"),
            std::string::npos);
  EXPECT_NE(with([](auto& o) { o.theta = 0.0; }).find("rope_theta"), std::string::npos);
  EXPECT_NE(with([](auto& o) {
              o.scaling = RotaryScaling::linear;
              o.factor = 0.0;
            }).find("factor"),
            std::string::npos);
  EXPECT_NE(with([](auto& o) {
              o.scaling = RotaryScaling::dynamic;
              o.factor = 2.0;
            }).find("max_position_embeddings"),
            std::string::npos);
  EXPECT_NE(with([](auto& o) {
              o.scaling = RotaryScaling::yarn;
              o.factor = 2.0;
            }).find("original_max_position_embeddings"),
            std::string::npos);
  EXPECT_NE(with([](auto& o) {
              o.scaling = RotaryScaling::llama3;
              o.factor = 8.0;
              o.original_max_positions = 8192;
              o.high_freq_factor = 1.0;
            }).find("high_freq_factor"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::kernels::test
