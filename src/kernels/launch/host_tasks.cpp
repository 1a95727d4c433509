#include "launch/host_tasks.hpp"

#include <memory>
#include <utility>

#include "launch/launch.hpp"

#if defined(__ARM_FEATURE_SVE) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 14
#error "g++ before 14 reduces wrongly with SVE (docs/how-to/install.md); use TESSERA_ARCH=armv8.2-a"
#endif

namespace tessera::kernels::detail {
namespace {

/// Shared by the copies that Kokkos and a worker queue make.
struct Task {
  std::shared_ptr<std::function<void(std::int64_t)> const> function;
  void operator()(std::int64_t i) const { (*function)(i); }
};

}  // namespace

void launch_tasks(Queue& q, char const* name, std::int64_t n,
                  std::function<void(std::int64_t)> task) {
  launch_on_host(q, name, n,
                 Task{std::make_shared<std::function<void(std::int64_t)> const>(std::move(task))});
}

}  // namespace tessera::kernels::detail
