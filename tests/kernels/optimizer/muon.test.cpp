/// Its steps are compared with PyTorch's in tests/optim.
#include "tessera/kernels/optimizer/muon.hpp"

#include <cmath>

#include "update_case.hpp"

namespace tessera::kernels::test {
namespace {

TEST(Muon, BothTraversalsGiveTheSameBits) {
  tessera::test::FakeDevice device;
  auto const host = memory::make_inline_queue("compute");
  auto const stream = memory::make_stream_queue("compute");
  GradientControl const apply{0.5, 0}, skip{0.5, 1};
  for (std::int64_t const n : {1, 257, 5000})
    for (auto const* control : {&apply, &skip}) {
      MuonStep step;
      step.control = control;
      EXPECT_EQ(run_update(*host, muon_directions, step, 2, n),
                run_update(*stream, muon_directions, step, 2, n));
      EXPECT_EQ(run_update(*host, muon_update, step, 1, n),
                run_update(*stream, muon_update, step, 1, n));
    }
}

/// The singular values come near 1, so that X X^T comes near the identity.
TEST(Muon, DirectionsAreNearlyOrthogonal) {
  auto const q = memory::make_inline_queue("compute");
  for (auto const& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{4, 48}, {48, 4}}) {
    Floats x;
    Philox const random{3, 5};
    for (std::int64_t i = 0; i < rows * columns; ++i)
      x.push_back(random.uniform(static_cast<std::uint64_t>(i)) - 0.5f);
    Floats workspace(static_cast<std::size_t>(orthogonalize_workspace(rows, columns)));
    orthogonalize(*q, x.data(), rows, columns, workspace.data());
    bool const is_tall = rows > columns;
    double const scale = is_tall ? std::sqrt(static_cast<double>(rows) / columns) : 1.0;
    for (std::int64_t a = 0; a < 4; ++a)
      for (std::int64_t b = 0; b < 4; ++b) {
        double dot = 0.0;
        for (std::int64_t k = 0; k < 48; ++k)
          dot +=
              static_cast<double>(x[static_cast<std::size_t>(is_tall ? k * 4 + a : a * 48 + k)]) *
              x[static_cast<std::size_t>(is_tall ? k * 4 + b : b * 48 + k)];
        EXPECT_NEAR(dot / scale / scale, a == b ? 1.0 : 0.0, 0.5) << rows << " rows " << a << b;
      }
  }
}

}  // namespace
}  // namespace tessera::kernels::test
