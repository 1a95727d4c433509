#pragma once
/// The ways a product can be computed on the host, and the choice among them. The choice depends on
/// the processor, the libraries and the problem only, never on a measurement, so that equal runs
/// round equally.

#include <cstddef>
#include <memory>

#include "gemm/gemm_problem.hpp"

namespace tessera::kernels::detail {

enum class GemmRoute {
  direct,  ///< fp32 operands and result: one library call
  panels,  ///< 8 or 16-bit operands: converted tile by tile to fp32, multiplied, rounded once
  native,  ///< the library multiplies bf16
};
enum class SgemmLibrary { onednn, cblas };

/// Whether this build and processor have it.
bool has_library(SgemmLibrary library);
bool has_native_bf16();

SgemmLibrary choose_library(int threads);
GemmRoute choose_route(GemmProblem const& p);

/// Bytes of workspace that @p threads threads need for the product where it goes by panels; 0 for
/// other routes. A program without oneDNN, which plans for one that has it, decides by the
/// processor.
std::size_t panel_bytes(GemmProblem const& p, int threads);

/// Computes products on the calling thread's OpenMP team. Workspaces are kept between calls.
class GemmEngine {
 public:
  GemmEngine();
  ~GemmEngine();
  GemmEngine(GemmEngine const&) = delete;
  GemmEngine& operator=(GemmEngine const&) = delete;

  void run(GemmProblem const& p);
  /// Runs a product on a named route, for tests and measurements. @pre the route exists on this
  /// machine and can do @p p
  void run(GemmProblem const& p, GemmRoute route, SgemmLibrary library);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::kernels::detail
