/// The libraries that are loaded at the first need: there, with every function that is called, and loadable without a driver.
#include <gtest/gtest.h>

#include "detail/cublaslt_library.hpp"
#include "detail/gemm_cublaslt.hpp"

namespace tessera {
namespace {

TEST(LateLibraries, CublasLtIsThereAndOfTheHeadersVersion) {
  auto const& functions = kernels::detail::CublasLt::of_process();
  EXPECT_EQ(functions.cublasLtGetVersion() / 10000, static_cast<std::size_t>(CUBLAS_VER_MAJOR));
  EXPECT_EQ(kernels::detail::cublaslt_description().rfind("cuBLASLt ", 0), 0u);
}

TEST(LateLibraries, AMissingOneIsNamed) {
  SharedLibrary const missing({"libtessera-has-no-such-library.so.1", "/nowhere/libtessera.so"});
  EXPECT_FALSE(missing.loaded());
  EXPECT_NE(missing.refusal().find("libtessera-has-no-such-library.so.1"), std::string::npos) << missing.refusal();
  EXPECT_EQ(missing.find("anything"), nullptr);
}

}  // namespace
}  // namespace tessera
