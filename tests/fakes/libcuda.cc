// Plays the CUDA driver for tests without one. The environment says how it behaves:
//   FAKE_CUDA_VERSION  1000 * major + 10 * minor (13000)     FAKE_CUDA_INIT     result of cuInit (0)
//   FAKE_CUDA_DEVICES  number of GPUs (1)                    FAKE_CUDA_LAUNCH   result of cuLaunchKernel (0)
//   FAKE_CUDA_ARCH     10 * major + minor (90)               FAKE_CUDA_LOAD     result of loading any image
//   FAKE_CUDA_LOADS_FAIL  number of loads that fail for want of memory before any succeeds (0)
//   FAKE_CUDA_COUNT    number of multiprocessors (132)
//   FAKE_CUDA_LOG      file that gets a line for each image loaded, with its checksum
//   FAKE_CUDA_CALLS    file that gets a line for each launch ("launch", or "dependent launch" if it may begin early)
//   and
//                      for memory that is set to 0 ("zeros")
//   FAKE_CUDA_CAPTURE  1: every stream captures a graph
// It loads what the fake NVRTC made, whole, and ELF files; anything else is an invalid image (200).
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

int setting(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

uint64_t checksum(const char* text) {
  uint64_t sum = 14695981039346656037u;
  for (; *text != 0; ++text) sum = (sum ^ static_cast<unsigned char>(*text)) * 1099511628211u;
  return sum;
}

void note(const char* call) {
  const char* const name = std::getenv("FAKE_CUDA_CALLS");
  std::FILE* const file = name != nullptr ? std::fopen(name, "a") : nullptr;
  if (file == nullptr) return;
  std::fprintf(file, "%s\n", call);
  std::fclose(file);
}

// "FAKE <checksum of the rest>\n<the rest>"
bool is_whole(const char* image) {
  unsigned long long sum = 0;
  int head = 0;
  return std::sscanf(image, "FAKE %llx\n%n", &sum, &head) == 1 && head > 0 && checksum(image + head) == sum;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return setting("FAKE_CUDA_INIT", 0); }
int cuDriverGetVersion(int* version) {
  *version = setting("FAKE_CUDA_VERSION", 13000);
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = setting("FAKE_CUDA_DEVICES", 1);
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDeviceGetAttribute(int* value, int which, int) {
  const int architecture = setting("FAKE_CUDA_ARCH", 90);
  *value = which == 75   ? architecture / 10
           : which == 76 ? architecture % 10
           : which == 16 ? setting("FAKE_CUDA_COUNT", 132)
                         : 0;
  return 0;
}
int cuGetErrorString(int result, const char** text) {
  *text = result == 2 ? "out of memory" : result == 209 ? "no kernel image is available" : "an error";
  return 0;
}
int cuLibraryLoadData(void** library, const void* image, int*, void**, unsigned, int*, void**, unsigned) {
  const char* const text = static_cast<const char*>(image);
  const int result = setting("FAKE_CUDA_LOAD", 0);
  if (result != 0) return result;
  static std::atomic<int> failures{setting("FAKE_CUDA_LOADS_FAIL", 0)};
  if (failures-- > 0) return 2;
  if (std::memcmp(text, "\177ELF", 4) != 0 && !is_whole(text)) return 200;
  if (const char* const log = std::getenv("FAKE_CUDA_LOG")) {
    if (std::FILE* const file = std::fopen(log, "a")) {
      std::fprintf(file, "%.16s\n", text[0] == 'F' ? text + 5 : "ELF");
      std::fclose(file);
    }
  }
  *library = reinterpret_cast<void*>(1);
  return 0;
}
int cuLibraryUnload(void*) { return 0; }
int cuLibraryGetKernel(void** kernel, void*, const char*) {
  *kernel = reinterpret_cast<void*>(2);
  return 0;
}
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**) {
  note("launch");
  return setting("FAKE_CUDA_LAUNCH", 0);
}
int cuLaunchKernelEx(const void*, void*, void**, void**) {
  note("dependent launch");
  return setting("FAKE_CUDA_LAUNCH", 0);
}
int cuStreamGetCaptureInfo_v3(void*, int* status, uint64_t* id, void**, void* const**, const void**, size_t* count) {
  *status = setting("FAKE_CUDA_CAPTURE", 0);
  *id = 1;
  *count = 0;
  return 0;
}
int cuKernelSetAttribute(int, int, void*, int) { return 0; }
int cuOccupancyMaxActiveClusters(int* clusters, void*, const void*) {
  *clusters = 15;
  return 0;
}
int cuMemsetD8Async(unsigned long long, unsigned char, size_t, void*) {
  note("zeros");
  return 0;
}
int cuMemcpyDtoDAsync_v2(unsigned long long, unsigned long long, size_t, void*) { return 0; }
int cuThreadExchangeStreamCaptureMode(int*) { return 0; }
}
