#include "cache.h"

#include <cstdlib>

#include "kernel_file.h"

namespace onnxfuse::cuda {
namespace {

std::string default_directory() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string own = variable("ONNXFUSE_CACHE_DIR"); !own.empty()) return own;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/onnxfuse";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/onnxfuse";
  return "";
}

}  // namespace

DiskCache::DiskCache(const std::string& directory) : directory_(directory.empty() ? default_directory() : directory) {}

std::optional<KernelFile> DiskCache::load(const std::string& key) const {
  return directory_.empty() ? std::nullopt : read_kernel(directory_, key, Trust::self, nullptr);
}

void DiskCache::store(const std::string& key, const KernelFile& kernel) const {
  if (!directory_.empty()) write_kernel(directory_, key, kernel, Trust::self, nullptr);
}

}  // namespace onnxfuse::cuda
