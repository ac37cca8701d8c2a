// Runs items of a plan one after the other, on one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "plan.h"

namespace onnxfuse::cpu {

// Counts through dimensions in order; nonzero is the set of those whose index is not 0.
struct Odometer {
  int64_t index[8] = {};
  uint32_t nonzero = 0;

  void seek(const std::vector<Dim>& dims, int64_t position);
  void advance(const std::vector<Dim>& dims);
  void retreat(const std::vector<Dim>& dims);
};

class Task {
 public:
  Task(const KernelPlan& plan, Tensors inputs, Tensors outputs);

  // Items first to last, without the last.
  void run(int64_t first, int64_t last);

  // Of an item that several tasks share: goes to it; runs the code before a pass; runs the pass over some of its tiles
  // (numbered in the pass' order). Only the lead stores values of the item.
  void enter(int64_t item);
  void run_item_code(size_t pass, bool lead);
  void run_tiles(size_t pass, int64_t first, int64_t last);
  char* at(uint16_t reg) { return reg_[reg]; }  // an accumulator or a state

 private:
  void place(int64_t block);
  void set_block(int64_t block);
  void move_to_tile(const Pass& pass, int64_t block);
  void run_item(int64_t block);
  void execute(const Code& code);
  void execute_last(const Code& code);
  void execute(const Instruction& i);
  void call(const Instruction& i, size_t n) { i.fn(reg_[i.out], reg_[i.a], reg_[i.b], reg_[i.c], n); }
  void call_in_steps(const Instruction& i);
  void run_pipeline(const Pipeline& p);

  const KernelPlan& plan_;
  const Layout& layout_;
  Tensors inputs_;
  Tensors outputs_;
  char** reg_ = nullptr;
  char** item_address_ = nullptr;  // of each address, at the item's first tile
  char* buffers_ = nullptr;
  Odometer grid_, loop_;
  int64_t rows_ = 1;  // indices in the block
  int64_t block_ = 0;
  bool begun_ = false;
};

}  // namespace onnxfuse::cpu
