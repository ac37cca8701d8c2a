// Where the machine code of a kernel comes from: a folder of kernels made ahead of time, the cache on disk, the
// compiler.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cache.h"
#include "nvrtc.h"

namespace onnxfuse::cuda {

// The name of a kernel in a folder of kernels made ahead of time: by source, options and architecture. Not by the
// version of the compiler, which the machine that runs the kernel need not have.
std::string kernel_key(const std::string& source, int architecture);

class Images {
 public:
  // compiler: nullptr where there is none, for the reason why_none. kernels_dir: "" where there is none.
  Images(const Nvrtc* compiler, std::string why_none, std::string kernels_dir, const std::string& cache_dir);

  enum class Origin { ahead, cache, compiler };
  // Hands the image of the source for a GPU to `use`, the next one where that throws std::runtime_error, and says where
  // the one came from that was good. Throws std::runtime_error saying what to do where none was.
  Origin find(const std::string& source, int architecture,
              const std::function<void(const std::vector<char>&)>& use) const;

  // False where find() is known to fail.
  bool has(const std::string& source, int architecture) const;

  // Equal for objects that find the same.
  std::string place() const;

 private:
  std::optional<KernelFile> find_ahead(const std::string& source, int architecture, std::string* why) const;

  const Nvrtc* compiler_;
  std::string why_none_, kernels_dir_;
  DiskCache cache_;
};

}  // namespace onnxfuse::cuda
