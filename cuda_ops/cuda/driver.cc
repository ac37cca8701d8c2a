#include "driver.h"

#include <dlfcn.h>

#include <stdexcept>

namespace onnxfuse::cuda {
namespace {

// CUdevice_attribute
constexpr int kMultiprocessorCount = 16;
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;
// CUstreamCaptureMode: calls that could disturb a capture in some thread are let through.
constexpr int kCaptureModeRelaxed = 2;
// cuLibraryLoadData and its kin came with CUDA 12.0.
constexpr int kOldestDriver = 12000;
// Graphs hold dependent launches from CUDA 12.3 on.
constexpr int kDependentLaunchDriver = 12030;
constexpr int kDependentLaunchArchitecture = 90;
// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
constexpr int kProgrammaticStreamSerialization = 6;
constexpr int kClusterDimension = 4;           // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
constexpr int kMaxDynamicSharedSizeBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// What a user can do about an error (CUresult), "" for nothing.
const char* advice(CudaResult result) {
  switch (result) {
    case 2:  // CUDA_ERROR_OUT_OF_MEMORY
      return ". The GPU has no memory left: end other processes on it, run smaller batches, or set the CUDA provider's "
             "option gpu_mem_limit so that its arena leaves some";
    case 100:  // CUDA_ERROR_NO_DEVICE
      return ". Is there an NVIDIA GPU, and does CUDA_VISIBLE_DEVICES show it? In a container: was it started with "
             "--gpus?";
    case 200:  // CUDA_ERROR_INVALID_IMAGE
    case 209:  // CUDA_ERROR_NO_BINARY_FOR_GPU
    case 218:  // CUDA_ERROR_INVALID_PTX
    case 222:  // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
      return ". The kernel is made for another GPU, or by an NVRTC that is newer than the driver: make it for this "
             "GPU's "
             "architecture (onnxfuse compile --arch), with an NVRTC of no later CUDA version than nvidia-smi shows";
    case 803:  // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
    case 804:  // CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
      return ". The driver in the kernel and libcuda are of different versions: restart after an update of the driver, "
             "and in a container keep its own CUDA compatibility libraries out of the way";
    default:
      return "";
  }
}

}  // namespace

// CUlaunchAttribute and CUlaunchConfig.
struct Driver::LaunchAttribute {
  int id = 0;
  char padding[4] = {};
  union {
    char bytes[64];
    int number;
    unsigned extents[3];
  } value = {};
};
struct Driver::LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  CudaStream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

const Driver* Driver::get(std::string* why) {
  struct Opened {
    Driver driver;
    std::string why;
    bool works = false;
    Opened() { works = driver.open(&why); }
  };
  static const Opened* const opened = new Opened;  // for the life of the process: kernels may run until its end
  if (!opened->works && why != nullptr) *why = opened->why;
  return opened->works ? &opened->driver : nullptr;
}

bool Driver::open(std::string* why) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *why =
        "the CUDA driver (libcuda.so.1) is not installed; it comes with NVIDIA's driver, and into a container with "
        "--gpus";
    return false;
  }
  if (!find(library, "cuInit", init_) || !find(library, "cuDriverGetVersion", driver_version_)) {
    *why = "libcuda.so.1 is not a CUDA driver";
    return false;
  }
  driver_version_(&version_);
  if (version_ < kOldestDriver) {
    *why = "the CUDA driver supports CUDA " + std::to_string(version_ / 1000) + "." +
           std::to_string(version_ % 1000 / 10) +
           "; onnxfuse needs one for CUDA 12.0 or later: update NVIDIA's driver to version 525 or later";
    return false;
  }
  const bool complete =
      find(library, "cuDeviceGetCount", device_get_count_) && find(library, "cuDeviceGet", device_get_) &&
      find(library, "cuDeviceGetAttribute", device_get_attribute_) &&
      find(library, "cuGetErrorString", get_error_string_) && find(library, "cuLibraryLoadData", library_load_data_) &&
      find(library, "cuLibraryUnload", library_unload_) && find(library, "cuLibraryGetKernel", library_get_kernel_) &&
      find(library, "cuLaunchKernel", launch_kernel_) && find(library, "cuMemsetD8Async", memset_async_) &&
      find(library, "cuMemcpyDtoDAsync_v2", memcpy_async_) &&
      find(library, "cuThreadExchangeStreamCaptureMode", exchange_capture_mode_) &&
      find(library, "cuKernelSetAttribute", kernel_set_attribute_) &&
      find(library, "cuOccupancyMaxActiveClusters", occupancy_clusters_);
  if (!complete) {
    *why = std::string("the CUDA driver lacks a function: ") + dlerror();
    return false;
  }
  // For dependent launches; older drivers lack the latter.
  find(library, "cuLaunchKernelEx", launch_kernel_ex_);
  find(library, "cuStreamGetCaptureInfo_v3", capture_info_);
  CudaResult result = init_(0);
  if (result == 0) result = device_get_count_(&device_count_);
  if (result != 0 || device_count_ == 0) {
    constexpr CudaResult kNoDevice = 100;
    *why = "the CUDA driver finds no GPU: " + describe(result != 0 ? result : kNoDevice);
    return false;
  }
  return true;
}

