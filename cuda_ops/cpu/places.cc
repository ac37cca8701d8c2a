// Where values lie, and the calls that take them from there.
#include "compiler.h"

namespace onnxfuse::cpu {
namespace {

Instruction::Count count_of(Form form) {
  switch (form) {
    case kScalar:
      return Instruction::Count::one;
    case kRows:
      return Instruction::Count::rows;
    case kInner:
      return Instruction::Count::inner;
    default:
      return Instruction::Count::tile;
  }
}

}  // namespace

Instruction Compiler::call(TileFn fn, Form form, int out, int a, int b, int c) {
  Instruction i;
  i.fn = fn;
  i.count = count_of(form);
  i.out = static_cast<uint16_t>(out);
  i.a = static_cast<uint16_t>(a);
  i.b = static_cast<uint16_t>(b);
  i.c = static_cast<uint16_t>(c);
  return i;
}

uint32_t Compiler::step(Form form, size_t size) const {
  if (form == kRows) return static_cast<uint32_t>(size);
  return form == kFull ? static_cast<uint32_t>(size * static_cast<size_t>(layout_.inner)) : 0;
}

Instruction Compiler::call_in_steps(TileFn fn, Operand out, const Operand* operands, int count) const {
  int regs[3] = {0, 0, 0};
  uint32_t steps[3] = {0, 0, 0};
  for (int k = 0; k < count; ++k) {
    regs[k] = operands[k].reg;
    steps[k] = step(operands[k].form, operands[k].size);
  }
  Instruction i = call(fn, kFull, out.reg, regs[0], regs[1], regs[2]);
  i.count = Instruction::Count::steps;
  i.step_out = step(out.form, out.size);
  i.step_a = steps[0];
  i.step_b = steps[1];
  i.step_c = steps[2];
  return i;
}

int Compiler::expanded(int v, Form form) {
  const Form own = value(v).form;
  if (own == form) return place(v).reg;
  Place& p = place(v);
  if (p.expanded >= 0) return p.expanded;
  const size_t size = size_of(v);
  p.expanded = memory_.buffer(size, kFull);
  if (own == kScalar) {  // for any form
    Instruction i = call(tile_.splat(size), kFull, p.expanded, p.reg);
    i.count = Instruction::Count::capacity;
    code(v).push_back(i);
  } else {
    const Operand in = operand(v);
    code(value(v).scope, value(v).stage)
        .push_back(
            call_in_steps(own == kRows ? tile_.splat(size) : tile_.copy(size), {p.expanded, kFull, size}, &in, 1));
  }
  return p.expanded;
}

void Compiler::release(int v) {
  Place& p = place(v);
  if (p.uses == 0 || --p.uses > 0 || !p.temporary) return;
  memory_.give_back(static_cast<uint16_t>(p.reg), size_of(v), value(v).form);
  p.temporary = false;
}

void Compiler::release_operands(int v) {
  const Statement& s = statement(v);
  for (int i = 0; i < s.operand_count; ++i) {
    if (value(s.operands[i]).absorbed) release_operands(s.operands[i]);
    release(s.operands[i]);
  }
}

// Whether v goes past the caches to its output, while what reads it again does so in a tile beside. What a pipeline
// holds must not depend on it, since a reduction rounds in another way in one: so v is an operation that pipelines
// have, and there are not so many that they are cut. Nor must the schedule of long rows.
bool Compiler::streams_copy(int v) const {
  constexpr size_t few = 24;
  const Op op = statement(v).op;
  return plan_.streams && layout_.schedule == Schedule::whole && layout_.reduced_points <= kWholeRow &&
         value(v).form == kFull && value(v).readers > 1 && statement(v).type == Type::f32 &&
         (op == Op::op_add || op == Op::op_sub || op == Op::op_mul) && kernel_.statements.size() <= few;
}

int Compiler::destination(int v) {
  const Value& x = value(v);
  Place& p = place(v);
  if (x.form == kScalar && !x.kept) return memory_.buffer(size_of(v), kScalar);
  const bool computed_before = in_pass(x.scope) && x.first_pass != pass_;
  if (const int s = analysis_.direct_store(v); s >= 0 && !computed_before && !streams_copy(v)) {
    stored_[static_cast<size_t>(s)] = true;
    const int address = store_address(s);
    if (in_pass(x.scope)) move_in_pass(address);
    if (x.kept) p.kept_address = address;
    return memory_.register_of(static_cast<uint16_t>(address));
  }
  if (const int s = analysis_.borrowed_store(v); s >= 0 && !borrowed_[static_cast<size_t>(s)]) {
    borrowed_[static_cast<size_t>(s)] = true;
    return memory_.register_of(static_cast<uint16_t>(store_address(s)));
  }
  if (in_pass(x.scope) && x.kept && !computed_before) {
    const int lender = analysis_.lender(v);
    p.kept_address = lender >= 0 ? store_address(lender) : memory_.kept_address(size_of(v));
    move_in_pass(p.kept_address);
    return memory_.register_of(static_cast<uint16_t>(p.kept_address));
  }
  if (p.uses == 0) return memory_.buffer(size_of(v), x.form);  // other code uses it, so it must last
  p.temporary = true;
  return memory_.take_temporary(size_of(v), x.form);
}

int Compiler::store_address(int index) {
  int& address = store_addresses_[static_cast<size_t>(index)];
  if (address >= 0) return address;
  const Store& s = analysis_.stores()[static_cast<size_t>(index)];
  address = memory_.address(*s.access, Address::Base::output, s.output->tensor, type_size(s.actual));
  plan_.addresses[static_cast<size_t>(address)].dense = s.contiguous && s.form == kFull;
  return address;
}

}  // namespace onnxfuse::cpu
