#include "kernel_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string_view>

#include "sha256.h"

namespace onnxfuse::cuda {
namespace {

constexpr const char* kMagic = "onnxfuse kernel 2\n";
constexpr const char* kDraft = ".draft-";     // the start of the name of a file that is not complete
constexpr time_t kAbandoned = 3600;           // seconds after which a draft's writer must have ended
constexpr off_t kLargest = off_t{256} << 20;  // no kernel is: reading it would only take time

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  bool close() {
    const int number = number_;
    number_ = -1;
    return ::close(number) == 0;
  }

 private:
  int number_;
};

// The checksum is over the other lines of the header as well.
std::string header(const std::string& key, const std::string& made, const char* image, size_t size) {
  const std::string lines = kMagic + key + "\n" + made + "\n";
  const std::string sums = sha256(lines.data(), lines.size()) + sha256(image, size);
  return lines + sha256(sums.data(), sums.size()) + "\n";
}

std::optional<KernelFile> decode(const std::string& key, const std::vector<char>& content) {
  const std::string start = kMagic + key + "\n";
  const std::string_view text(content.data(), content.size());
  if (text.substr(0, start.size()) != start) return std::nullopt;
  const size_t end = text.find('\n', start.size());
  if (end == std::string_view::npos) return std::nullopt;
  KernelFile kernel{std::string(text.substr(start.size(), end - start.size())), {}};
  const size_t head = header(key, kernel.made, nullptr, 0).size();
  if (content.size() <= head) return std::nullopt;
  if (text.substr(0, head) != header(key, kernel.made, content.data() + head, content.size() - head))
    return std::nullopt;
  kernel.image.assign(content.begin() + static_cast<std::ptrdiff_t>(head), content.end());
  return kernel;
}

void say(std::string* why, const std::string& reason) {
  if (why != nullptr) *why = reason;
}

// What is opened is looked at, not what its name stands for by then.
bool is_trusted(int descriptor, Trust trust, const std::string& what, std::string* why) {
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) {
    say(why, what + ": " + std::strerror(errno));
    return false;
  }
  const bool by_root = trust == Trust::administrator && info.st_uid == 0;
  if (info.st_uid != ::geteuid() && !by_root) {
    say(why, what + " belongs to another user");
    return false;
  }
  if ((info.st_mode & (trust == Trust::self ? S_IWGRP | S_IWOTH : S_IWOTH)) != 0) {
    say(why, what + " can be written by other users");
    return false;
  }
  return true;
}

int open_folder(const std::string& folder) { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

bool read_all(int file, std::vector<char>* content) {
  for (size_t at = 0; at < content->size();) {
    const ssize_t count = ::read(file, content->data() + at, content->size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += static_cast<size_t>(count);
  }
  return true;
}

bool write_all(int file, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t count = ::write(file, data, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    data += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

// What processes left behind that were killed while they wrote.
void remove_abandoned(int folder) {
  DIR* const list = ::fdopendir(::dup(folder));
  if (list == nullptr) return;
  while (const dirent* const entry = ::readdir(list)) {
    if (std::strncmp(entry->d_name, kDraft, std::strlen(kDraft)) != 0) continue;
    struct stat info = {};
    if (::fstatat(folder, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
        info.st_mtime + kAbandoned < ::time(nullptr)) {
      ::unlinkat(folder, entry->d_name, 0);
    }
  }
  ::closedir(list);
}

void make_folder(const std::string& folder, Trust trust) {
  std::error_code ignored;
  const std::filesystem::path parent = std::filesystem::path(folder).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, ignored);
  ::mkdir(folder.c_str(), trust == Trust::self ? 0700 : 0755);
}

}  // namespace

bool can_read_kernels(const std::string& folder, Trust trust, std::string* why) {
  const Descriptor directory(open_folder(folder));
  if (directory.get() < 0) {
    say(why, folder + ": " + std::strerror(errno));
    return false;
  }
  return is_trusted(directory.get(), trust, folder, why);
}

std::optional<KernelFile> read_kernel(const std::string& folder, const std::string& key, Trust trust,
                                      std::string* why) {
  const Descriptor directory(open_folder(folder));
  if (directory.get() < 0) {
    say(why, folder + ": " + std::strerror(errno));
    return std::nullopt;
  }
  if (!is_trusted(directory.get(), trust, folder, why)) return std::nullopt;
  // A FIFO must not hold this process up, and a link could lead anywhere.
  const Descriptor file(::openat(directory.get(), key.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  const std::string path = folder + "/" + key;
  if (file.get() < 0) {
    say(why, path + ": " + std::strerror(errno));
    return std::nullopt;
  }
  if (!is_trusted(file.get(), trust, path, why)) return std::nullopt;
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > kLargest) {
    say(why, path + " is no kernel");
    return std::nullopt;
  }
  std::vector<char> content(static_cast<size_t>(info.st_size));
  std::optional<KernelFile> kernel;
  if (read_all(file.get(), &content)) kernel = decode(key, content);
  if (!kernel) say(why, path + " is damaged: it is not what was written there");
  return kernel;
}

bool write_kernel(const std::string& folder, const std::string& key, const KernelFile& kernel, Trust trust,
                  std::string* why) {
  int opened = open_folder(folder);
  if (opened < 0) {
    make_folder(folder, trust);
    opened = open_folder(folder);
  }
  const Descriptor directory(opened);
  const auto failed = [&](const std::string& what) {
    say(why, what + ": " + std::strerror(errno));
    return false;
  };
  if (directory.get() < 0) return failed(folder);
  if (!is_trusted(directory.get(), trust, folder, why)) return false;
  static std::atomic<unsigned> count{0};
  const unsigned number = count++;
  if (number == 0) remove_abandoned(directory.get());
  const std::string draft = kDraft + key + "-" + std::to_string(::getpid()) + "-" + std::to_string(number);
  Descriptor file(::openat(directory.get(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                           trust == Trust::self ? 0600 : 0644));
  if (file.get() < 0) return failed(folder);
  const std::string head = header(key, kernel.made, kernel.image.data(), kernel.image.size());
  // Without fsync a crash of the machine may leave an empty file under the name: the checksum then tells.
  const bool written = write_all(file.get(), head.data(), head.size()) &&
                       write_all(file.get(), kernel.image.data(), kernel.image.size()) && file.close() &&
                       ::renameat(directory.get(), draft.c_str(), directory.get(), key.c_str()) == 0;
  if (written) return true;
  failed(folder + "/" + key);
  ::unlinkat(directory.get(), draft.c_str(), 0);
  return false;
}

}  // namespace onnxfuse::cuda
