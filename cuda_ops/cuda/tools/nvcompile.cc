// Compiles programs' kernels without a GPU:  onnxfuse-nvcompile [--source] < REQUEST
//
// A request is a sequence of cases. Each begins with a line "case NAME ARCH[,ARCH...]", then one line for each input
// ("input TYPE ALIGNMENT EXTENT..."), one for each output ("output TYPE ALIGNMENT"), and the program up to a line
// "end". For every kernel, architecture and function, a line with tab-separated fields is printed:
//     NAME  ARCH  FUNCTION  REGISTERS  STACK_BYTES  SPILL_BYTES  SHARED_BYTES  MILLISECONDS
// --source prints the generated text instead. Errors go to stderr; the exit code is 1 if there was one.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>

#include "cuda/generate_kernels.h"
#include "cuda/nvrtc.h"

namespace onnxfuse::cuda {
namespace {

Type parse_type(const std::string& name) {
  for (int k = 0; k <= static_cast<int>(Type::boolean); ++k) {
    if (name == type_name(static_cast<Type>(k))) return static_cast<Type>(k);
  }
  throw std::runtime_error("unknown type " + name);
}

struct Case {
  std::string name, program;
  std::vector<int> architectures;
  std::vector<Shape> shapes;
  ActualTypes types;
  Alignments alignments;
};

bool read_case(std::istream& in, Case& result) {
  std::string line, word;
  while (std::getline(in, line) && line.empty()) {
  }
  if (!in) return false;
  std::istringstream head(line);
  std::string list;
  head >> word >> result.name >> list;
  std::istringstream architectures(list);
  while (std::getline(architectures, word, ',')) result.architectures.push_back(std::stoi(word));
  while (std::getline(in, line) && line != "end") {
    std::istringstream fields(line);
    std::string kind, type;
    fields >> kind;
    // A program's own lines "output 0 ..." come after its first line.
    if (result.program.empty() && (kind == "input" || kind == "output")) {
      int alignment = 16;
      fields >> type >> alignment;
      Shape shape;
      for (int64_t extent = 0; fields >> extent;) shape.push_back(extent);
      (kind == "input" ? result.types.inputs : result.types.outputs).push_back(parse_type(type));
      (kind == "input" ? result.alignments.inputs : result.alignments.outputs)
          .push_back(static_cast<uint8_t>(alignment));
      if (kind == "input") result.shapes.push_back(shape);
    } else {
      result.program += line + "\n";
    }
  }
  return true;
}

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

bool run(const Case& request, bool print_source) {
  const auto program = parse_program(request.program);
  const BoundProgram bound = bind(*program, request.shapes);
  for (const int architecture : request.architectures) {
    DeviceModel device;
    device.architecture = architecture;
    for (const Generated& kernel : generate_kernels(*program, bound, request.types, request.alignments, device)) {
      if (print_source) {
        std::printf("%s// grid %u x %u, %u threads, %zu bytes of scratch\n", kernel.source.c_str(), kernel.grid.x,
                    kernel.grid.y, kernel.threads, kernel.scratch_bytes);
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
  return true;
}

}  // namespace
}  // namespace onnxfuse::cuda

int main(int count, char** arguments) {
  using namespace onnxfuse::cuda;
  const bool print_source = count > 1 && std::strcmp(arguments[1], "--source") == 0;
  bool failed = false;
  for (Case request; read_case(std::cin, request); request = Case()) {
    try {
      run(request, print_source);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", request.name.c_str(), error.what());
      failed = true;
    }
  }
  return failed ? 1 : 0;
}
