// libFuzzer target: whatever a model's `program` attribute may hold, and whatever shapes a run may bring.
//
// The input is the program's text, then, after a zero byte, the extents of the inputs' dimensions, two bytes each (a
// program of its own makes up the extents that are missing). A text that parses is bound to these shapes and, where
// its tensors are small, run by the CPU engine in buffers of just the right size, so that the address sanitizer sees
// every access that leaves one, and again where an output may lie in the place of an input, which must make no
// difference; the CUDA generator writes its kernels, for launches of one mode and another, which are not compiled. The
// text's length decides what is not in the input: alignments, widened types, launches.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/generate_kernels.h"
#include "cuda/likely_shapes.h"
#include "engine.h"
#include "inference.h"
#include "inline_context.h"
#include "program_cache.h"
#include "runtime_axes.h"

namespace onnxfuse {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;     // of a tensor that is really made
constexpr int64_t kMaxPoints = int64_t{1} << 16;  // of a kernel that is really run
constexpr size_t kMaxWork = size_t{1} << 22;      // points times statements

class Extents {
 public:
  Extents(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  // What the input says, now and then an absurd one.
  int64_t next(int64_t otherwise) {
    if (position_ + 2 > size_) return otherwise;
    const uint16_t bits = static_cast<uint16_t>(data_[position_] | data_[position_ + 1] << 8);
    position_ += 2;
    if (bits < 0xff00) return bits % 71;
    return std::vector<int64_t>{-1,    INT64_MIN, INT64_MAX, int64_t{1} << 47, (int64_t{1} << 48) - 1, int64_t{1} << 62,
                                65536, 4097}[bits % 8];
  }

 private:
  const uint8_t* data_;
  size_t size_, position_ = 0;
};

// The extents that the program asks for, 3 where it leaves them open.
std::vector<Shape> fitting_shapes(const Program& program) {
  std::vector<Shape> shapes;
  for (const TensorInfo& input : program.inputs) shapes.emplace_back(input.rank, 1);
  if (const RuntimeAxes* axes = runtime_axes(program)) shapes[0].assign(axes->scalar ? 0 : 1, axes->count.value_or(2));
  for (const Kernel& kernel : program.kernels) {
    for (const Statement& s : kernel.statements) {
      for (size_t d = 0; s.op == Op::input && d < s.map.size(); ++d) {
        __int128 last = s.map[d].offset;
        for (const AffineTerm& term : s.map[d].terms) {
          const int roll = term.dim - kFirstRoll;
          const int64_t values =
              roll >= 0 ? kernel.space.rolls[roll].points : kernel.space.extents[term.dim].value_or(3);
          last += static_cast<__int128>(std::max<int64_t>(term.scale, 0)) * (values - 1);
        }
        int64_t& extent = shapes[s.tensor][d];
        const int64_t shown = s.map[d].extent.value_or(static_cast<int64_t>(std::min<__int128>(last, 1 << 20)) + 1);
        extent = std::max(extent, shown);
      }
    }
  }
  return shapes;
}

// Bytes of a tensor, or more than kMaxBytes.
size_t bytes_of(const Shape& shape, Type type) {
  size_t bytes = type_size(type);
  for (const int64_t extent : shape) {
    if (extent == 0) return 0;
  }
  for (const int64_t extent : shape) {
    if (static_cast<uint64_t>(extent) > kMaxBytes) return kMaxBytes + 1;
    bytes *= static_cast<size_t>(extent);
    if (bytes > kMaxBytes) return bytes;
  }
  return bytes;
}

struct Buffer {
  std::unique_ptr<char[]> memory;
  TensorRef tensor;
};

// Filled with what the program's bytes give: some NaN, infinities and denormals among them.
Buffer make_buffer(size_t bytes, Type type, uint32_t seed) {
  Buffer buffer{std::unique_ptr<char[]>(new char[bytes]), {}};
  for (size_t i = 0; i < bytes; ++i) {
    seed = seed * 1664525u + 1013904223u;
    buffer.memory[i] = static_cast<char>(type == Type::boolean ? seed >> 31 : seed >> 24);
  }
  buffer.tensor = {buffer.memory.get(), type};
  return buffer;
}

bool is_small(const Program& program, const BoundProgram& bound) {
  size_t work = 0;
  for (size_t k = 0; k < bound.kernels.size(); ++k) {
    __int128 points = 1;
    for (const int64_t extent : bound.kernels[k].extents)
      points = std::min<__int128>(points * std::max<int64_t>(extent, 1), INT64_MAX);
    if (points > kMaxPoints) return false;
    work += static_cast<size_t>(points) * program.kernels[k].statements.size();
  }
  return work <= kMaxWork;
}

// With output 0 in the place of an input.
void run_in_place(const Engine& engine, const BoundProgram& bound, size_t input, std::vector<TensorRef> in,
                  std::vector<TensorRef> out) {
  const size_t bytes = bytes_of(bound.output_shapes[0], out[0].type);
  const std::unique_ptr<char[]> place(new char[bytes]);
  std::memcpy(place.get(), in[input].data, bytes);
  const void* const expected = out[0].data;
  in[input].data = out[0].data = place.get();
  InlineContext context;
  engine.run(bound, in, out, context);
  if (std::memcmp(place.get(), expected, bytes) != 0) std::abort();
}

void run(const std::shared_ptr<const Program>& program, const std::vector<Shape>& shapes, const BoundProgram& bound,
         bool widened) {
  std::vector<Type> inputs;
  for (const TensorInfo& input : program->inputs)
    inputs.push_back(widened && is_16bit_float(input.type) ? Type::f32 : input.type);
  const std::vector<Type> outputs = actual_output_types(*program, inputs);
  std::vector<Buffer> buffers;
  std::vector<TensorRef> in, out;
  for (size_t i = 0; i < shapes.size() + outputs.size(); ++i) {
    const bool input = i < shapes.size();
    const Type type = input ? inputs[i] : outputs[i - shapes.size()];
    const size_t bytes = bytes_of(input ? shapes[i] : bound.output_shapes[i - shapes.size()], type);
    if (bytes > kMaxBytes) return;
    buffers.push_back(make_buffer(bytes, type, static_cast<uint32_t>(i)));
    (input ? in : out).push_back(buffers.back().tensor);
  }
  InlineContext context;
  const std::unique_ptr<Engine> engine = make_cpu_engine(program);
  engine->run(bound, in, out, context);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const bool alike = shapes[i] == bound.output_shapes[0] && type_size(inputs[i]) == type_size(outputs[0]);
    if (alike && engine->may_overwrite(bound, static_cast<int>(i), 0)) run_in_place(*engine, bound, i, in, out);
  }
}

void generate(const Program& program, const BoundProgram& bound, uint8_t alignment, LaunchMode launches) {
  cuda::ActualTypes types;
  for (const TensorInfo& input : program.inputs) types.inputs.push_back(input.type);
  for (const TensorInfo& output : program.outputs) types.outputs.push_back(output.type);
  const cuda::Alignments alignments{std::vector<uint8_t>(types.inputs.size(), alignment),
                                    std::vector<uint8_t>(types.outputs.size(), alignment)};
  for (const int architecture : {75, 90, 100}) {
    cuda::DeviceModel device;
    device.architecture = architecture;
    cuda::generate_kernels(program, bound, types, alignments, device, launches);
  }
}

void try_shapes(const std::shared_ptr<const Program>& program, const std::vector<Shape>& shapes, bool widened,
                LaunchMode launches) {
  try {
    std::vector<SymbolicShape> symbolic;
    for (const Shape& shape : shapes) {
      symbolic.emplace_back();
      for (const int64_t extent : shape) symbolic.back().push_back({extent % 2 == 0 ? extent : -1, "n"});
    }
    infer_shapes(*program, symbolic);
    cuda::likely_shapes(*program, symbolic);
  } catch (const ProgramError&) {
  }
  std::vector<std::shared_ptr<const Program>> possible;
  try {
    possible = possible_programs(program, shapes);
  } catch (const ProgramError&) {
    return;
  }
  for (const auto& runnable : possible) {
    BoundProgram bound;
    try {
      bound = bind(*runnable, shapes);
    } catch (const ProgramError&) {
      continue;
    }
    try {
      generate(*runnable, bound, widened ? 2 : 16, launches);
    } catch (const std::runtime_error&) {  // too many parameters, for one
    }
    if (is_small(*runnable, bound)) run(runnable, shapes, bound, widened);
  }
}

}  // namespace
}  // namespace onnxfuse

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace onnxfuse;
  const uint8_t* const end = static_cast<const uint8_t*>(size > 0 ? std::memchr(data, 0, size) : nullptr);
  const size_t length = end != nullptr ? static_cast<size_t>(end - data) : size;
  std::shared_ptr<const Program> program;
  try {
    program = parse_program(std::string_view(reinterpret_cast<const char*>(data), length));
  } catch (const ProgramError&) {
    return 0;
  }
  constexpr LaunchMode kModes[] = {LaunchMode::automatic, LaunchMode::plain, LaunchMode::horizontal,
                                   LaunchMode::persistent};
  const LaunchMode launches = kModes[(length >> 2) % std::size(kModes)];
  try_shapes(program, fitting_shapes(*program), (length & 1) != 0, launches);
  if (length < size) {
    Extents extents(data + length + 1, size - length - 1);
    std::vector<Shape> shapes = fitting_shapes(*program);
    for (Shape& shape : shapes) {
      for (int64_t& extent : shape) extent = extents.next(extent);
    }
    try_shapes(program, shapes, (length & 2) != 0, launches);
  }
  return 0;
}
