#include "nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <stdexcept>

namespace onnxfuse::cuda {
namespace {

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

const Nvrtc* Nvrtc::get(const std::string& path, int max_major, std::string* why) {
  static std::mutex mutex;
  static const Nvrtc* found = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  const char* const variable = std::getenv("ONNXFUSE_NVRTC");
  if ((!path.empty() ? path : variable != nullptr ? variable : "") == "none") {
    if (why != nullptr)
      *why = "NVRTC, which compiles kernels at run time, is switched off (onnxfuse.nvrtc_path, ONNXFUSE_NVRTC: none)";
    return nullptr;
  }
  if (found != nullptr) return found;
  std::vector<std::string> files;
  if (!path.empty()) files.push_back(path);
  if (variable != nullptr) files.push_back(variable);
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) files.push_back(name);
  std::string reasons;
  for (const std::string& file : files) {
    Nvrtc* candidate = new Nvrtc;  // kept for the life of the process where it works
    std::string reason;
    if (candidate->open(file, max_major, &reason)) return found = candidate;
    delete candidate;
    reasons += "\n  " + file + ": " + reason;
  }
  if (why != nullptr) {
    *why = "NVRTC, which compiles the fused kernels, was not found; install it with pip install \"onnxfuse[cuda]\"" +
           (max_major > 0 ? " (the driver supports CUDA " + std::to_string(max_major) + ")" : std::string()) +
           ", or name the file of libnvrtc in the environment variable ONNXFUSE_NVRTC. Tried:" + reasons;
  }
  return nullptr;
}

bool Nvrtc::open(const std::string& file, int max_major, std::string* why) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    *why = error != nullptr ? error : "cannot be opened";
    return false;
  }
  const bool complete =
      find(library, "nvrtcVersion", version_) && find(library, "nvrtcGetNumSupportedArchs", num_architectures_) &&
      find(library, "nvrtcGetSupportedArchs", supported_architectures_) &&
      find(library, "nvrtcCreateProgram", create_) && find(library, "nvrtcDestroyProgram", destroy_) &&
      find(library, "nvrtcCompileProgram", compile_) && find(library, "nvrtcGetCUBINSize", cubin_size_) &&
      find(library, "nvrtcGetCUBIN", cubin_) && find(library, "nvrtcGetPTXSize", ptx_size_) &&
      find(library, "nvrtcGetPTX", ptx_) && find(library, "nvrtcGetProgramLogSize", log_size_) &&
      find(library, "nvrtcGetProgramLog", log_);
  if (!complete) {
    *why = "is older than CUDA 11.2";
    dlclose(library);
    return false;
  }
  version_(&major_, &minor_);
  if (max_major > 0 && major_ > max_major) {
    *why = "is of CUDA " + version() + ", newer than the driver, which supports CUDA " + std::to_string(max_major);
    dlclose(library);
    return false;
  }
  int count = 0;
  num_architectures_(&count);
  architectures_.resize(static_cast<size_t>(count));
  if (count > 0) supported_architectures_(architectures_.data());
  return true;
}

bool Nvrtc::knows(int architecture) const {
  return std::find(architectures_.begin(), architectures_.end(), architecture) != architectures_.end();
}

std::vector<std::string> Nvrtc::common_options() {
  return {"--std=c++17", "--device-as-default-execution-space", "--disable-warnings"};
}

std::vector<std::string> Nvrtc::options(int architecture, bool verbose) const {
  std::string target = "sm_" + std::to_string(architecture);
  if (!knows(architecture)) {
    // A GPU newer than the compiler: the driver translates PTX for the nearest older architecture.
    int nearest = 0;
    for (const int known : architectures_) nearest = known < architecture ? std::max(nearest, known) : nearest;
    if (nearest == 0) {
      throw std::runtime_error("NVRTC " + version() + " compiles for no architecture up to sm_" +
                               std::to_string(architecture) + "; the GPU needs another version of it");
    }
    target = "compute_" + std::to_string(nearest);
  }
  std::vector<std::string> options = common_options();
  options.insert(options.begin(), "--gpu-architecture=" + target);
  // Without declarations that no kernel uses: 4 of 22 ms that an empty kernel takes, and the same machine code.
  if (major_ > 12 || (major_ == 12 && minor_ >= 4)) options.push_back("-minimal");
  if (verbose) options.push_back("--ptxas-options=-v");
  return options;
}

Nvrtc::Output Nvrtc::compile(const std::string& source, int architecture, bool verbose) const {
  const std::vector<std::string> list = options(architecture, verbose);
  std::vector<const char*> arguments;
  for (const std::string& option : list) arguments.push_back(option.c_str());
  Program program = nullptr;
  if (create_(&program, source.c_str(), "onnxfuse.cu", 0, nullptr, nullptr) != 0) {
    throw std::runtime_error("NVRTC cannot create a program");
  }
  const Result result = compile_(program, static_cast<int>(arguments.size()), arguments.data());
  Output output;
  size_t size = 0;
  if (log_size_(program, &size) == 0 && size > 1) {
    output.log.resize(size);
    log_(program, output.log.data());
    output.log.resize(size - 1);
  }
  if (result == 0) {
    const bool machine_code = knows(architecture);
    if ((machine_code ? cubin_size_ : ptx_size_)(program, &size) == 0) {
      output.image.resize(size);
      (machine_code ? cubin_ : ptx_)(program, output.image.data());
    }
  }
  destroy_(&program);
  if (result != 0 || output.image.empty()) {
    throw std::runtime_error("NVRTC " + version() + " failed (" + std::to_string(result) +
                             "): " + output.log.substr(0, 4000));
  }
  return output;
}

}  // namespace onnxfuse::cuda
