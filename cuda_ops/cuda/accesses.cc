#include "accesses.h"

#include <algorithm>

#include "expression.h"

namespace onnxfuse::cuda {
namespace {

int find_class(const std::vector<std::vector<int64_t>>& classes, const std::vector<int64_t>& strides) {
  return static_cast<int>(std::find(classes.begin(), classes.end(), strides) - classes.begin());
}

// Strides along the plan's parallel dimensions, then along its rolls.
std::vector<int64_t> parallel_strides(const PlanAccess& access) {
  std::vector<int64_t> strides = access.parallel;
  strides.insert(strides.end(), access.rolled.begin(), access.rolled.end());
  return strides;
}

}  // namespace

Accesses::Accesses(const Plan& plan, const Schedule& schedule, Parameters& parameters)
    : plan_(plan), schedule_(schedule), parameters_(parameters) {
  has_tail_ = !plan.reduces && schedule.lanes > 1 && plan.parallel.back().extent % schedule.lanes != 0;
  const auto note = [&](const PlanAccess& access) {
    const std::vector<int64_t> parallel = parallel_strides(access);
    if (find_class(parallel_classes_, parallel) == static_cast<int>(parallel_classes_.size())) {
      parallel_classes_.push_back(parallel);
    }
    if (find_class(reduced_classes_, access.reduced) == static_cast<int>(reduced_classes_.size())) {
      reduced_classes_.push_back(access.reduced);
    }
  };
  for (const PlanAccess& access : plan.inputs) {
    if (access.used) note(access);
  }
  for (const PlanAccess& access : plan.outputs) note(access);
}

LaneMode Accesses::lane_mode(const PlanAccess& access) const {
  const std::vector<int64_t>& strides = lanes_reduced() ? access.reduced : access.parallel;
  if (strides.empty() || strides.back() == 0) return LaneMode::uniform;
  return strides.back() == 1 ? LaneMode::vector : LaneMode::strided;
}

bool Accesses::streams(const PlanAccess& access) const {
  if (plan_.reduces) return varies(access);
  for (size_t d = 0; d < access.parallel.size(); ++d) {
    bool moves = access.parallel[d] != 0;
    for (size_t r = 0; r < access.rolled.size(); ++r) {
      moves = moves || (access.rolled[r] != 0 && plan_.rolls[r].scales[d] != 0);
    }
    if (!moves) return false;
  }
  return true;
}

void Accesses::declare_strides(const std::vector<std::vector<int64_t>>& classes, const char* prefix, bool wide) {
  for (size_t c = 0; c < classes.size(); ++c) {
    for (size_t d = 0; d < classes[c].size(); ++d) {
      const int64_t value = classes[c][d];
      if (value == 0 || value == 1) continue;
      const std::string name = prefix + std::to_string(c) + "_" + std::to_string(d);
      parameters_.add({wide ? ParameterKind::wide : ParameterKind::narrow, wide ? "i64" : "i32", name, value, -1});
    }
  }
}

void Accesses::declare_pointers() {
  for (size_t i = 0; i < plan_.inputs.size(); ++i) {
    const PlanAccess& a = plan_.inputs[i];
    if (!a.used) continue;
    parameters_.add({ParameterKind::input, std::string("const ") + cuda_type(a.storage) + "*", "x" + std::to_string(i),
                     a.offset * static_cast<int64_t>(type_size(a.storage)), a.tensor});
  }
  for (size_t k = 0; k < plan_.outputs.size(); ++k) {
    const PlanAccess& a = plan_.outputs[k];
    parameters_.add({ParameterKind::output, std::string(cuda_type(a.storage)) + "*", "y" + std::to_string(k),
                     a.offset * static_cast<int64_t>(type_size(a.storage)), a.tensor});
  }
  declare_strides(parallel_classes_, "ps", plan_.reduces || plan_.wide_parallel);
  declare_strides(reduced_classes_, "rs", plan_.wide_reduced);
  const auto declare_extents = [&](const std::vector<PlanDim>& dims, const char* prefix, bool wide) {
    for (size_t d = 1; d < dims.size(); ++d) {
      if (dims[d].fixed) continue;
      const std::string name = prefix + std::to_string(d);
      if (wide) {
        parameters_.add({ParameterKind::wide, "i64", name, dims[d].extent, -1});
      } else {
        parameters_.add({ParameterKind::divisor, "Divisor", name, dims[d].extent, -1});
      }
    }
  };
  declare_extents(plan_.parallel, "pe", plan_.wide_parallel);
  declare_extents(plan_.reduced, "re", plan_.wide_reduced);
}

void Accesses::write_coordinates(Writer& out, const std::vector<PlanDim>& dims, bool reduced) const {
  const std::string coordinate = reduced ? "r" : "c", number = reduced ? "r" : "id", rest = reduced ? "rq" : "q";
  const bool wide = reduced ? plan_.wide_reduced : plan_.wide_parallel;
  const std::string type = wide ? "i64" : "u32";
  if (dims.empty()) return;
  std::string left = "static_cast<" + type + ">(" + number + ")";
  for (size_t d = dims.size() - 1; d > 0; --d) {
    const std::string name = std::to_string(d);
    const std::string divisor =
        dims[d].fixed ? std::to_string(dims[d].extent) : "p." + std::string(reduced ? "re" : "pe") + name;
    const std::string value = dims[d].fixed || wide ? divisor : divisor + ".value";
    out.line("const " + type + " " + rest + name + " = " + left + " / " + divisor + ";");
    out.line("const " + type + " " + coordinate + name + " = " + left + " - " + rest + name + " * " + value + ";");
    left = rest + name;
  }
  out.line("const " + type + " " + coordinate + "0 = " + left + ";");
}

void Accesses::write_parallel_coordinates(Writer& out) const {
  write_coordinates(out, plan_.parallel, false);
  write_rolls(out);
}

void Accesses::write_rolls(Writer& out) const {
  const std::string type = index_type();
  for (size_t r = 0; r < plan_.rolls.size(); ++r) {
    const PlanRoll& roll = plan_.rolls[r];
    const std::string name = "w" + std::to_string(r), points = std::to_string(roll.points);
    std::string index = std::to_string(roll.shift);
    for (size_t d = 0; d < roll.scales.size(); ++d) {
      if (roll.scales[d] == 0) continue;
      index += " + c" + std::to_string(d) + (roll.scales[d] == 1 ? "" : " * " + std::to_string(roll.scales[d]));
    }
    out.line("const " + type + " " + name + "s = " + index + ";");
    out.line("const " + type + " " + name + " = " + name + "s < " + points + " ? " + name + "s : " + name + "s - " +
             points + ";");
  }
}

void Accesses::write_reduced_coordinates(Writer& out) const {
  if (plan_.reduced.size() > 1) write_coordinates(out, plan_.reduced, true);
}

std::string Accesses::stride(const PlanAccess& access, bool reduced, size_t dim) const {
  const std::vector<int64_t> strides = reduced ? access.reduced : parallel_strides(access);
  if (strides[dim] == 0 || strides[dim] == 1) return std::to_string(strides[dim]);
  const int c = find_class(reduced ? reduced_classes_ : parallel_classes_, strides);
  return std::string("p.") + (reduced ? "rs" : "ps") + std::to_string(c) + "_" + std::to_string(dim);
}

void Accesses::write_base(Writer& out, const PlanAccess& access, const std::string& name,
                          const std::string& pointer) const {
  const std::string type = plan_.reduces || plan_.wide_parallel ? "i64" : "i32";
  std::string offset;
  const std::vector<int64_t> strides = parallel_strides(access);
  for (size_t d = 0; d < strides.size(); ++d) {
    if (strides[d] == 0) continue;
    if (!offset.empty()) offset += " + ";
    const size_t dims = access.parallel.size();
    offset += "static_cast<" + type + ">(" + (d < dims ? "c" : "w") + std::to_string(d < dims ? d : d - dims) + ")";
    if (strides[d] != 1) offset += " * " + stride(access, false, d);
  }
  out.line(std::string(access.output ? "" : "const ") + cuda_type(access.storage) + "* const " + name + " = p." +
           pointer + (offset.empty() ? "" : " + (" + offset + ")") + ";");
}

std::string Accesses::reduced_offset(const PlanAccess& access) const {
  std::string offset;
  const std::string type = reduced_type();
  for (size_t d = 0; d < access.reduced.size(); ++d) {
    if (access.reduced[d] == 0) continue;
    const std::string coordinate =
        access.reduced.size() == 1 ? "r" : "static_cast<" + type + ">(r" + std::to_string(d) + ")";
    offset += " + " + coordinate + (access.reduced[d] == 1 ? "" : " * " + stride(access, true, d));
  }
  return offset;
}

std::string Accesses::lane_stride(const PlanAccess& access) const {
  return stride(access, lanes_reduced(), (lanes_reduced() ? access.reduced : access.parallel).size() - 1);
}

std::string Accesses::store_condition(const PlanAccess& access, bool with_reduced) const {
  std::string condition;
  const auto require = [&](const std::string& text) { condition += (condition.empty() ? "" : " && ") + text; };
  for (size_t d = 0; d < access.parallel.size(); ++d) {
    if (access.lacks_parallel >> d & 1u) require("c" + std::to_string(d) + " == 0");
  }
  for (size_t d = 0; with_reduced && d < access.reduced.size(); ++d) {
    if (access.lacks_reduced >> d & 1u)
      require(plan_.reduced.size() == 1 ? "r == 0" : "r" + std::to_string(d) + " == 0");
  }
  return condition;
}

}  // namespace onnxfuse::cuda
