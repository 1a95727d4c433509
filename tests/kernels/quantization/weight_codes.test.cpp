/// Codes of weights against those of bitsandbytes (tests/oracles/weight_codes.py), bit by bit.
#include "tessera/kernels/quantization/weight_codes.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/text.hpp"

namespace tessera::kernels::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes from_base64(std::string const& text) {
  std::string const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  Bytes out;
  std::uint32_t bits = 0;
  int count = 0;
  for (char const c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(digits.find(c));
    if ((count += 6) < 8) continue;
    count -= 8;
    out.push_back(static_cast<std::uint8_t>(bits >> count));
  }
  return out;
}

std::string checksum(void const* data, std::size_t bytes) {
  std::uint64_t h = 0xCBF29CE484222325u;
  for (std::size_t i = 0; i < bytes; ++i)
    h = (h ^ static_cast<unsigned char const*>(data)[i]) * 0x100000001B3u;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h));
  return text;
}

struct Case {
  std::string name;
  WeightCodes codes;
  bool bf16 = false;
  ConfigTree stored;

  std::vector<float> values() const {
    std::vector<float> out(static_cast<std::size_t>(codes.numel()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      float const unit = static_cast<float>(i * std::uint64_t{2654435761} % (1u << 24)) /
                             static_cast<float>(1 << 23) -
                         1.0f;
      auto const row = static_cast<std::int64_t>(i) / codes.columns;
      float const value = row == 1 ? 0.0f : unit * unit * unit * 0.0625f;
      out[i] = bf16 ? static_cast<float>(bfloat16(value)) : value;
    }
    return out;
  }
};
void PrintTo(Case const& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  std::vector<Case> out;
  auto const all = ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/weight_codes.json");
  for (auto const& entry : all.as_array()) {
    auto const& format = entry.at("format").as_string();
    Case c;
    c.codes = {.format = format == "int8"  ? WeightFormat::int8
                         : format == "nf4" ? WeightFormat::nf4
                                           : WeightFormat::nf4_double,
               .rows = entry.get_int("rows", 0),
               .columns = entry.get_int("columns", 0)};
    c.bf16 = entry.at("dtype").as_string() == "bfloat16";
    c.name = concat(format, "_", c.codes.rows, "x", c.codes.columns);
    c.stored = entry;
    out.push_back(c);
  }
  return out;
}

class StoredCodes : public ::testing::TestWithParam<Case> {
 protected:
  Bytes encoded(WeightCodes const& codes, std::vector<float> const& values) {
    Bytes out(static_cast<std::size_t>(codes.bytes()));
    encode_weights(codes, values.data(), out.data());
    return out;
  }
  std::vector<std::byte> decoded(WeightCodes const& codes, Bytes const& in, Dtype dtype) {
    std::vector<std::byte> out(static_cast<std::size_t>(codes.numel()) * size_of(dtype));
    decode_weights(*queue_, {out.data(), dtype, {codes.numel()}},
                   {in.data(), Dtype::uint8, {static_cast<std::int64_t>(in.size())}}, codes);
    return out;
  }
  std::unique_ptr<memory::Queue> queue_ = memory::make_inline_queue("compute");
};
INSTANTIATE_TEST_SUITE_P(Bitsandbytes, StoredCodes, ::testing::ValuesIn(cases()),
                         [](auto const& info) { return info.param.name; });

TEST_P(StoredCodes, AreThoseOfBitsandbytes) {
  auto const& c = GetParam();
  auto const stored = from_base64(c.stored.at("codes").as_string()),
             found = encoded(c.codes, c.values());
  ASSERT_EQ(found.size(), stored.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(int{found[i]}, int{stored[i]}) << i << " of " << c.codes.header_bytes() << " + ...";
}

TEST_P(StoredCodes, BecomeTheNumbersOfBitsandbytes) {
  auto const& c = GetParam();
  auto const stored = from_base64(c.stored.at("codes").as_string());
  for (auto const& [dtype, name] : {std::pair(Dtype::fp32, "fp32"), {Dtype::bf16, "bf16"}}) {
    auto const numbers = decoded(c.codes, stored, dtype);
    EXPECT_EQ(checksum(numbers.data(), numbers.size()), c.stored.at(name).as_string()) << name;
  }
}

/// Conv1D's matrices are transposed: the same codes, and numbers in the order of the values.
TEST_P(StoredCodes, OfTransposedValuesAreTheSame) {
  auto const& c = GetParam();
  auto const values = c.values();
  auto codes = c.codes;
  codes.transposed = true;
  auto transposed = values;
  auto const at = [&](std::int64_t row, std::int64_t column) {
    return static_cast<std::size_t>(row * codes.columns + column);
  };
  auto const at_transposed = [&](std::int64_t row, std::int64_t column) {
    return static_cast<std::size_t>(column * codes.rows + row);
  };
  for (std::int64_t r = 0; r < codes.rows; ++r)
    for (std::int64_t k = 0; k < codes.columns; ++k)
      transposed[at_transposed(r, k)] = values[at(r, k)];
  auto const stored = encoded(c.codes, values);
  ASSERT_EQ(encoded(codes, transposed), stored);
  auto const plain = decoded(c.codes, stored, Dtype::fp32),
             other = decoded(codes, stored, Dtype::fp32);
  auto const* const a = reinterpret_cast<float const*>(plain.data());
  auto const* const b = reinterpret_cast<float const*>(other.data());
  for (std::int64_t r = 0; r < codes.rows; ++r)
    for (std::int64_t k = 0; k < codes.columns; ++k)
      ASSERT_EQ(a[at(r, k)], b[at_transposed(r, k)]) << r << ", " << k;
}

}  // namespace
}  // namespace tessera::kernels::test
