/// cuDNN's plans of Tessera's attention for GPUs that are only described: the real library chooses,
/// checks and compiles kernels as on such a GPU, and a stand-in for the driver takes them
/// (stand_in_driver.sh). Every case has plans of both passes, or is named in `portable`; the
/// workspace of its backward pass is what estimates count. No numbers are computed.
///   test.gpu.cudnn_plans [complete]    complete: every combination instead of some per GPU
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/attention_cudnn.hpp"
#include "attention/document_mask.hpp"
#include "tessera/core/text.hpp"
#include "tessera/kernels/launch/device_settings.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::kernels::detail {
namespace {

namespace fe = cudnn_frontend;

bool complete = false;

/// From "CUDA C++ Programming Guide", table of technical specifications per compute capability, and
/// data sheets. The frontend reads it as JSON.
struct Gpu {
  int architecture;
  char const* name;
  int multiprocessors, shared_kib, threads, blocks, cache_mib;
};
Gpu const gpus[] = {
    {80, "A100", 108, 164, 2048, 32, 40},   {86, "A40", 84, 100, 1536, 16, 6},
    {89, "L40S", 142, 100, 1536, 24, 96},   {90, "H100", 132, 228, 2048, 32, 50},
    {100, "B200", 148, 228, 2048, 32, 126}, {120, "RTX PRO 6000", 188, 100, 1536, 24, 128}};

std::shared_ptr<fe::DeviceProperties> properties_of(Gpu const& gpu) {
  int const shared = gpu.shared_kib * 1024;
  auto const text = concat(
      R"({"deviceVer":)", gpu.architecture * 10, R"(,"driverVer":13000,"deviceName":"NVIDIA )",
      gpu.name, R"(","cudaDeviceId":0,"pciDeviceId":9008,"maxGridSize":[2147483647,65535,65535],)",
      R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":)",
      gpu.multiprocessors, R"(,"smCountOrigin":0,"warpSize":32,"maxSharedMemoryPerBlock":49152,)",
      R"("maxSharedMemoryPerBlockOptin":)", shared - 1024, R"(,"oversizedSharedMemoryPerBlock":)",
      shared, R"(,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":)",
      gpu.blocks, R"(,"maxThreadsPerBlock":1024,"maxThreadsPerSM":)", gpu.threads,
      R"(,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":80000000000,)",
      R"("smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":)",
      gpu.cache_mib * 1024 * 1024, "}");
  auto out = std::make_shared<fe::DeviceProperties>();
  auto read = out->deserialize(std::vector<std::uint8_t>(text.begin(), text.end()));
  EXPECT_TRUE(read.is_good()) << read.get_message();
  return out;
}

struct Case {
  int head_dim;
  std::int64_t sequence;
  int heads, kv_heads;
  float dropout = 0.0f;
  bool deterministic = true;
  bool documents = false;

  AttentionConfig config() const {
    AttentionConfig out{Dtype::bf16, {2, sequence, heads, kv_heads, head_dim, 0.125f}, {}};
    out.drop.p = dropout;
    return out;
  }
  std::string text() const {
    return concat("heads of ", head_dim, ", T ", sequence, ", ", heads, "/", kv_heads,
                  " heads, dropout ", dropout, deterministic ? ", deterministic" : "",
                  documents ? ", documents" : "");
  }
};

/// What the portable kernel computes, and on which architectures.
struct Portable {
  char const* reason;
  std::function<bool(Case const&, int architecture)> holds;
};
std::vector<Portable> const portable{
    {"cuDNN has no deterministic backward pass with documents on data center Blackwell",
     [](Case const& c, int architecture) {
       return architecture == 100 && c.deterministic && c.documents;
     }},
    {"cuDNN has no backward pass of one token", [](Case const& c, int) { return c.sequence == 1; }},
    {"cuDNN has wide heads on Hopper only",
     [](Case const& c, int architecture) { return c.head_dim > 128 && architecture != 90; }},
    {"cuDNN has no deterministic backward pass with dropout on data center Blackwell",
     [](Case const& c, int architecture) {
       return architecture == 100 && c.deterministic && c.dropout > 0.0f;
     }},
};

