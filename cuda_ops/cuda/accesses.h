// Where generated code finds the elements of its tensors: coordinates, offsets, loads and stores.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "parameters.h"
#include "schedule.h"
#include "writer.h"

namespace onnxfuse::cuda {

// How the lanes of a vector lie in a tensor.
enum class LaneMode : uint8_t {
  vector,   // neighbours: one access
  uniform,  // all the same element
  strided,  // one access for each
};

// In generated code, `id` numbers the parallel points and `r` the reduced ones (of lane 0 of the thread's vector);
// c0, c1, ... and r0, r1, ... are their coordinates along the plan's dimensions, w0, w1, ... what its rolls make of
// them.
class Accesses {
 public:
  Accesses(const Plan& plan, const Schedule& schedule, Parameters& parameters);

  const PlanAccess& input(int statement) const { return plan_.inputs[statement]; }
  const PlanAccess& output(int k) const { return plan_.outputs[k]; }
  LaneMode lane_mode(const PlanAccess& access) const;
  // True where each parallel point has elements of its own: worth loading early, and possibly overwritten in place.
  bool streams(const PlanAccess& access) const;
  bool has_tail() const { return has_tail_; }

  const char* index_type() const { return plan_.wide_parallel ? "i64" : "u32"; }
  const char* reduced_type() const { return plan_.wide_reduced ? "i64" : "i32"; }

  void declare_pointers();  // adds the parameters that the whole kernel needs
  void write_parallel_coordinates(Writer& out) const;
  void write_reduced_coordinates(Writer& out) const;
  // const S* const <name> = p.<pointer> + offset along the parallel dimensions
  void write_base(Writer& out, const PlanAccess& access, const std::string& name, const std::string& pointer) const;
  // " + offset" along the reduced dimensions
  std::string reduced_offset(const PlanAccess& access) const;
  std::string lane_stride(const PlanAccess& access) const;
  // What must hold for an output to be stored, as it lacks dimensions; empty: nothing.
  std::string store_condition(const PlanAccess& access, bool with_reduced) const;

 private:
  std::string stride(const PlanAccess& access, bool reduced, size_t dim) const;
  void write_rolls(Writer& out) const;
  std::string extent(bool reduced, size_t dim) const;
  int stride_class(std::vector<std::vector<int64_t>>& classes, const std::vector<int64_t>& strides) const;
  void write_coordinates(Writer& out, const std::vector<PlanDim>& dims, bool reduced) const;
  void declare_strides(const std::vector<std::vector<int64_t>>& classes, const char* prefix, bool wide);
  bool lanes_reduced() const { return schedule_.kind == ScheduleKind::row; }

  const Plan& plan_;
  const Schedule& schedule_;
  Parameters& parameters_;
  bool has_tail_;
  std::vector<std::vector<int64_t>> parallel_classes_, reduced_classes_;  // distinct strides: equal ones share a name
};

}  // namespace onnxfuse::cuda
