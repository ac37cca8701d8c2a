// Writes reductions: those of whole rows at once; and those in passes, before, in and after the pass.
#include "compiler.h"

namespace onnxfuse::cpu {

int Compiler::reduction_operands(int v, int* operands) const {
  const int operand = statement(v).operands[0];
  if (!value(operand).absorbed) {
    operands[0] = operand;
    return 1;
  }
  operands[0] = statement(operand).operands[0];
  operands[1] = statement(operand).operands[1];
  return 2;
}

void Compiler::write_moments(int mean, int squares) {
  const int a = statement(mean).operands[0];
  const TileFn fn = statement(squares).op == Op::op_reduce_mean ? tile_.mean_and_variance : tile_.mean_and_squares;
  place(mean).reg = destination(mean);
  place(squares).reg = destination(squares);
  const Operand in[] = {operand(a), operand(squares)};
  code(mean).push_back(in[0].form == kFull ? call_in_steps(fn, operand(mean), in, 2)
                                           : call(fn, kInner, place(mean).reg, in[0].reg, in[1].reg));
  release_operands(mean);
  plan_.finds_moments = true;
}

void Compiler::write_whole_reduction(int v) {
  if (analysis_.squares_with(v) >= 0) return write_moments(v, analysis_.squares_with(v));
  int operands[2];
  const int count = reduction_operands(v, operands);
  const TileFn fn = count == 2 ? reduction(v).whole_of_products : reduction(v).whole;
  const Form form = static_cast<Form>(value(operands[0]).form | kInner);
  Operand in[2] = {};
  for (int k = 0; k < count; ++k) in[k] = {expanded(operands[k], form), form, size_of(operands[k])};
  release_operands(v);
  const int out = place(v).reg = destination(v);
  Instruction i =
      form == kFull ? call_in_steps(fn, operand(v), in, count) : call(fn, kInner, out, in[0].reg, in[1].reg);
  mark_fold(i, v, count);
  code(v).push_back(i);
}

void Compiler::mark_fold(Instruction& i, int v, int operands) const {
  const Statement& s = statement(v);
  if (statement(s.operands[0]).type != Type::f32 || tile_.fold(s.op).init == nullptr) return;
  i.work = layout_.schedule == Schedule::column ? Work::accumulate : operands == 2 ? Work::fold_products : Work::fold;
  i.op = s.op;
}

Form Compiler::form_of_accumulators(int v) const {
  if (layout_.schedule == Schedule::band) return kInner;
  return layout_.schedule == Schedule::column ? value(statement(v).operands[0]).form : kScalar;
}

void Compiler::write_init(int v) {
  const Form form = form_of_accumulators(v);
  const size_t words = reduction(v).words;
  place(v).accumulator = memory_.buffer(8 * words, form);
  plan_.item_code[static_cast<size_t>(pass_)].push_back(call(reduction(v).init, form, place(v).accumulator, 0));
  const size_t number = form == kFull ? layout_.capacity() : form == kInner ? static_cast<size_t>(layout_.inner) : 1;
  plan_.accumulators.push_back({static_cast<uint16_t>(place(v).accumulator), static_cast<size_t>(pass_), words * number,
                                number, reduction(v).merge});
}

void Compiler::write_accumulate(int v) {
  int operands[2];
  const int count = reduction_operands(v, operands);
  const int a = layout_.schedule == Schedule::column ? place(operands[0]).reg : expanded(operands[0], kFull);
  const int accumulator = place(v).accumulator;
  Instruction i;
  if (layout_.schedule == Schedule::column) {
    i = call(reduction(v).column, form_of_accumulators(v), accumulator, a);
    mark_fold(i, v, 1);
  } else if (layout_.schedule == Schedule::row) {
    const int b = count == 2 ? expanded(operands[1], kFull) : 0;
    i = call(count == 2 ? reduction(v).row_of_products : reduction(v).row, kFull, accumulator, a, b);
    mark_fold(i, v, count);
  } else if (layout_.inner > kShortTile && comes_from_memory(bound_)) {
    // Long rows one by one, since memory is read faster in order.
    const Operand in = {a, kFull, size_of(operands[0])};
    i = call_in_steps(reduction(v).column, {accumulator, kInner, 0}, &in, 1);
  } else {
    const int columns = memory_.constant(static_cast<uint64_t>(layout_.inner));
    i = call(reduction(v).band, kFull, accumulator, a, columns);
  }
  this_pass().tile_code.push_back(i);
  release_operands(v);
}

uint16_t Compiler::count_register() {
  if (count_register_ < 0) count_register_ = memory_.constant(static_cast<uint64_t>(layout_.reduced_points));
  return static_cast<uint16_t>(count_register_);
}

void Compiler::write_finish(int v) {
  place(v).reg = destination(v);
  code(v).push_back(call(reduction(v).finish, value(v).form, place(v).reg, place(v).accumulator, count_register()));
}

}  // namespace onnxfuse::cpu