/// A plan that cuDNN has built, or why it has none.
struct Built {
  std::string refusal;
  std::int64_t workspace_bytes = 0;
};
Built build(std::shared_ptr<fe::DeviceProperties> const& device, int architecture,
            std::function<void(fe::graph::Graph&)> const& add) {
  fe::graph::Graph graph;
  graph.set_device_properties(device);
  graph.set_sm_version(architecture);
  add(graph);
  auto done = graph.build({fe::HeurMode_t::A});
  Built out;
  if (done.is_bad())
    out.refusal = done.get_message() + " ";
  else
    EXPECT_TRUE(graph.get_workspace_size(out.workspace_bytes).is_good());
  return out;
}

/// What estimates count for a backward pass.
std::size_t planned_workspace(Case const& c, int major) {
  auto const config = c.config();
  auto const& s = config.shape;
  memory::PlanningQueue queue(memory::MemorySpace::device);
  memory::ArenaPlanning const without_memory;
  memory::Arena arena("planned", memory::Purpose::activations, memory::MemorySpace::device);
  std::int64_t const rows = s.batch * s.sequence, width = std::int64_t{s.heads} * s.head_dim;
  auto const heads = [&](int count) {
    std::int64_t const row = std::int64_t{count} * s.head_dim;
    return HeadsView{arena.allocate(config.dtype, {rows, row}).data(), row};
  };
  AttentionPlanning const planning(CudnnDevice{c.deterministic, major});
  AttentionGradients const to{heads(s.heads), heads(s.kv_heads), heads(s.kv_heads)};
  AttentionInput from{heads(s.heads), heads(s.kv_heads), heads(s.kv_heads)};
  if (c.documents) from.documents = arena.allocate(Dtype::int32, {s.batch, s.sequence});
  TensorView const out = arena.allocate(config.dtype, {rows, width});
  attention_backward(queue, config, to, from,
                     {out, out, arena.allocate(Dtype::fp32, {s.batch, s.heads, s.sequence})},
                     arena.allocate(Dtype::fp32, {attention_backward_workspace(queue, s)}));
  return planning.workspace_bytes();
}

void check(Gpu const& gpu, Case const& c) {
  SCOPED_TRACE(concat(gpu.name, ", ", c.text()));
  int const major = gpu.architecture / 10;
  auto const named = std::find_if(portable.begin(), portable.end(),
                                  [&](Portable const& p) { return p.holds(c, gpu.architecture); });
  std::vector<std::int32_t> const one_document(static_cast<std::size_t>(2 * c.sequence), 0);
  ConstTensorView documents;
  if (c.documents) documents = ConstTensorView(one_document.data(), Dtype::int32, {2, c.sequence});
  std::string const refusal = why_not_cudnn(c.config(), documents, {c.deterministic, major});
  // GPT-2's rows hold queries, keys and values; those of families with fewer keys are apart.
  std::int64_t const q = std::int64_t{c.heads} * c.head_dim,
                     kv = std::int64_t{c.kv_heads} * c.head_dim,
                     fused = c.heads == c.kv_heads ? q + 2 * kv : 0;
  auto const view = [&](std::int64_t own) { return HeadsView{nullptr, fused > 0 ? fused : own}; };
  FlashCall const call{c.config(), {view(q), view(kv), view(kv), documents}};
  FlashCall const part{cudnn_backward_part(c.config(), c.documents, {c.deterministic, major}),
                       call.in};
  AttentionGradients const gradients{view(q), view(kv), view(kv)};
  DeviceSettings settings;
  settings.deterministic = c.deterministic;
  set_device_settings(settings);
  auto const device = properties_of(gpu);
  Built const forward =
                  build(device, gpu.architecture, [&](auto&to) { add_cudnn_forward(to, call); }),
              backward = build(device, gpu.architecture,
                               [&](auto&to) { add_cudnn_backward(to, part, gradients); });
  set_device_settings({});

  bool const has_plans = forward.refusal.empty() && backward.refusal.empty();
  if (named != portable.end()) {
    EXPECT_FALSE(has_plans && refusal.empty())
        << "computed by cuDNN, and named as portable: " << named->reason;
    EXPECT_FALSE(has_plans) << "cuDNN could compute it; why_not_cudnn says " << refusal;
    return;
  }
  EXPECT_TRUE(has_plans) << forward.refusal << backward.refusal;
  EXPECT_EQ(refusal, "") << "cuDNN has plans";
  if (!has_plans) return;
  EXPECT_LT(forward.workspace_bytes, 4096);
  auto const planned = static_cast<std::int64_t>(planned_workspace(c, major)) -
                       (c.documents ? document_mask_bytes(part.config.shape) : 0);
  std::printf("%-14s %s: %.3f MB, planned %.3f MB\n", gpu.name, c.text().c_str(),
              static_cast<double>(backward.workspace_bytes) * 1e-6,
              static_cast<double>(planned) * 1e-6);
  EXPECT_LE(backward.workspace_bytes, planned + 1024);
  bool const upper_bound = major == 10 || c.sequence < 64;
  if (!upper_bound) EXPECT_GE(backward.workspace_bytes, planned - 1024);
}

