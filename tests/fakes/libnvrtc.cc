// Plays NVRTC for tests that need none of its code: an image is a checksum and filling, which the fake driver checks.
//   FAKE_NVRTC_MAJOR   version (13)          FAKE_NVRTC_SIZE   bytes of an image (20000)
//   FAKE_NVRTC_MINOR   the same (0)
//   FAKE_NVRTC_LOG     file that gets a line for each compilation
//   FAKE_NVRTC_MS      milliseconds that a compilation takes (0)
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

int setting(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

struct Program {
  std::string source, image;
};

uint64_t checksum(const char* text) {
  uint64_t sum = 14695981039346656037u;
  for (; *text != 0; ++text) sum = (sum ^ static_cast<unsigned char>(*text)) * 1099511628211u;
  return sum;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = setting("FAKE_NVRTC_MAJOR", 13);
  *minor = setting("FAKE_NVRTC_MINOR", 0);
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = 3;
  return 0;
}
int nvrtcGetSupportedArchs(int* architectures) {
  architectures[0] = 80;
  architectures[1] = 86;
  architectures[2] = 90;
  return 0;
}
int nvrtcCreateProgram(Program** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  *program = new Program{source, ""};
  return 0;
}
int nvrtcDestroyProgram(Program** program) {
  delete *program;
  return 0;
}
int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  std::this_thread::sleep_for(std::chrono::milliseconds(setting("FAKE_NVRTC_MS", 0)));
  std::string text = program->source;
  for (int i = 0; i < count; ++i) text += options[i];
  const uint64_t sum = checksum(text.c_str());
  std::string rest(static_cast<size_t>(setting("FAKE_NVRTC_SIZE", 20000)), 'x');
  for (size_t i = 0; i + 8 < rest.size(); i += 8) rest.replace(i, 8, std::to_string(10000000 + (sum + i) % 89999999));
  char head[64];
  std::snprintf(head, sizeof head, "FAKE %016llx\n", static_cast<unsigned long long>(checksum(rest.c_str())));
  program->image = head + rest;
  if (const char* const log = std::getenv("FAKE_NVRTC_LOG")) {
    if (std::FILE* const file = std::fopen(log, "a")) {
      std::fprintf(file, "%016llx\n", static_cast<unsigned long long>(sum));
      std::fclose(file);
    }
  }
  return 0;
}
int nvrtcGetCUBINSize(Program* program, size_t* size) {
  *size = program->image.size() + 1;
  return 0;
}
int nvrtcGetCUBIN(Program* program, char* image) {
  std::memcpy(image, program->image.c_str(), program->image.size() + 1);
  return 0;
}
int nvrtcGetPTXSize(Program* program, size_t* size) { return nvrtcGetCUBINSize(program, size); }
int nvrtcGetPTX(Program* program, char* image) { return nvrtcGetCUBIN(program, image); }
int nvrtcGetProgramLogSize(Program*, size_t* size) {
  *size = 1;
  return 0;
}
int nvrtcGetProgramLog(Program*, char* log) {
  *log = 0;
  return 0;
}
}
