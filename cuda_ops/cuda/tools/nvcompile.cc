// Compiles programs' kernels without a GPU:  onnxfuse-nvcompile [--source | --persistent | --run | --session] < CASES
//
// For every kernel, architecture and function of a case (cases.h), a line with tab-separated fields is printed:
//     NAME  ARCH  FUNCTION  REGISTERS  STACK_BYTES  SPILL_BYTES  SHARED_BYTES  MILLISECONDS
// --source prints the generated text instead. --persistent has the kernels of a program take tiles from a queue. --run
// runs the CUDA engine, with whatever driver and compiler it finds, on buffers in this process's own memory, and prints
// "NAME ran" for each case: for tests with a driver that only plays one. --session STEP... does
// what sessions do (session.h) with engines of all cases. Errors go to stderr; the exit code is 1 if there was one.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "cases.h"
#include "cuda/nvrtc.h"
#include "run_case.h"
#include "runtime_axes.h"
#include "session.h"

namespace onnxfuse::cuda {
namespace {

int number_before(const std::string& text, const char* label) {
  const size_t end = text.find(label);
  if (end == std::string::npos) return 0;
  size_t begin = end;
  while (begin > 0 && std::strchr("0123456789", text[begin - 1]) != nullptr) --begin;
  return begin == end ? 0 : std::stoi(text.substr(begin, end - begin));
}

void report(const std::string& name, int architecture, const std::string& log, double milliseconds) {
  const std::string entry = "Compiling entry function '";
  for (size_t at = log.find(entry); at != std::string::npos;) {
    const size_t next = log.find(entry, at + 1);
    const std::string part = log.substr(at, next == std::string::npos ? next : next - at);
    const std::string function = part.substr(entry.size(), part.find('\'', entry.size()) - entry.size());
    const size_t used = part.find("Used ");
    const int registers = used == std::string::npos ? 0 : std::atoi(part.c_str() + used + 5);
    std::printf("%s\t%d\t%s\t%d\t%d\t%d\t%d\t%.0f\n", name.c_str(), architecture, function.c_str(), registers,
                number_before(part, " bytes stack frame"), number_before(part, " bytes spill stores"),
                number_before(part, " bytes smem"), milliseconds);
    at = next;
  }
  std::fflush(stdout);
}

void compile(const Program& program, const Case& request, bool print_source, LaunchMode mode) {
  const BoundProgram bound = bind(program, request.shapes);
  for (const int architecture : request.architectures) {
    DeviceModel device;
    device.architecture = architecture;
    for (const Generated& kernel : generate_kernels(program, bound, request.types, request.alignments, device, mode)) {
      if (print_source) {
        std::printf("%s", kernel.source.c_str());
        for (const LaunchGrid& grid : kernel.grids) {
          std::printf("// grid %u x %u, %u threads, %u bytes of shared memory; ", grid.x, grid.y, grid.threads,
                      grid.shared_bytes);
        }
        std::printf("%zu bytes of scratch, %zu of them zero\n", kernel.scratch_bytes, kernel.zeroed_bytes);
        continue;
      }
      std::string why;
      const Nvrtc* compiler = Nvrtc::get("", 0, &why);
      if (compiler == nullptr) throw std::runtime_error(why);
      const auto begin = std::chrono::steady_clock::now();
      const Nvrtc::Output output = compiler->compile(kernel.source, architecture, true);
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
      report(request.name, architecture, output.log, took.count());
    }
  }
}

}  // namespace
}  // namespace onnxfuse::cuda

int main(int count, char** arguments) {
  using namespace onnxfuse::cuda;
  const auto is = [&](const char* option) { return count > 1 && std::strcmp(arguments[1], option) == 0; };
  bool failed = false;
  const auto guarded = [&](const std::string& name, const auto& body) {
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
      failed = true;
    }
  };
  std::vector<Case> cases;
  for (Case request; read_case(std::cin, request); request = Case()) {
    guarded(request.name, [&] {
      if (is("--session")) {
        cases.push_back(request);
      } else if (is("--run")) {
        run(request, *create(request, true));
      } else {
        const auto mode = is("--persistent") ? onnxfuse::LaunchMode::persistent : onnxfuse::LaunchMode::automatic;
        for (const auto& program : possible_programs(onnxfuse::parse_program(request.program), request.shapes))
          compile(*program, request, is("--source"), mode);
      }
    });
  }
  if (is("--session")) {
    const std::vector<std::string> steps(arguments + 2, arguments + count);
    guarded("session", [&] { failed = !play_session(cases, steps) || failed; });
  }
  return failed ? 1 : 0;
}
