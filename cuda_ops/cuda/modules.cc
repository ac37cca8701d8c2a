#include "modules.h"

#include <chrono>
#include <stdexcept>
#include <utility>

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

void PendingModule::request(Urgency urgency) {
  if (begun_ != 0) return;
  if (urgency == Urgency::needed && first_ >= Urgency::possible) Workers::shared().prefer(first_);
  Workers::shared().add(urgency, [self = shared_from_this()] { self->make(); });
}

const Module& PendingModule::get() {
  const unsigned begun = begun_;
  if (begun == 0) {
    request(Urgency::needed);
  } else if (begun != 1 + Workers::process() &&
             future_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    throw std::runtime_error("the process was forked while it compiled a kernel: create sessions after the fork");
  }
  return future_.get();
}

// By whoever comes first: it may have been requested several times.
void PendingModule::make() {
  unsigned not_begun = 0;
  if (!begun_.compare_exchange_strong(not_begun, 1 + Workers::process())) return;
  const std::function<Module()> make = std::exchange(make_, nullptr);
  try {
    promise_.set_value(make());
  } catch (...) {
    promise_.set_exception(std::current_exception());
  }
}

Modules& Modules::shared() {
  static Modules* const modules = new Modules;
  return *modules;
}

std::shared_ptr<PendingModule> Modules::start(const std::string& source, const std::vector<std::string>& functions,
                                              int architecture, const Driver& driver, const Images& images,
                                              Urgency urgency) {
  const std::string key = kernel_key(source, architecture) + images.place();
  std::shared_ptr<PendingModule> module;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<PendingModule>& entry = modules_[key];
    if (!entry) {
      const auto make = [=, &driver] {
        try {
          return build(source, functions, architecture, driver, images);
        } catch (...) {
          // What went wrong may be mended by the next time.
          const std::lock_guard<std::mutex> own(mutex_);
          modules_.erase(key);
          throw;
        }
      };
      entry = std::make_shared<PendingModule>(make, urgency);
    }
    module = entry;
  }
  module->request(urgency);
  return module;
}

}  // namespace onnxfuse::cuda
