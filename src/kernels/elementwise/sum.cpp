#include "tessera/kernels/elementwise/elementwise.hpp"

#include <algorithm>

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

/// One thread adds them, in their order.
struct AddInOrder {
  static constexpr std::size_t most = 16;  ///< addends of a launch
  double* sum;
  std::size_t count;
  double const* addends[most];
  KOKKOS_FUNCTION void operator()(std::int64_t) const {
    for (std::size_t i = 0; i < count; ++i) *sum += *addends[i];
  }
};

}  // namespace

void sum(memory::Queue& q, double* out, memory::ConstTensorView in) {
  detail::parallel_rows(q, "tessera::kernels::sum", 1, Sum{out, in.as<float>(), in.numel()});
}

void add_in_order(memory::Queue& q, double* sum, std::vector<double const*> const& addends) {
  for (std::size_t first = 0; first < addends.size(); first += AddInOrder::most) {
    AddInOrder rule{sum, std::min(AddInOrder::most, addends.size() - first), {}};
    std::copy_n(addends.begin() + static_cast<std::ptrdiff_t>(first), rule.count, rule.addends);
    detail::parallel_for(q, "tessera::kernels::add_in_order", 1, rule);
  }
}

}  // namespace tessera::kernels
