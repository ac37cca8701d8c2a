// Compiled kernels on disk, from one process to the next. Whatever is odd about the folder or a file in it is a miss,
// never an error.
#pragma once

#include <optional>
#include <string>

#include "kernel_file.h"

namespace onnxfuse::cuda {

class DiskCache {
 public:
  // directory: where empty, what the environment variable ONNXFUSE_CACHE_DIR names, else onnxfuse in $XDG_CACHE_HOME
  // or ~/.cache. Created for the user alone when the first kernel is stored.
  explicit DiskCache(const std::string& directory);

  // key: hexadecimal digits.
  std::optional<KernelFile> load(const std::string& key) const;
  // Whole or not at all.
  void store(const std::string& key, const KernelFile& kernel) const;
  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
};

}  // namespace onnxfuse::cuda
