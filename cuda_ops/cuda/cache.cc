#include "cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "sha256.h"

namespace onnxfuse::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMagic = "onnxfuse kernel 1\n";

std::string header(const std::string& key, const std::vector<char>& payload) {
  return kMagic + key + "\n" + sha256(payload.data(), payload.size()) + "\n";
}

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

// What another user could have written would run on the GPU with this process's data.
bool is_private(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool write_all(int file, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(file, data, size);
    if (written <= 0) return false;
    data += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

DiskCache::DiskCache(const std::string& directory) : directory_(directory.empty() ? default_directory() : directory) {}

std::optional<std::vector<char>> DiskCache::load(const std::string& key) const {
  if (directory_.empty()) return std::nullopt;
  const std::string path = directory_ + "/" + key;
  if (!is_private(directory_) || !is_private(path)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::vector<char> content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t head = header(key, {}).size();
  if (!file || content.size() <= head) return std::nullopt;
  std::vector<char> payload(content.begin() + static_cast<std::ptrdiff_t>(head), content.end());
  if (header(key, payload) != std::string(content.data(), head)) return std::nullopt;
  return payload;
}

void DiskCache::store(const std::string& key, const std::vector<char>& payload) const {
  if (directory_.empty()) return;
  std::error_code ignored;
  const fs::path parent = fs::path(directory_).parent_path();
  if (!parent.empty()) fs::create_directories(parent, ignored);
  ::mkdir(directory_.c_str(), 0700);
  if (!is_private(directory_)) return;
  static std::atomic<unsigned> count{0};
  const std::string target = directory_ + "/" + key;
  const std::string draft = target + "." + std::to_string(::getpid()) + "." + std::to_string(count++);
  const int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return;
  const std::string head = header(key, payload);
  bool written = write_all(file, head.data(), head.size()) && write_all(file, payload.data(), payload.size());
  written = ::close(file) == 0 && written;
  if (!written || ::rename(draft.c_str(), target.c_str()) != 0) ::unlink(draft.c_str());
}

}  // namespace onnxfuse::cuda
