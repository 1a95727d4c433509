#pragma once
/// What computed: the libraries and kernels that this process has really used. Settings and builds
/// say what may be used; a shape that a library refuses takes another way.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::kernels {

struct UsedRoute {
  std::string computation;  ///< "attention", "attention backward", "products" or "gelu"
  std::string route;        ///< "cuDNN", "portable kernel", "oneDNN fp32"
  std::int64_t calls = 0;

  bool operator==(UsedRoute const&) const = default;
};

/// Since the last reset, by computation, the most used route first.
std::vector<UsedRoute> used_routes();
void reset_used_routes();
/// "attention cuDNN; products cuBLASLt (96), cuBLASLt after a bias (4)": calls where there are
/// several routes.
std::string used_routes_text();

}  // namespace tessera::kernels
