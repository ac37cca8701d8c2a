// The library's one entry point: ONNX Runtime calls it for each session that asks for the library.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "custom_op.h"

namespace onnxfuse {
namespace {

struct OpType {
  const char* name;
  First first = First::nothing;
  InPlace in_place = InPlace::never;
};
constexpr OpType kOpTypes[] = {
    {"FusedElementwise", First::nothing, InPlace::first},
    {"FusedOutOfPlace"},
    {"FusedLayerNorm"},
    {"FusedRMSNorm"},
    {"FusedSoftmax"},
    {"FusedReduction"},
    {"FusedScan"},
    {"FusedRuntimeAxes", First::axes},
};

std::string session_config(const Api& api, const OrtSessionOptions* options, const char* key) {
  int present = 0;
  api.check(api.HasSessionConfigEntry(options, key, &present));
  if (present == 0) return "";
  size_t size = 0;
  api.check(api.GetSessionConfigEntry(options, key, nullptr, &size));
  std::string value(size, '\0');
  api.check(api.GetSessionConfigEntry(options, key, value.data(), &size));
  value.resize(size > 0 ? size - 1 : 0);
  return value;
}

std::string setting(const Api& api, const OrtSessionOptions* options, const char* key, const char* variable) {
  const std::string value = session_config(api, options, key);
  const char* fallback = std::getenv(variable);
  return !value.empty() || fallback == nullptr ? value : fallback;
}

LaunchMode launch_mode(const std::string& name) {
  if (name.empty() || name == "automatic") return LaunchMode::automatic;
  if (name == "plain") return LaunchMode::plain;
  if (name == "dependent") return LaunchMode::dependent;
  if (name == "horizontal") return LaunchMode::horizontal;
  if (name == "persistent") return LaunchMode::persistent;
  throw std::runtime_error("onnxfuse.launches is '" + name +
                           "'; it must be automatic, plain, dependent, horizontal or persistent");
}

#ifdef ONNXFUSE_CUDA
// Whether this build of ONNX Runtime has the CUDA provider; if not, nothing of CUDA is opened.
bool has_cuda_provider(const Api& api) {
  char** names = nullptr;
  int count = 0;
  api.check(api.GetAvailableProviders(&names, &count));
  const bool found =
      std::any_of(names, names + count, [](const char* name) { return name == std::string_view(kCudaProvider); });
  if (OrtStatus* status = api.ReleaseAvailableProviders(names, count)) api.ReleaseStatus(status);
  return found;
}
#endif

// The ops of one ONNX Runtime and one set of options. ONNX Runtime keeps pointers to them: they live for good.
class Domain {
 public:
  Domain(const Api& api, const CudaOptions& options) {
    api.check(api.CreateCustomOpDomain("onnxfuse", &domain_));
    add(api, Provider::cpu, options);
#ifdef ONNXFUSE_CUDA
    std::string why;
    if (!has_cuda_provider(api)) return;
    if (cuda_available(options, &why)) {
      add(api, Provider::cuda, options);
    } else {
      // Not an error: the nodes run on the CPU. ONNX Runtime has no logger for a library at this point.
      std::fprintf(stderr, "onnxfuse: fused nodes will not run on the GPU: %s\n", why.c_str());
    }
#endif
  }
  OrtCustomOpDomain* get() const { return domain_; }

 private:
  void add(const Api& api, Provider provider, const CudaOptions& options) {
    for (const OpType& type : kOpTypes) {
      ops_.push_back(std::make_unique<FusedOp>(api, type.name, type.first, type.in_place, provider, options));
      api.check(api.CustomOpDomain_Add(domain_, ops_.back().get()));
    }
  }

  OrtCustomOpDomain* domain_ = nullptr;
  std::vector<std::unique_ptr<FusedOp>> ops_;
};

// A process may hold more than one ONNX Runtime; each has its own table.
struct Registry {
  std::mutex mutex;
  std::map<const OrtApi*, std::unique_ptr<const Api>> apis;
  std::map<std::tuple<const OrtApi*, std::string, std::string, std::string, LaunchMode>, std::unique_ptr<Domain>>
      domains;
};

Registry& registry() {
  static Registry* const instance = new Registry;  // never destroyed: sessions may outlive static objects
  return *instance;
}

// The table of the newer version, or null. ONNX Runtime complains aloud of a version that it does not know.
const OrtApi* newer_table(const OrtApiBase* base) {
  const char* const point = std::strchr(base->GetVersionString(), '.');
  const bool known = point != nullptr && std::strtoul(point + 1, nullptr, 10) >= kNewerOrtApiVersion;
  return known ? base->GetApi(kNewerOrtApiVersion) : nullptr;
}

const Api& api_of(const OrtApi* table, const OrtApiBase* base) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  std::unique_ptr<const Api>& api = registry().apis[table];
  if (!api) api = std::make_unique<const Api>(table, newer_table(base));
  return *api;
}

OrtCustomOpDomain* domain_of(const OrtApi* table, const Api& api, const CudaOptions& options) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  std::unique_ptr<Domain>& domain =
      registry().domains[{table, options.nvrtc_path, options.cache_dir, options.kernels_dir, options.launches}];
  if (!domain) domain = std::make_unique<Domain>(api, options);
  return domain->get();
}

// Before ONNX Runtime 1.18 the table asked for is not there, but the functions for making a status always were.
OrtStatus* too_old(const OrtApiBase* base) {
  const OrtApi* oldest = base->GetApi(1);
  if (oldest == nullptr) return nullptr;
  using CreateStatus = OrtStatus* (*)(OrtErrorCode, const char*);
  const std::string message =
      std::string("onnxfuse needs ONNX Runtime 1.18 or later; this is ") + base->GetVersionString();
  return reinterpret_cast<CreateStatus>(oldest->slots[0])(ORT_FAIL, message.c_str());
}

}  // namespace
}  // namespace onnxfuse

extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const OrtApiBase* base) {
  using namespace onnxfuse;
  const OrtApi* table = base->GetApi(kOrtApiVersion);
  if (table == nullptr) return too_old(base);
  try {
    const Api& api = api_of(table, base);
    return guarded(api, [&] {
      const CudaOptions cuda{setting(api, options, "onnxfuse.nvrtc_path", "ONNXFUSE_NVRTC"),
                             setting(api, options, "onnxfuse.cache_dir", "ONNXFUSE_CACHE_DIR"),
                             setting(api, options, "onnxfuse.kernels", "ONNXFUSE_KERNELS"),
                             launch_mode(setting(api, options, "onnxfuse.launches", "ONNXFUSE_LAUNCHES"))};
#ifdef ONNXFUSE_CUDA
      // What `onnxfuse compile` asks for: the options are for no session.
      const std::string request = session_config(api, options, "onnxfuse.compile");
      if (!request.empty()) return make_kernels_ahead(request, cuda);
#endif
      api.check(api.AddCustomOpDomain(options, domain_of(table, api, cuda)));
    });
  } catch (...) {  // no memory for the table itself
    return Api(table, nullptr).CreateStatus(ORT_FAIL, "onnxfuse: out of memory");
  }
}
