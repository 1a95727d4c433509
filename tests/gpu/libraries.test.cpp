/// The libraries that are loaded at the first need: there, with every function that is called, and
/// loadable without a driver.
#include <gtest/gtest.h>

#include "detail/device_api.hpp"
#include "gemm/cublaslt_library.hpp"
#include "gemm/gemm_libraries.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
namespace {

/// The runtime remembers an error until somebody asks, here that of a device that does not exist,
/// or of a machine without a driver.
TEST(Launches, AnErrorOfTheDeviceNamesTheKernel) {
  auto& cuda = *memory::detail::gpu_api();
  EXPECT_THROW(cuda.use(1000), Error);
  try {
    cuda.check_launch("tessera.kernel");
    FAIL() << "no error";
  } catch (Error const& error) {
    EXPECT_NE(std::string(error.what()).find("launch of kernel tessera.kernel"), std::string::npos)
        << error.what();
  }
  if (cuda.find().count > 0) {  // without a driver every call has this error
    EXPECT_NO_THROW(cuda.check_launch("tessera.next"));
  }
}

TEST(LateLibraries, CublasLtIsThereAndOfTheHeadersVersion) {
  auto const& functions = kernels::detail::CublasLt::of_process();
  EXPECT_EQ(functions.cublasLtGetVersion() / 10000, static_cast<std::size_t>(CUBLAS_VER_MAJOR));
  EXPECT_EQ(kernels::detail::cublaslt_description().rfind("cuBLASLt ", 0), 0u);
}

/// Descriptions need no device: NVIDIA's library knows every attribute that products set, in these
/// sizes, and refuses others.
TEST(LateLibraries, CublasLtTakesTheDescriptionOfEveryProduct) {
  auto const& lt = kernels::detail::CublasLt::of_process();
  cublasLtMatmulDesc_t product = nullptr;
  ASSERT_EQ(lt.cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F),
            CUBLAS_STATUS_SUCCESS);
  auto const set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    return lt.cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value);
  };
  for (auto op : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_TRANSA, op), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_TRANSB, op), CUBLAS_STATUS_SUCCESS);
  }
  for (auto epilogue :
       {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX,
        CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU})
    EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue), CUBLAS_STATUS_SUCCESS) << epilogue;
  EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void const*>(&product)),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, CUDA_R_16BF), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{3072}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(&product)),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int32_t{3072}),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(lt.cublasLtMatmulDescDestroy(product), CUBLAS_STATUS_SUCCESS);

  cublasLtMatmulPreference_t preference = nullptr;
  ASSERT_EQ(lt.cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
  auto const prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return lt.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
  };
  EXPECT_EQ(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{1} << 25),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}),
            CUBLAS_STATUS_SUCCESS);
  for (auto operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    EXPECT_EQ(prefer(operand, std::uint32_t{2}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(lt.cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);

  cublasLtMatrixLayout_t layout = nullptr;
  ASSERT_EQ(lt.cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, 50257, 1024, 50264),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(lt.cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
}

TEST(LateLibraries, AMissingOneIsNamed) {
  SharedLibrary const missing({"libtessera-has-no-such-library.so.1", "/nowhere/libtessera.so"});
  EXPECT_FALSE(missing.loaded());
  EXPECT_NE(missing.load_error().find("libtessera-has-no-such-library.so.1"), std::string::npos)
      << missing.load_error();
  EXPECT_EQ(missing.find("anything"), nullptr);
}

}  // namespace
}  // namespace tessera
