// NVIDIA's run-time compiler, opened at run time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onnxfuse::cuda {

class Nvrtc {
 public:
  // Opens, in this order: path, the file that the environment variable ONNXFUSE_NVRTC names, libnvrtc by name. The
  // first that works is kept for the process. max_major: the driver's major version, or 0 for any. nullptr where there
  // is none, with what to do about it in why, or where path is "none" (or empty and the variable is): nothing is to be
  // compiled.
  static const Nvrtc* get(const std::string& path, int max_major, std::string* why);

  struct Output {
    std::vector<char> image;  // machine code, or PTX where the compiler does not know the architecture
    std::string log;
  };
  // Throws std::runtime_error with the compiler's log.
  Output compile(const std::string& source, int architecture, bool verbose = false) const;

  // Of machine code that it makes, as 10 * major + minor.
  const std::vector<int>& architectures() const { return architectures_; }
  std::string version() const { return std::to_string(major_) + "." + std::to_string(minor_); }
  // The options that compile() gives, part of what a result depends on: those for every architecture, and all.
  static std::vector<std::string> common_options();
  std::vector<std::string> options(int architecture, bool verbose) const;

 private:
  Nvrtc() = default;
  bool open(const std::string& file, int max_major, std::string* why);
  bool knows(int architecture) const;

  using Program = void*;
  using Result = int;
  int major_ = 0, minor_ = 0;
  std::vector<int> architectures_;
  Result (*version_)(int*, int*) = nullptr;
  Result (*num_architectures_)(int*) = nullptr;
  Result (*supported_architectures_)(int*) = nullptr;
  Result (*create_)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  Result (*destroy_)(Program*) = nullptr;
  Result (*compile_)(Program, int, const char* const*) = nullptr;
  Result (*cubin_size_)(Program, size_t*) = nullptr;
  Result (*cubin_)(Program, char*) = nullptr;
  Result (*ptx_size_)(Program, size_t*) = nullptr;
  Result (*ptx_)(Program, char*) = nullptr;
  Result (*log_size_)(Program, size_t*) = nullptr;
  Result (*log_)(Program, char*) = nullptr;
};

}  // namespace onnxfuse::cuda
