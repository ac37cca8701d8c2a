#include "cases.h"

#include <sstream>
#include <stdexcept>

namespace onnxfuse::cuda {
namespace {

Type parse_type(const std::string& name) {
  for (int k = 0; k <= static_cast<int>(Type::boolean); ++k) {
    if (name == type_name(static_cast<Type>(k))) return static_cast<Type>(k);
  }
  throw std::runtime_error("unknown type " + name);
}

}  // namespace

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

}  // namespace onnxfuse::cuda
