// The part of the CUDA driver that the engine uses, opened at run time. Types as in the driver's ABI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace onnxfuse::cuda {

using CudaResult = int;  // CUresult; 0 is success
using CudaStream = void*;
using CudaLibrary = void*;
using CudaKernel = void*;  // CUkernel: belongs to no context, and can be launched as a CUfunction

// The handle that stands for another stream in each thread.
inline const CudaStream kPerThreadStream = reinterpret_cast<CudaStream>(uintptr_t{2});

class Driver {
 public:
  // Opens libcuda and initializes it once; nullptr where it is missing or has no device, with the reason in why.
  static const Driver* get(std::string* why);

  int version() const { return version_; }  // 1000 * major + 10 * minor of the CUDA that it supports
  int device_count() const { return device_count_; }
  int architecture(int device) const;  // 10 * major + minor
  int multiprocessors(int device) const;

  // What a launch takes, besides the stream and the parameters.
  struct Launch {
    CudaKernel kernel = nullptr;
    uint32_t grid_x = 1, grid_y = 1, threads = 1;
    uint32_t shared_bytes = 0;  // beyond what the kernel declares
  };

  // Loads machine code (or PTX) for any device; legal while another thread captures a graph.
  CudaLibrary load(const void* image) const;
  void unload(CudaLibrary library) const { library_unload_(library); }
  CudaKernel kernel(CudaLibrary library, const char* name) const;
  // Whether launches may begin while the one before ends, also those in a captured graph.
  bool dependent_launches(int architecture) const;
  // What is being captured on a stream, and the last node of it there; nothing where dependent launches are not to be
  // had.
  struct Capture {
    bool active = false;
    uint64_t id = 0;
    const void* last = nullptr;  // where there is one alone
  };
  Capture capture(CudaStream stream) const;
  // Permits the kernel its shared memory on the device, without which it cannot be launched.
  void allow_shared(const Launch& what, int device) const;
  // dependent: the kernel may begin before those that the stream has before it are complete, and waits for them itself.
  void launch(const Launch& what, CudaStream stream, void* parameters, bool dependent) const;
  // How many blocks of the kernel, in clusters of that many, the current context's device has at a time. Permits the
  // kernel its shared memory there, without which it cannot be launched.
  uint32_t resident_blocks(const Launch& what, uint32_t cluster, int device) const;
  void set_zero(void* memory, size_t bytes, CudaStream stream) const;
  void copy(void* to, const void* from, size_t bytes, CudaStream stream) const;  // within the device

 private:
  Driver() = default;
  bool open(std::string* why);
  int attribute(int device, int which) const;
  void check(CudaResult result, const char* what) const;
  std::string describe(CudaResult result) const;  // with what to do about it

  int version_ = 0;
  int device_count_ = 0;

  CudaResult (*init_)(unsigned) = nullptr;
  CudaResult (*driver_version_)(int*) = nullptr;
  CudaResult (*device_get_count_)(int*) = nullptr;
  CudaResult (*device_get_)(int*, int) = nullptr;
  CudaResult (*device_get_attribute_)(int*, int, int) = nullptr;
  CudaResult (*get_error_string_)(CudaResult, const char**) = nullptr;
  CudaResult (*library_load_data_)(CudaLibrary*, const void*, int*, void**, unsigned, int*, void**, unsigned) = nullptr;
  CudaResult (*library_unload_)(CudaLibrary) = nullptr;
  CudaResult (*library_get_kernel_)(CudaKernel*, CudaLibrary, const char*) = nullptr;
  CudaResult (*launch_kernel_)(CudaKernel, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               CudaStream, void**, void**) = nullptr;
  CudaResult (*memset_async_)(uint64_t, unsigned char, size_t, CudaStream) = nullptr;
  CudaResult (*memcpy_async_)(uint64_t, uint64_t, size_t, CudaStream) = nullptr;
  CudaResult (*kernel_set_attribute_)(int, int, CudaKernel, int) = nullptr;
  struct LaunchAttribute;
  struct LaunchConfig;
  CudaResult (*launch_kernel_ex_)(const LaunchConfig*, CudaKernel, void**, void**) = nullptr;
  CudaResult (*occupancy_clusters_)(int*, CudaKernel, const LaunchConfig*) = nullptr;
  CudaResult (*capture_info_)(CudaStream, int*, uint64_t*, void**, void* const**, const void**, size_t*) = nullptr;
  CudaResult (*exchange_capture_mode_)(int*) = nullptr;
};

}  // namespace onnxfuse::cuda
