// The CUDA runtime API behind DeviceApi. Sections are those of the "CUDA Runtime API" reference
// manual, chapter 6 "Modules".
#include "detail/device_api.hpp"

#ifdef TESSERA_HAVE_CUDA
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda/cuda_faults.hpp"
#include "tessera/core/error.hpp"

namespace tessera::memory::detail {
namespace {

/// 6.3 "Error Handling". Any call may report an error of earlier work.
void check(cudaError_t status, char const* call) {
  if (status != cudaSuccess)
    throw_fault(static_cast<int>(status), call, cudaGetErrorName(status),
                cudaGetErrorString(status));
}
#define TESSERA_CUDA_CALL(call) check(call, #call)

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const noexcept { cudaGraphDestroy(graph); }
};

class CudaApi final : public DeviceApi {
 public:
  /// 6.1 "Device Management": cudaGetDeviceCount fails without a driver, with too old a driver, and
  /// without a device.
  DeviceSearch find() override {
    int count = 0;
    cudaError_t const status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count > 0) return {count, ""};
    cudaGetLastError();
    int driver = 0;
    cudaDriverGetVersion(&driver);
    cudaGetLastError();
    if (driver == 0) return {0, "this machine has no NVIDIA driver"};
    if (status == cudaErrorInsufficientDriver)
      return {0, concat("the driver is for CUDA ", driver / 1000, ".", driver % 1000 / 10,
                        ", older than this build's CUDA ", CUDART_VERSION / 1000, ".",
                        CUDART_VERSION % 1000 / 10)};
    return {0, concat("the driver reports no device: ", cudaGetErrorString(status),
                      "; check CUDA_VISIBLE_DEVICES and the devices allocated to the job")};
  }
  DeviceInfo describe(int ordinal) override {
    cudaDeviceProp properties{};
    TESSERA_CUDA_CALL(cudaGetDeviceProperties(&properties, ordinal));
    DeviceInfo info;
    info.ordinal = ordinal;
    info.name = properties.name;
    info.major = properties.major;
    info.minor = properties.minor;
    TESSERA_CUDA_CALL(cudaDriverGetVersion(&info.driver));
    TESSERA_CUDA_CALL(cudaRuntimeGetVersion(&info.runtime));
    char bus[32] = "";
    TESSERA_CUDA_CALL(cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal));
    info.bus = bus;
    static constexpr char digits[] = "0123456789abcdef";
    for (char const byte : properties.uuid.bytes)
      info.uuid += {digits[(byte >> 4) & 15], digits[byte & 15]};
    info.total_bytes = properties.totalGlobalMem;
    return info;
  }
  /// Checks first that the device can run the kernels of this build: Kokkos would abort.
  void use(int ordinal) override {
#ifdef TESSERA_CUDA_ARCHITECTURES
    require_architecture(describe(ordinal), TESSERA_CUDA_ARCHITECTURES);
#endif
    ordinal_ = ordinal;
    TESSERA_CUDA_CALL(cudaSetDevice(ordinal));
  }

  /// "Stream Ordered Memory Allocator". A device without pools gets cudaMalloc ("Memory
  /// Management"), whose cudaFree waits for the device.
  void* allocate(std::size_t bytes, Stream stream) override {
    set_current_device();
    void* data = nullptr;
    if (cudaMemPool_t const from = pool())
      return granted(cudaMallocFromPoolAsync(&data, bytes, from, static_cast<cudaStream_t>(stream)),
                     "cudaMallocFromPoolAsync")
                 ? data
                 : nullptr;
    return granted(cudaMalloc(&data, bytes), "cudaMalloc") ? data : nullptr;
  }
  void free(void* data, Stream stream) noexcept override {
    use_current_device();
    if (pool_)
      cudaFreeAsync(data, static_cast<cudaStream_t>(stream));
    else
      cudaFree(data);
  }
  void trim() override {
    if (pool_) TESSERA_CUDA_CALL(cudaMemPoolTrimTo(pool_, 0));
  }
  void* allocate_pinned(std::size_t bytes) override {
    set_current_device();
    void* data = nullptr;
    cudaError_t const status = cudaMallocHost(&data, bytes);
    bool const cannot_pin =
        status == cudaErrorNotSupported || status == cudaErrorHostMemoryAlreadyRegistered;
    if (cannot_pin) cudaGetLastError();
    return !cannot_pin && granted(status, "cudaMallocHost") ? data : nullptr;
  }
  void free_pinned(void* data) noexcept override {
    use_current_device();
    cudaFreeHost(data);
  }
  MemoryInfo memory_info() override {
    set_current_device();
    MemoryInfo out;
    TESSERA_CUDA_CALL(cudaMemGetInfo(&out.free_bytes, &out.total_bytes));
    if (!pool_) return out;
    std::uint64_t reserved = 0, used = 0;
    TESSERA_CUDA_CALL(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved));
    TESSERA_CUDA_CALL(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used));
    out.free_bytes += reserved - used;
    return out;
  }
  /// 6.11 "Unified Addressing".
  bool on_device(void const* data) override {
    set_current_device();
    cudaPointerAttributes attributes{};
    TESSERA_CUDA_CALL(cudaPointerGetAttributes(&attributes, data));
    return attributes.type == cudaMemoryTypeDevice;
  }

  /// 6.4 "Stream Management": non-blocking streams do not wait for the legacy default stream; lower
  /// numbers are higher priorities.
  Stream make_stream(StreamPriority priority) override {
    {
      std::lock_guard const lock(mutex_);
      auto& free = free_streams_[priority == StreamPriority::high];
      if (!free.empty()) {
        auto* const stream = free.back();
        free.pop_back();
        return stream;
      }
    }
    set_current_device();
    int lowest = 0, highest = 0;
    TESSERA_CUDA_CALL(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    cudaStream_t stream = nullptr;
    TESSERA_CUDA_CALL(cudaStreamCreateWithPriority(
        &stream, cudaStreamNonBlocking, priority == StreamPriority::high ? highest : lowest));
    std::lock_guard const lock(mutex_);
    priorities_[stream] = priority;
    return stream;
  }
  /// Streams are reused by later queues and never destroyed, because Kokkos execution spaces and
  /// library workspaces exist once per stream.
  void release_stream(Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    free_streams_[priorities_[stream] == StreamPriority::high].push_back(stream);
  }
  void wait(Stream stream, Event event) override {
    set_current_device();
    TESSERA_CUDA_CALL(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream),
                                          static_cast<cudaEvent_t>(event), cudaEventWaitDefault));
  }

  /// 6.5 "Event Management".
  Event make_event() override {
    set_current_device();
    cudaEvent_t event = nullptr;
    TESSERA_CUDA_CALL(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
  }
  void destroy_event(Event event) noexcept override {
    use_current_device();
    cudaEventDestroy(static_cast<cudaEvent_t>(event));
  }
  void record(Event event, Stream stream) override {
    set_current_device();
    TESSERA_CUDA_CALL(
        cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)));
  }
  bool happened(Event event) override {
    set_current_device();
    cudaError_t const status = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (status == cudaErrorNotReady) return false;
    check(status, "cudaEventQuery");
    return true;
  }

  void copy(Stream stream, void* to, void const* from, std::size_t bytes) override {
    set_current_device();
    TESSERA_CUDA_CALL(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)));
  }
  void copy_rows(Stream stream, StridedRows to, ConstStridedRows from, std::size_t bytes,
                 std::size_t rows) override {
    set_current_device();
    TESSERA_CUDA_CALL(cudaMemcpy2DAsync(to.data, to.stride, from.data, from.stride, bytes, rows,
                                        cudaMemcpyDefault, static_cast<cudaStream_t>(stream)));
  }
  /// Kokkos asks for errors of launches in debug builds only. The error may be one that an earlier
  /// call has left.
  void check_launch(char const* kernel) override {
    cudaError_t const status = cudaPeekAtLastError();
    if (status == cudaSuccess || status == cudaErrorNotReady) return;
    cudaGetLastError();
    std::string const launch = concat("launch of kernel ", kernel, " or an earlier call");
    check(status, launch.c_str());
  }
  /// 6.5 "Event Management": events with timing, which order between streams does without.
  StreamMark mark(Stream stream) override {
    set_current_device();
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    TESSERA_CUDA_CALL(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &capture));
    if (capture != cudaStreamCaptureStatusNone) return nullptr;
    cudaEvent_t event = nullptr;
    {
      std::lock_guard const lock(mutex_);
      if (!free_marks_.empty()) {
        event = static_cast<cudaEvent_t>(free_marks_.back());
        free_marks_.pop_back();
      }
    }
    if (!event) TESSERA_CUDA_CALL(cudaEventCreate(&event));
    TESSERA_CUDA_CALL(cudaEventRecord(event, static_cast<cudaStream_t>(stream)));
    return event;
  }
  double seconds_between(StreamMark begin, StreamMark end) override {
    float milliseconds = 0.0f;
    while (!happened(end)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    TESSERA_CUDA_CALL(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin),
                                           static_cast<cudaEvent_t>(end)));
    std::lock_guard const lock(mutex_);
    free_marks_.insert(free_marks_.end(), {begin, end});
    return 1e-3 * static_cast<double>(milliseconds);
  }
  void zero(Stream stream, void* data, std::size_t bytes) override {
    set_current_device();
    TESSERA_CUDA_CALL(cudaMemsetAsync(data, 0, bytes, static_cast<cudaStream_t>(stream)));
  }
  /// 6.22 "Execution Control", cudaLaunchHostFunc.
  void call_host(Stream stream, void (*function)(void*), void* argument) override {
    set_current_device();
    TESSERA_CUDA_CALL(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), function, argument));
  }

  /// 6.4 "Stream Management" (capture) and "Graph Management". Relaxed mode: calls of this
  /// thread on other streams are allowed.
  void begin_capture(Stream stream) override {
    TESSERA_CUDA_CALL(
        cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeRelaxed));
  }
  /// An update does not affect launches in flight, and a destroyed graph is freed after them.
  Captured launch_captured(Stream stream, Graph& graph) override {
    cudaGraph_t ended = nullptr;
    TESSERA_CUDA_CALL(cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &ended));
    std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph> const captured(ended);
    auto how = Captured::updated;
    cudaGraphExecUpdateResultInfo difference{};
    if (graph && cudaGraphExecUpdate(static_cast<cudaGraphExec_t>(graph), captured.get(),
                                     &difference) != cudaSuccess) {
      cudaGetLastError();
      destroy_graph(std::exchange(graph, nullptr));
    }
    if (!graph) {
      cudaGraphExec_t instance = nullptr;
      TESSERA_CUDA_CALL(cudaGraphInstantiate(&instance, captured.get(), 0));
      graph = instance;
      how = Captured::instantiated;
    }
    launch_graph(stream, graph);
    return how;
  }
  void launch_graph(Stream stream, Graph graph) override {
    TESSERA_CUDA_CALL(
        cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream)));
  }
  bool abandon_capture(Stream stream) noexcept override {
    cudaGraph_t captured = nullptr;
    std::size_t nodes = 1;
    if (cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &captured) == cudaSuccess &&
        captured) {
      if (cudaGraphGetNodes(captured, nullptr, &nodes) != cudaSuccess) nodes = 1;
      cudaGraphDestroy(captured);
    }
    cudaGetLastError();
    return nodes == 0;
  }
  void destroy_graph(Graph graph) noexcept override {
    use_current_device();
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
  }

 private:
  /// The current device is a property of each thread; without it CUDA would make a context on
  /// device 0.
  void set_current_device() {
    thread_local int current = -1;
    int const wanted = ordinal_;
    if (wanted < 0 || current == wanted) return;
    TESSERA_CUDA_CALL(cudaSetDevice(wanted));
    current = wanted;
  }
  /// Sets the current device for releases, which report no error and come from any thread.
  void use_current_device() noexcept {
    try {
      set_current_device();
    } catch (...) {
    }
  }
  /// A pool of this process that keeps freed memory for reuse. Made by the first allocation; null
  /// where the device does not support pools.
  cudaMemPool_t pool() {
    std::lock_guard const lock(mutex_);
    if (pool_ || pool_queried_) return pool_;
    pool_queried_ = true;
    int const device = std::max(ordinal_.load(), 0);
    int supported = 0;
    TESSERA_CUDA_CALL(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device));
    if (supported == 0) return nullptr;
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    cudaMemPool_t made = nullptr;
    TESSERA_CUDA_CALL(cudaMemPoolCreate(&made, &properties));
    std::uint64_t all = UINT64_MAX;
    TESSERA_CUDA_CALL(cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &all));
    return pool_ = made;
  }
  static bool granted(cudaError_t status, char const* call) {
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return false;
    }
    check(status, call);
    return true;
  }

  std::atomic<int> ordinal_{-1};
  std::mutex mutex_;
  std::map<Stream, StreamPriority> priorities_;
  std::vector<StreamMark> free_marks_;
  std::vector<Stream> free_streams_[2];  ///< free streams of normal and of high priority
  std::atomic<cudaMemPool_t> pool_{nullptr};
  bool pool_queried_ = false;
};

}  // namespace

DeviceApi* gpu_api() {
  static CudaApi& api = *new CudaApi;  // outlives every static owner of memory
  return &api;
}

int gpu_api_version() { return CUDART_VERSION; }

int gpu_multiprocessors(int ordinal) {
  int count = 0;
  TESSERA_CUDA_CALL(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, ordinal));
  return count;
}

}  // namespace tessera::memory::detail

#else

tessera::memory::detail::DeviceApi* tessera::memory::detail::gpu_api() { return nullptr; }
int tessera::memory::detail::gpu_api_version() { return 0; }
int tessera::memory::detail::gpu_multiprocessors(int) { return 0; }

#endif
