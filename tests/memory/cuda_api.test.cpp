/// Graphs of the CUDA runtime behind DeviceApi, over functions of the runtime that count what lives
/// and fail where they are told to.
#include "detail/device_api.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "tessera/core/error.hpp"

namespace tessera::memory::detail {
namespace {

struct Runtime {
  std::set<void*> graphs, executables;
  int last = 0;
  std::size_t captured_nodes = 0;
  cudaError_t pinning = cudaSuccess, left = cudaSuccess;
  bool instantiate_fails = false, launch_fails = false, update_fails = false, count_fails = false;
};
Runtime& runtime() {
  static Runtime it;
  return it;
}
template <class T>
T made(std::set<void*>& all) {
  auto const handle = static_cast<std::uintptr_t>(++runtime().last);
  all.insert(reinterpret_cast<void*>(handle));
  return reinterpret_cast<T>(handle);
}
cudaError_t failing(bool fails) { return fails ? cudaErrorMemoryAllocation : cudaSuccess; }

}  // namespace
}  // namespace tessera::memory::detail

using tessera::memory::detail::failing;
using tessera::memory::detail::made;
using tessera::memory::detail::runtime;

extern "C" {
char const* cudaGetErrorName(cudaError_t) { return "name"; }
char const* cudaGetErrorString(cudaError_t) { return "text"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return runtime().left; }
cudaError_t cudaMallocHost(void** data, std::size_t) {
  *data = &runtime();
  return runtime().pinning;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return cudaSuccess; }
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = made<cudaGraph_t>(runtime().graphs);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  EXPECT_TRUE(runtime().graphs.contains(graph));
  if (!runtime().count_fails) *count = runtime().captured_nodes;
  return failing(runtime().count_fails);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  EXPECT_EQ(runtime().graphs.erase(graph), 1u);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t, unsigned long long) {
  if (!runtime().instantiate_fails) *executable = made<cudaGraphExec_t>(runtime().executables);
  return failing(runtime().instantiate_fails);
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t, cudaGraph_t, cudaGraphExecUpdateResultInfo*) {
  return failing(runtime().update_fails);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  EXPECT_TRUE(runtime().executables.contains(executable));
  return failing(runtime().launch_fails);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  EXPECT_EQ(runtime().executables.erase(executable), 1u);
  return cudaSuccess;
}
}

namespace tessera::memory::detail {
namespace {

class CudaGraphs : public ::testing::Test {
 protected:
  void SetUp() override { runtime() = {}; }
  void TearDown() override {
    if (graph_) gpu_api()->destroy_graph(graph_);
    EXPECT_EQ(runtime().graphs.size(), 0u);
    EXPECT_EQ(runtime().executables.size(), 0u);
  }
  void launch() {
    gpu_api()->begin_capture(nullptr);
    gpu_api()->launch_captured(nullptr, graph_);
  }
  DeviceApi::Graph graph_ = nullptr;
};

/// The caller then takes pageable memory.
TEST(CudaPinnedMemory, IsNullWhereTheSystemCannotPin) {
  runtime() = {};
  EXPECT_NE(gpu_api()->allocate_pinned(64), nullptr);
  for (auto const refusal :
       {cudaErrorMemoryAllocation, cudaErrorNotSupported, cudaErrorHostMemoryAlreadyRegistered}) {
    runtime().pinning = refusal;
    EXPECT_EQ(gpu_api()->allocate_pinned(64), nullptr) << refusal;
  }
  runtime().pinning = cudaErrorInvalidValue;
  EXPECT_THROW(gpu_api()->allocate_pinned(64), Error);
}

TEST(CudaLaunches, AnErrorMayBeOfAnEarlierCall) {
  runtime() = {};
  EXPECT_NO_THROW(gpu_api()->check_launch("adamw"));
  runtime().left = cudaErrorInvalidValue;
  try {
    gpu_api()->check_launch("adamw");
    ADD_FAILURE() << "nothing was thrown";
  } catch (Error const& error) {
    EXPECT_NE(std::string(error.what()).find("launch of kernel adamw or an earlier call"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(CudaGraphs, KeepOneExecutable) {
  launch();
  auto* const first = graph_;
  launch();
  EXPECT_EQ(graph_, first);
  runtime().update_fails = true;
  launch();
  EXPECT_NE(graph_, first);
  EXPECT_EQ(runtime().executables.size(), 1u);
}

TEST_F(CudaGraphs, ThatAreRefusedLeaveNothing) {
  runtime().instantiate_fails = true;
  EXPECT_THROW(launch(), Error);
  EXPECT_EQ(graph_, nullptr);
  EXPECT_EQ(runtime().graphs.size(), 0u);
}

TEST_F(CudaGraphs, ThatAreNotLaunchedLeaveTheExecutableOnly) {
  runtime().launch_fails = true;
  EXPECT_THROW(launch(), Error);
  EXPECT_EQ(runtime().graphs.size(), 0u);
  EXPECT_NE(graph_, nullptr);
}

TEST_F(CudaGraphs, OfAnAbandonedCaptureAreKnownToBeEmptyOrNot) {
  EXPECT_TRUE(gpu_api()->abandon_capture(nullptr));
  runtime().captured_nodes = 1;
  EXPECT_FALSE(gpu_api()->abandon_capture(nullptr));
  runtime().captured_nodes = 0;
  runtime().count_fails = true;
  EXPECT_FALSE(gpu_api()->abandon_capture(nullptr)) << "not known to be empty";
}

}  // namespace
}  // namespace tessera::memory::detail
