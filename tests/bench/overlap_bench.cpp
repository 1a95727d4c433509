// Share of a training step's communication that its computation hides, on the host: one rank that
// behaves as one of RANKS, with a network that is simulated
// (tests/support/delayed_collectives.hpp). One JSON line; the device's is `bench.gpu overlap`.
//   bench.overlap LAYERS WIDTH HEADS ROWS LENGTH STAGE RANKS GB_PER_S [STEPS [LATENCY_US [NORM]]]
// NORM no-norm: without clipping and overflow check the update does not wait for the norm.
// "hidden_bound": what the order of a step lets hide, by the times of its units
// (tests/support/overlap_bound.hpp); null with no-norm, whose order is another.
#include <cstdio>
#include <cstdlib>

#include "overlap_measure.hpp"
#include "tessera/memory/runtime.hpp"

int main(int argc, char** argv) {
  using namespace tessera;
  if (argc < 9) {
    std::fprintf(stderr,
                 "bench.overlap LAYERS WIDTH HEADS ROWS LENGTH STAGE RANKS GB_PER_S "
                 "[STEPS [LATENCY_US [no-norm]]]\n");
    return 64;
  }
  memory::Runtime const runtime({0, -1});
  auto const compute = memory::make_inline_queue("compute");
  auto const number = [&](int i) { return std::atoll(argv[i]); };
  try {
    test::measure_overlap(
        {number(1), number(2), number(3), number(4), number(5), static_cast<int>(number(6)),
         static_cast<int>(number(7)), std::atof(argv[8]), argc > 9 ? std::atoi(argv[9]) : 4,
         argc > 10 ? 1e-6 * std::atof(argv[10]) : 20e-6, argc <= 11},
        *compute);
  } catch (Error const& error) {
    std::fprintf(stderr, "bench.overlap: %s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
