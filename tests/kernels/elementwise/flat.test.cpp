/// The flat kernels wherever their operands lie: between the borders of packs, at different places
/// between them, of any length, on the host and in the device's way (which a stream made of a host
/// thread takes too), with the bits of operands that begin at a border and nothing written outside.
#include "fake_device.hpp"
#include "flat_case.hpp"

namespace tessera::kernels::test {
namespace {

class FlatKernels : public ::testing::TestWithParam<Dtype> {
 protected:
  tessera::test::FakeDevice device;
  std::unique_ptr<Queue> host = memory::make_inline_queue("compute"),
                         stream = memory::make_stream_queue("compute");
};

TEST_P(FlatKernels, GiveTheSameBitsWhereverTheirOperandsLie) {
  for (auto const& kernel : flat_kernels(GetParam()))
    for (std::int64_t n : {1, 3, 4, 9, 31, 257, 1023, 1024, 1025, 3079}) {
      Array const expected = run_flat(*host, kernel, n, {});
      for (auto const& place : flat_places())
        for (Queue* const q : {host.get(), stream.get()}) {
          SCOPED_TRACE(kernel.name + ", " + std::to_string(n) + " elements at " +
                       std::to_string(place.out) + ", " + std::to_string(place.a) + ", " +
                       std::to_string(place.b) +
                       (q == host.get() ? " on the host" : " on a stream"));
          ASSERT_TRUE(run_flat(*q, kernel, n, place) == expected);
        }
    }
}

/// The host asks for operands of 1 MiB and more ahead, a few lines at a time.
TEST_P(FlatKernels, GiveOperandsBeyondTheCachesTheBitsOfAStream) {
  constexpr std::int64_t n = (1 << 19) + 37;
  for (auto const& kernel : flat_kernels(GetParam())) {
    if (kernel.name.find("dropout") != std::string::npos) continue;
    SCOPED_TRACE(kernel.name);
    ASSERT_TRUE(run_flat(*host, kernel, n, {}) == run_flat(*stream, kernel, n, {}));
  }
}

/// Operands of a large result: the same elements again and again.
class Repeated {
 public:
  Repeated(Array const& part, std::int64_t times)
      : part_bytes_(part.bytes().size()),
        dtype_(part.dtype()),
        numel_(part.numel() * times),
        in_("operand", memory::Purpose::workspace, part_bytes_ * static_cast<std::size_t>(times)),
        out_("result", memory::Purpose::workspace, in_.bytes() + 64) {
    for (std::size_t at = 0; at < in_.bytes(); at += part_bytes_)
      std::memcpy(static_cast<std::byte*>(in_.data()) + at, part.data(), part_bytes_);
  }
  TensorView in() const { return {in_.data(), dtype_, {numel_}}; }
  /// Begins @p shift bytes after a border of packs.
  TensorView out(std::size_t shift) const {
    return {static_cast<std::byte*>(out_.data()) + shift, dtype_, {numel_}};
  }
  bool repeats(TensorView values, Array const& part) const {
    for (std::size_t at = 0; at < in_.bytes(); at += part_bytes_)
      if (std::memcmp(static_cast<std::byte*>(values.data()) + at, part.data(), part_bytes_) != 0)
        return false;
    return true;
  }

 private:
  std::size_t part_bytes_;
  Dtype dtype_;
  std::int64_t numel_;
  memory::Buffer in_, out_;
};

/// The host writes large results past the caches.
TEST_P(FlatKernels, GiveLargeResultsTheBitsOfSmallOnes) {
  Dtype const t = GetParam();
  Array random(t, {100'003}), want(t, {100'003});
  random.randomize(11);
  Repeated const large(random, 168);
  ASSERT_GE(large.in().bytes(), std::size_t{32} << 20);
  for (auto const& kernel : flat_kernels(t)) {
    bool const reads_its_result =
        kernel.name.find("add ") == 0 || kernel.name == "scale" || kernel.name == "cap_logits";
    if (reads_its_result || kernel.a != t || kernel.name.find("dropout") != std::string::npos ||
        kernel.name.find("in place") != std::string::npos)
      continue;
    kernel.call(*host, want.view(), random.view(), random.view());
    for (std::size_t shift : {0, 4}) {
      kernel.call(*host, large.out(shift), large.in(), large.in());
      EXPECT_TRUE(large.repeats(large.out(shift), want)) << kernel.name << " at byte " << shift;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, FlatKernels, all_dtypes(), dtype_test_name);

}  // namespace
}  // namespace tessera::kernels::test
