#include "session.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "run_case.h"

namespace onnxfuse::cuda {

bool play_session(const std::vector<Case>& cases, const std::vector<std::string>& steps) {
  bool good = true;
  std::vector<std::unique_ptr<Engine>> engines;
  for (const Case& request : cases) engines.push_back(create(request, false));
  for (const std::string& step : steps) {
    const auto begin = std::chrono::steady_clock::now();
    if (step == "wait") {
      wait_for_cuda_kernels();
    } else if (step == "pause") {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    } else if (step == "run" || step == "last") {
      for (size_t k = step == "run" ? 0 : cases.size() - 1; k < cases.size(); ++k) {
        try {
          run(cases[k], *engines[k]);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "%s: %s\n", cases[k].name.c_str(), error.what());
          good = false;
        }
      }
    } else if (step == "fork") {
      if (const pid_t child = ::fork()) {
        int status = 0;
        return ::waitpid(child, &status, 0) == child && status == 0 && good;
      }
    } else if (step == "leave") {
      new auto(std::move(engines));
      return good;
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    std::printf("%s\t%.0f\n", step.c_str(), took.count());
    std::fflush(stdout);
  }
  return good;
}

}  // namespace onnxfuse::cuda
