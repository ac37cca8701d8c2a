#include "modules.h"

#include "sha256.h"
#include "workers.h"

namespace onnxfuse::cuda {
namespace {

std::string make_key(const std::string& source, int architecture, const Nvrtc& compiler) {
  std::string text = "nvrtc " + compiler.version() + "\n";
  for (const std::string& option : compiler.options(architecture, false)) text += option + "\n";
  text += source;
  return sha256(text.data(), text.size());
}

Module build(const std::string& key, const std::string& source, const std::vector<std::string>& functions,
             int architecture, const Driver& driver, const Nvrtc& compiler, const DiskCache& cache) {
  const auto load = [&](const std::vector<char>& image) {
    Module module;
    const CudaLibrary library = driver.load(image.data());
    for (const std::string& function : functions) module.push_back(driver.kernel(library, function.c_str()));
    return module;
  };
  if (const auto cached = cache.load(key)) {
    try {
      return load(*cached);
    } catch (const std::runtime_error&) {
      // Compiled anew below.
    }
  }
  const std::vector<char> image = compiler.compile(source, architecture).image;
  Module module = load(image);
  cache.store(key, image);
  return module;
}

}  // namespace

Modules& Modules::shared() {
  static Modules* const modules = new Modules;
  return *modules;
}

std::shared_future<Module> Modules::start(const std::string& source, const std::vector<std::string>& functions,
                                          int architecture, const Driver& driver, const Nvrtc& compiler,
                                          const DiskCache& cache) {
  const std::string key = make_key(source, architecture, compiler);
  const auto promise = std::make_shared<std::promise<Module>>();
  std::shared_future<Module> future = promise->get_future().share();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [entry, added] = modules_.emplace(key, future);
    if (!added) return entry->second;
  }
  Workers::shared().add([=, &driver, &compiler] {
    try {
      promise->set_value(build(key, source, functions, architecture, driver, compiler, cache));
    } catch (...) {
      promise->set_exception(std::current_exception());
      const std::lock_guard<std::mutex> lock(mutex_);
      modules_.erase(key);
    }
  });
  return future;
}

}  // namespace onnxfuse::cuda
