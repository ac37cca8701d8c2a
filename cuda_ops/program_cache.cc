#include "program_cache.h"

#include <mutex>
#include <unordered_map>

namespace onnxfuse {

std::shared_ptr<const Program> cached_program(const std::string& text) {
  constexpr size_t kMaxPrograms = 1024;
  struct Cache {
    std::mutex mutex;
    std::unordered_map<std::string, std::shared_ptr<const Program>> programs;
  };
  static Cache* const cache = new Cache;  // never destroyed: sessions may outlive this library's static objects
  {
    const std::lock_guard<std::mutex> lock(cache->mutex);
    const auto found = cache->programs.find(text);
    if (found != cache->programs.end()) return found->second;
  }
  std::shared_ptr<const Program> program = parse_program(text);
  const std::lock_guard<std::mutex> lock(cache->mutex);
  if (cache->programs.size() >= kMaxPrograms) cache->programs.clear();  // whoever uses one still holds it
  cache->programs.emplace(text, program);
  return program;
}

std::vector<Type> actual_output_types(const Program& program, const std::vector<Type>& inputs) {
  if (inputs.size() != program.inputs.size())
    throw ProgramError("the program has " + std::to_string(program.inputs.size()) + " inputs, the node " +
                       std::to_string(inputs.size()));
  bool widened[2] = {false, false};  // f16, bf16
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Type declared = program.inputs[i].type;
    if (inputs[i] == declared) continue;
    if (inputs[i] != Type::f32 || !is_16bit_float(declared))
      throw ProgramError("input " + std::to_string(i) + " is " + type_name(inputs[i]) + "; the program reads it as " +
                         type_name(declared));
    widened[declared == Type::bf16] = true;
  }
  std::vector<Type> outputs;
  for (const TensorInfo& output : program.outputs) {
    const bool wide = is_16bit_float(output.type) && widened[output.type == Type::bf16];
    outputs.push_back(wide ? Type::f32 : output.type);
  }
  return outputs;
}

}  // namespace onnxfuse
