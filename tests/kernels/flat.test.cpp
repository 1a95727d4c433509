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

INSTANTIATE_TEST_SUITE_P(Dtypes, FlatKernels, all_dtypes(), dtype_test_name);

}  // namespace
}  // namespace tessera::kernels::test