void Driver::check(CudaResult result, const char* what) const {
  if (result == 0) return;
  throw std::runtime_error(std::string("CUDA error in ") + what + ": " + describe(result));
}

std::string Driver::describe(CudaResult result) const {
  const char* text = nullptr;
  get_error_string_(result, &text);
  return std::string(text != nullptr ? text : "unknown") + " (" + std::to_string(result) + ")" + advice(result);
}

int Driver::attribute(int device, int which) const {
  int handle = 0, value = 0;
  check(device_get_(&handle, device), "cuDeviceGet");
  check(device_get_attribute_(&value, which, handle), "cuDeviceGetAttribute");
  return value;
}

int Driver::architecture(int device) const {
  return 10 * attribute(device, kComputeCapabilityMajor) + attribute(device, kComputeCapabilityMinor);
}

int Driver::multiprocessors(int device) const { return attribute(device, kMultiprocessorCount); }

CudaLibrary Driver::load(const void* image) const {
  int mode = kCaptureModeRelaxed;
  check(exchange_capture_mode_(&mode), "cuThreadExchangeStreamCaptureMode");
  CudaLibrary library = nullptr;
  const CudaResult result = library_load_data_(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  exchange_capture_mode_(&mode);
  check(result, "cuLibraryLoadData");
  return library;
}

CudaKernel Driver::kernel(CudaLibrary library, const char* name) const {
  CudaKernel kernel = nullptr;
  check(library_get_kernel_(&kernel, library, name), "cuLibraryGetKernel");
  return kernel;
}

bool Driver::dependent_launches(int architecture) const {
  return launch_kernel_ex_ != nullptr && capture_info_ != nullptr && version_ >= kDependentLaunchDriver &&
         architecture >= kDependentLaunchArchitecture;
}

Driver::Capture Driver::capture(CudaStream stream) const {
  constexpr int kActive = 1;  // CU_STREAM_CAPTURE_STATUS_ACTIVE
  Capture result;
  int status = 0;
  void* const* nodes = nullptr;
  const void* edges = nullptr;
  size_t count = 0;
  const bool known =
      capture_info_ != nullptr && capture_info_(stream, &status, &result.id, nullptr, &nodes, &edges, &count) == 0;
  result.active = !known || status == kActive;
  if (known && result.active && count == 1) result.last = nodes[0];
  return result;
}

void Driver::allow_shared(const Launch& what, int device) const {
  int handle = 0;
  check(device_get_(&handle, device), "cuDeviceGet");
  int mode = kCaptureModeRelaxed;  // this may be the first use of the kernel on the device
  check(exchange_capture_mode_(&mode), "cuThreadExchangeStreamCaptureMode");
  const CudaResult result =
      kernel_set_attribute_(kMaxDynamicSharedSizeBytes, static_cast<int>(what.shared_bytes), what.kernel, handle);
  exchange_capture_mode_(&mode);
  check(result, "cuKernelSetAttribute");
}

uint32_t Driver::resident_blocks(const Launch& what, uint32_t cluster, int device) const {
  int clusters = 0;
  LaunchAttribute dimension;
  dimension.id = kClusterDimension;
  for (const int axis : {0, 1, 2}) dimension.value.extents[axis] = axis == 0 ? cluster : 1;
  const LaunchConfig config = {what.grid_x, what.grid_y,       1,       what.threads, 1,
                               1,           what.shared_bytes, nullptr, &dimension,   1};
  allow_shared(what, device);
  int mode = kCaptureModeRelaxed;  // this may be the first use of the kernel on the device
  check(exchange_capture_mode_(&mode), "cuThreadExchangeStreamCaptureMode");
  const CudaResult result = occupancy_clusters_(&clusters, what.kernel, &config);
  exchange_capture_mode_(&mode);
  check(result, "cuOccupancyMaxActiveClusters");
  return static_cast<uint32_t>(clusters > 0 ? clusters : 1) * cluster;
}

void Driver::launch(const Launch& what, CudaStream stream, void* parameters, bool dependent) const {
  void* arguments[] = {parameters};
  if (!dependent) {
    check(launch_kernel_(what.kernel, what.grid_x, what.grid_y, 1, what.threads, 1, 1, what.shared_bytes, stream,
                         arguments, nullptr),
          "cuLaunchKernel");
    return;
  }
  LaunchAttribute serialization;
  serialization.id = kProgrammaticStreamSerialization;
  serialization.value.number = 1;
  const LaunchConfig config = {what.grid_x, what.grid_y,       1,      what.threads,   1,
                               1,           what.shared_bytes, stream, &serialization, 1};
  check(launch_kernel_ex_(&config, what.kernel, arguments, nullptr), "cuLaunchKernelEx");
}

void Driver::set_zero(void* memory, size_t bytes, CudaStream stream) const {
  check(memset_async_(reinterpret_cast<uint64_t>(memory), 0, bytes, stream), "cuMemsetD8Async");
}

void Driver::copy(void* to, const void* from, size_t bytes, CudaStream stream) const {
  check(memcpy_async_(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes, stream),
        "cuMemcpyDtoDAsync");
}

}  // namespace onnxfuse::cuda