/// Each GPU has GPT-2's shape, that of Llama with grouped keys, and what differs between GPUs.
std::vector<Case> const representative{{64, 1024, 12, 12},
                                       {128, 8192, 32, 8},
                                       {64, 1024, 12, 12, 0.1f},
                                       {256, 1024, 16, 8},
                                       {64, 1, 12, 12},
                                       {64, 1024, 12, 12, 0.0f, true, true},
                                       {64, 1024, 12, 12, 0.0f, false, true}};
/// These are built for two of the GPUs, to save time.
std::vector<Case> const once{{80, 17, 16, 16},
                             {96, 1000, 16, 4},
                             {128, 1000, 32, 8, 0.1f, false},
                             {64, 1024, 12, 12, 0.0f, false},
                             {80, 17, 16, 16, 0.0f, true, true},
                             {128, 8192, 32, 8, 0.0f, true, true}};

std::vector<Case> all_cases() {
  std::vector<Case> out;
  for (int const head_dim : {64, 80, 96, 128, 256})
    for (std::int64_t const sequence : {1, 17, 1000, 1024, 8192})
      for (int const kv_heads : {8, 2})
        for (float const dropout : {0.0f, 0.1f})
          for (bool const deterministic : {true, false}) {
            out.push_back({head_dim, sequence, 8, kv_heads, dropout, deterministic});
            if (dropout == 0.0f && sequence >= 1000)
              out.push_back({head_dim, sequence, 8, kv_heads, dropout, deterministic, true});
          }
  return out;
}

class CudnnPlans : public ::testing::TestWithParam<Gpu> {};

TEST_P(CudnnPlans, ExistOrThePortableKernelIsNamed) {
  for (auto const& c : complete ? all_cases() : representative) check(GetParam(), c);
  if (GetParam().architecture == 80 || GetParam().architecture == 90)
    for (auto const& c : once) check(GetParam(), c);
}
INSTANTIATE_TEST_SUITE_P(Gpus, CudnnPlans, ::testing::ValuesIn(gpus),
                         [](auto const& info) { return concat("sm_", info.param.architecture); });

}  // namespace
}  // namespace tessera::kernels::detail

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  tessera::kernels::detail::complete = argc > 1 && std::string_view(argv[1]) == "complete";
  auto const file = tessera::concat("libcudnn.so.", CUDNN_MAJOR);
  cudnn_frontend::cudnn_dlhandle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (cudnn_frontend::cudnn_dlhandle == nullptr)
    cudnn_frontend::cudnn_dlhandle =
        dlopen((TESSERA_CUDNN_LIBRARY_DIR "/" + file).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (cudnn_frontend::cudnn_dlhandle == nullptr) {
    std::printf("skipped: %s\n", dlerror());
    return 77;
  }
  auto const version = cudnn_frontend::detail::get_backend_version();
  std::printf("cuDNN %zu\n", version);
  if (version < 91100) {
    std::printf("skipped: cuDNN before 9.11 builds no plans from descriptions of devices\n");
    return 77;
  }
  return RUN_ALL_TESTS();
}
