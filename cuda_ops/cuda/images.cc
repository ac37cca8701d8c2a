#include "images.h"

#include <stdexcept>
#include <utility>

#include "sha256.h"

namespace onnxfuse::cuda {
namespace {

std::string name_of(int architecture) { return "sm_" + std::to_string(architecture); }

// In the cache, results of different compilers lie next to each other.
std::string cache_key(const std::string& source, int architecture, const Nvrtc& compiler) {
  std::string text = "nvrtc " + compiler.version() + "\n";
  for (const std::string& option : compiler.options(architecture, false)) text += option + "\n";
  text += source;
  return sha256(text.data(), text.size());
}

}  // namespace

std::string kernel_key(const std::string& source, int architecture) {
  std::string text = name_of(architecture) + "\n";
  for (const std::string& option : Nvrtc::common_options()) text += option + "\n";
  text += source;
  return sha256(text.data(), text.size());
}

Images::Images(const Nvrtc* compiler, std::string why_none, std::string kernels_dir, const std::string& cache_dir)
    : compiler_(compiler), why_none_(std::move(why_none)), kernels_dir_(std::move(kernels_dir)), cache_(cache_dir) {}

// Machine code runs on every later GPU of the same major version too.
std::optional<KernelFile> Images::find_ahead(const std::string& source, int architecture, std::string* why) const {
  if (kernels_dir_.empty()) return std::nullopt;
  for (int made_for = architecture; made_for >= architecture / 10 * 10; --made_for) {
    std::string reason;
    auto kernel = read_kernel(kernels_dir_, kernel_key(source, made_for), Trust::administrator, &reason);
    if (kernel) return kernel;
    if (made_for == architecture) *why = reason;
  }
  return std::nullopt;
}

Images::Origin Images::find(const std::string& source, int architecture,
                            const std::function<void(const std::vector<char>&)>& use) const {
  std::string why;
  if (const auto ahead = find_ahead(source, architecture, &why)) {
    try {
      use(ahead->image);
      return Origin::ahead;
    } catch (const std::runtime_error& error) {
      why = "the kernel in " + kernels_dir_ + " that was made " + ahead->made + " does not load: " + error.what();
    }
  }
  if (compiler_ == nullptr) {
    throw std::runtime_error("no kernel for this node on a GPU of architecture " + name_of(architecture) + ": " +
                             (why.empty() ? "" : why + "; ") + why_none_ +
                             "\nEither make its kernels ahead of time, with the shapes that it meets: onnxfuse compile "
                             "MODEL --arch " +
                             name_of(architecture) +
                             " --dim NAME=N --output FOLDER, and name FOLDER in the session config entry "
                             "onnxfuse.kernels or the environment variable ONNXFUSE_KERNELS; or install NVRTC: pip "
                             "install \"onnxfuse[cuda]\"");
  }
  const std::string key = cache_key(source, architecture, *compiler_);
  if (const auto cached = cache_.load(key)) {
    try {
      use(cached->image);
      return Origin::cache;
    } catch (const std::runtime_error&) {
      // Compiled anew below.
    }
  }
  const std::vector<char> image = compiler_->compile(source, architecture).image;
  use(image);
  cache_.store(key, {"for " + name_of(architecture) + " by NVRTC " + compiler_->version(), image});
  return Origin::compiler;
}

bool Images::has(const std::string& source, int architecture) const {
  std::string ignored;
  return compiler_ != nullptr || find_ahead(source, architecture, &ignored).has_value();
}

std::string Images::place() const {
  return (compiler_ != nullptr ? "compiler\n" : "\n") + kernels_dir_ + "\n" + cache_.directory();
}

}  // namespace onnxfuse::cuda
