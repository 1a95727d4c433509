#include "tessera/kernels/gemm/gemm_headers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace tessera::kernels {
namespace {

/// "oneDNN 2.6.3" of "oneDNN 2.6.3 (AVX-512), bf16 native": name and version are those of a header.
TEST(GemmHeaders, NameTheLibraryInUse) {
  std::istringstream in(gemm_library());
  std::string name, version;
  in >> name >> version;
  EXPECT_THAT(gemm_libraries_of_headers(), testing::HasSubstr(name + " " + version));
}

}  // namespace
}  // namespace tessera::kernels
