#include "modules.h"

#include "workers.h"

namespace onnxfuse::cuda {
namespace {

Module build(const std::string& source, const std::vector<std::string>& functions, int architecture,
             const Driver& driver, const Images& images) {
  Module module;
  images.find(source, architecture, [&](const std::vector<char>& image) {
    module.clear();
    const CudaLibrary library = driver.load(image.data());
    for (const std::string& function : functions) module.push_back(driver.kernel(library, function.c_str()));
  });
  return module;
}

}  // namespace

Modules& Modules::shared() {
  static Modules* const modules = new Modules;
  return *modules;
}

std::shared_future<Module> Modules::start(const std::string& source, const std::vector<std::string>& functions,
                                          int architecture, const Driver& driver, const Images& images) {
  const std::string key = kernel_key(source, architecture);
  const auto promise = std::make_shared<std::promise<Module>>();
  std::shared_future<Module> future = promise->get_future().share();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [entry, added] = modules_.emplace(key, future);
    if (!added) return entry->second;
  }
  Workers::shared().add([=, &driver] {
    try {
      promise->set_value(build(source, functions, architecture, driver, images));
    } catch (...) {
      // Another session may have other folders: only what is there is kept.
      promise->set_exception(std::current_exception());
      const std::lock_guard<std::mutex> lock(mutex_);
      modules_.erase(key);
    }
  });
  return future;
}

}  // namespace onnxfuse::cuda
