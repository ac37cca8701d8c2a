// Writes a kernel's instructions: what compile_kernel works with.
#pragma once

#include <algorithm>
#include <vector>

#include "analysis.h"
#include "memory.h"
#include "plan.h"

namespace onnxfuse::cpu {

// Where a value lies.
struct Place {
  int reg = -1;
  int expanded = -1;       // register with all elements of a larger form
  bool temporary = false;  // reg is given back after the last use
  int uses = 0;            // left in the code being written
  int kept_address = -1;
  int accumulator = -1;  // register, of a reduction in passes
};

struct Operand {
  int reg;
  Form form;
  size_t size;
};

class Compiler {
 public:
  Compiler(const Kernel& kernel, const BoundKernel& bound, const std::vector<Type>& input_types,
           const std::vector<Type>& output_types, int threads, Handing handing, const Limits& limits)
      : kernel_(kernel),
        bound_(bound),
        input_types_(input_types),
        threads_(threads),
        layout_(plan_.layout),
        analysis_(kernel, bound, plan_.layout = make_layout(kernel, bound, limits), output_types, handing),
        memory_(plan_),
        places_(kernel.statements.size()),
        stored_(kernel.outputs.size(), false),
        borrowed_(kernel.outputs.size(), false),
        store_addresses_(kernel.outputs.size(), -1),
        totals_(kernel.statements.size()) {}

  KernelPlan compile();
  size_t kept_bytes() const { return memory_.kept_bytes(); }
  bool shareable() const { return analysis_.shareable(); }

 private:
  const Statement& statement(int v) const { return kernel_.statements[static_cast<size_t>(v)]; }
  const Value& value(int v) const { return analysis_.value(v); }
  Place& place(int v) { return places_[static_cast<size_t>(v)]; }
  size_t size_of(int v) const { return type_size(statement(v).type); }
  Pass& this_pass() { return plan_.passes[static_cast<size_t>(pass_)]; }
  Code& code(Scope scope, int stage);
  Code& code(int v) { return value(v).once ? plan_.once_code : code(value(v).scope, value(v).stage); }

  // places.cc
  static Instruction call(TileFn fn, Form form, int out, int a, int b = 0, int c = 0);
  // From one index of a block to the next.
  uint32_t step(Form form, size_t size) const;
  // A call for each index of a block, over the inner points.
  Instruction call_in_steps(TileFn fn, Operand out, const Operand* operands, int count) const;
  Operand operand(int v) { return {place(v).reg, value(v).form, size_of(v)}; }
  // A register with an element of v for each of the form's.
  int expanded(int v, Form form);

  // write_elements.cc
  // Writes out = f(operands), where find gives f for a mask of scalar operands. Operands are given back before out is
  // chosen, so that it may take the place of one of them.
  template <class Find>
  void write_call(int v, const int* operands, int count, Work work, const Find& find);
  void release(int v);
  void release_operands(int v);
  void move_in_pass(int address) {
    std::vector<uint16_t>& moving = this_pass().moving;
    const uint16_t a = static_cast<uint16_t>(address);
    if (std::find(moving.begin(), moving.end(), a) == moving.end()) moving.push_back(a);
  }
  bool streams_copy(int v) const;
  // The register that takes v's value.
  int destination(int v);
  int store_address(int index);
  void write_input(int v);
  uint16_t constant_of(float f);
  void write_constant(int v);
  bool is_constant(int v, int number) const;
  void write_primitive(int v);
  int tile_input() const;
  void write_softmax(int v);
  void write_multiply_add(int v);
  // The square or the cube.
  void write_power(int v);
  void write_store(size_t index);

  // write_reductions.cc
  ReductionFns reduction(int v) const {
    const Statement& s = statement(v);
    return tile_.reduction(s.op, statement(s.operands[0]).type, s.last);
  }
  // The operands of the product that reduction v absorbs, else its operand.
  int reduction_operands(int v, int* operands) const;
  void write_whole_reduction(int v);
  void write_moments(int mean, int squares);  // by one instruction
  // Notes that a pipeline may do the reduction.
  void mark_fold(Instruction& i, int v, int operands) const;
  Form form_of_accumulators(int v) const;
  void write_init(int v);
  void write_accumulate(int v);
  uint16_t count_register();  // holds the number of reduced points
  void write_finish(int v);

  // write_scans.cc
  ScanFns scan(int v) const {
    return tile_.scan(statement(v).op, statement(v).type, statement(v).exclusive, statement(v).reverse);
  }
  void write_whole_scan(int v);
  void write_scan(int v);
  // Takes the operand into the total of a shared row's part.
  void write_total(int v);

  // compile.cc
  // Counts, for each value of the code that comes next, its uses there; one that other code uses too counts none and
  // so keeps its register.
  template <class InCode>
  void count_uses(const InCode& in_code, int stage, bool pass);
  // Not those that other instructions compute, and late ones only where an operand of v needs them.
  void write_value(int v);
  void write_late_operands(int v);
  void write_value_now(int v);
  void write_item(int stage);
  void write_pass(int pass);
  int64_t largest_output() const;  // bytes
  // About what an item costs, in nanoseconds.
  void estimate();

  const Kernel& kernel_;
  const BoundKernel& bound_;
  const std::vector<Type>& input_types_;
  const int threads_;
  const TileKernels& tile_ = tile_kernels();
  KernelPlan plan_;
  const Layout& layout_;
  const Analysis analysis_;
  Memory memory_;
  std::vector<Place> places_;
  std::vector<bool> stored_;          // by index of the analysis' stores
  std::vector<bool> borrowed_;        // likewise
  std::vector<int> store_addresses_;  // likewise
  bool streams_rows_ = false;         // whether some instruction stores past the caches itself
  int pass_ = 0;
  int count_register_ = -1;
  std::vector<uint16_t> totals_;  // by value: the register of write_total
};

}  // namespace onnxfuse::cpu
