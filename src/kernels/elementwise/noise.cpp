#include "tessera/kernels/elementwise/elementwise.hpp"

#include "elementwise/dropout.hpp"
#include "launch/convert.hpp"
#include "launch/launch.hpp"
#include "tessera/core/random.hpp"

namespace tessera::kernels {
namespace {

using detail::load;
using detail::store;

template <class T>
struct PlusNoise {
  T* data;
  Noise noise;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    Dropout const here = detail::placed(noise.numbers);
    float const uniform =
        Philox{here.seed, here.stream}.uniform(here.first_element + static_cast<std::uint64_t>(i));
    store(data[i], load(data[i]) + noise.magnitude * (2.0f * uniform - 1.0f));
  }
};

}  // namespace

void add_noise(Queue& q, TensorView data, Noise const& noise) {
  detail::with_type(data.dtype(), "add_noise", [&](auto tag) {
    using T = typename decltype(tag)::type;
    detail::parallel_for(q, "tessera::kernels::add_noise", data.numel(),
                         PlusNoise<T>{data.as<T>(), noise});
  });
}

}  // namespace tessera::kernels
