// Writes scans: of whole rows at once; of rows in passes, part by part, or of many rows point by point.
#include "compiler.h"

namespace onnxfuse::cpu {

void Compiler::write_whole_scan(int v) {
  const int a = statement(v).operands[0];
  const Form form = value(v).form;  // that of the operand, and inner
  const Operand in = {expanded(a, form), form, size_of(a)};
  release_operands(v);
  place(v).reg = destination(v);
  if (form == kFull)
    code(v).push_back(call_in_steps(scan(v).whole, operand(v), &in, 1));
  else
    code(v).push_back(call(scan(v).whole, kInner, place(v).reg, in.reg));
}

void Compiler::write_scan(int v) {
  const ScanFns fns = scan(v);
  const Form form = value(v).form;
  const bool by_row = layout_.item_is_point();
  const uint16_t state = by_row ? memory_.buffer(16, kScalar) : memory_.buffer(8, form);
  const int a = expanded(statement(v).operands[0], form);
  // Without a loop there is one point only, whose code is the item's.
  Code& before = in_pass(value(v).scope) ? plan_.item_code[static_cast<size_t>(pass_)] : code(v);
  before.push_back(call(by_row ? fns.init : fns.column_init, by_row ? kScalar : form, state, 0));
  release_operands(v);
  place(v).reg = destination(v);
  code(v).push_back(call(by_row ? fns.row : fns.column, form, place(v).reg, a, state));
  if (analysis_.totals_pass() >= 0) plan_.scans.push_back({state, totals_[static_cast<size_t>(v)], fns.join});
}

void Compiler::write_total(int v) {
  const uint16_t state = totals_[static_cast<size_t>(v)] = memory_.buffer(16, kScalar);
  plan_.item_code[static_cast<size_t>(pass_)].push_back(call(scan(v).init, kScalar, state, 0));
  this_pass().tile_code.push_back(call(scan(v).total, kFull, state, expanded(statement(v).operands[0], kFull)));
  release_operands(v);
}

}  // namespace onnxfuse::cpu
