#include "tessera/kernels/elementwise/elementwise.hpp"

#include "launch/launch.hpp"

namespace tessera::kernels {
namespace {

struct Sum {
  double* out;
  float const* in;
  std::int64_t numel;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t) const {
    double part = 0.0;
    for (std::int64_t i = team.rank(); i < numel; i += team.size())
      part += static_cast<double>(in[i]);
    double const total = team.sum(part);
    if (team.rank() == 0) *out = total;
  }
};

}  // namespace

void sum(memory::Queue& q, double* out, memory::ConstTensorView in) {
  detail::parallel_rows(q, "tessera::kernels::sum", 1, Sum{out, in.as<float>(), in.numel()});
}

}  // namespace tessera::kernels
