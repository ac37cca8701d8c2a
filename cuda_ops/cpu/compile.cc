// Writes a kernel's instructions.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "analysis.h"
#include "memory.h"
#include "plan.h"
#include "table.h"

namespace onnxfuse::cpu {
namespace {

// Bytes of one item's points that are kept for later passes; where there are more, they are computed again.
constexpr size_t kMostKept = 1 << 20;

// Items that are fewer and longer (in nanoseconds) are shared out among tasks.
constexpr int64_t kFewItems = 8;
constexpr double kLongItem = 60000;

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
           const std::vector<Type>& output_types, bool keep)
      : kernel_(kernel),
        bound_(bound),
        input_types_(input_types),
        layout_(plan_.layout),
        analysis_(kernel, bound, plan_.layout = make_layout(kernel, bound), output_types, keep),
        memory_(plan_),
        places_(kernel.statements.size()),
        stored_(kernel.outputs.size(), false),
        store_addresses_(kernel.outputs.size(), -1) {}

  KernelPlan compile() {
    plan_.item_code.resize(static_cast<size_t>(analysis_.passes()) + 1);
    plan_.passes.resize(static_cast<size_t>(analysis_.passes()));
    for (int v = 0; v < analysis_.count(); ++v)
      if (value(v).needed && value(v).scope == Scope::task) write_value(v);
    for (int stage = 0; stage <= analysis_.passes(); ++stage) {
      write_item(stage);
      if (stage < analysis_.passes()) write_pass(stage);
    }
    plan_.items = layout_.grid_points * (layout_.item_is_point() ? 1 : layout_.blocks);
    estimate();
    form_pipelines(plan_);
    return std::move(plan_);
  }

  size_t kept_bytes() const { return memory_.kept_bytes(); }

 private:
  const Statement& statement(int v) const { return kernel_.statements[static_cast<size_t>(v)]; }
  const Value& value(int v) const { return analysis_.value(v); }
  Place& place(int v) { return places_[static_cast<size_t>(v)]; }
  size_t size_of(int v) const { return type_size(statement(v).type); }
  Pass& this_pass() { return plan_.passes[static_cast<size_t>(pass_)]; }

  Code& code(Scope scope, int stage) {
    if (scope == Scope::task) return plan_.task_code;
    if (scope == Scope::item) return plan_.item_code[static_cast<size_t>(stage)];
    return scope == Scope::loop ? this_pass().loop_code : this_pass().tile_code;
  }
  Code& code(int v) { return value(v).once ? plan_.once_code : code(value(v).scope, value(v).stage); }

  static Instruction call(TileFn fn, Form form, int out, int a, int b = 0, int c = 0) {
    Instruction i;
    i.fn = fn;
    i.count = count_of(form);
    i.out = static_cast<uint16_t>(out);
    i.a = static_cast<uint16_t>(a);
    i.b = static_cast<uint16_t>(b);
    i.c = static_cast<uint16_t>(c);
    return i;
  }

  // From one index of a block to the next.
  uint32_t step(Form form, size_t size) const {
    if (form == kRows) return static_cast<uint32_t>(size);
    return form == kFull ? static_cast<uint32_t>(size * static_cast<size_t>(layout_.inner)) : 0;
  }

  // A call for each index of a block, over the inner points.
  Instruction call_in_steps(TileFn fn, Operand out, const Operand* operands, int count) const {
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

  Operand operand(int v) { return {place(v).reg, value(v).form, size_of(v)}; }

  // A register with an element of v for each of the form's.
  int expanded(int v, Form form) {
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

  // Writes out = f(operands), where find gives f for a mask of scalar operands. Operands are given back before out is
  // chosen, so that it may take the place of one of them.
  template <class Find>
  void write_call(int v, const int* operands, int count, Work work, const Find& find) {
    const Form form = value(v).form;
    Operand in[3] = {};
    bool in_steps = false;
    unsigned scalars = 0;
    for (int k = 0; k < count; ++k) {
      in[k] = operand(operands[k]);
      if (in[k].form != form && in[k].form != kScalar) in_steps = true;
    }
    for (int k = 0; k < count; ++k)
      if (form != kScalar && (in[k].form == kScalar || (in_steps && in[k].form == kRows))) scalars |= 1u << k;
    TileFn fn = find(scalars);
    if (fn == nullptr) {
      in_steps = false;
      for (int k = 0; k < count; ++k) {
        in[k].reg = expanded(operands[k], form);
        in[k].form = form;
      }
      scalars = 0;
      fn = find(scalars);
    }
    if (fn == nullptr)
      throw std::runtime_error(std::string("no CPU kernel for ") + op_name(statement(v).op) + " of " +
                               type_name(statement(v).type));
    release_operands(v);
    place(v).reg = destination(v);
    Instruction i = in_steps ? call_in_steps(fn, operand(v), in, count)
                             : call(fn, form, place(v).reg, in[0].reg, in[1].reg, in[2].reg);
    if (statement(v).type == Type::f32) i.work = work;
    i.op = statement(v).op;
    i.scalars = scalars;
    code(v).push_back(i);
  }

  void release(int v) {
    Place& p = place(v);
    if (p.uses == 0 || --p.uses > 0 || !p.temporary) return;
    memory_.give_back(static_cast<uint16_t>(p.reg), size_of(v), value(v).form);
    p.temporary = false;
  }

  void release_operands(int v) {
    const Statement& s = statement(v);
    for (int i = 0; i < s.operand_count; ++i) {
      if (value(s.operands[i]).absorbed) release_operands(s.operands[i]);
      release(s.operands[i]);
    }
  }

  void move_in_pass(int address) {
    std::vector<uint16_t>& moving = this_pass().moving;
    const uint16_t a = static_cast<uint16_t>(address);
    if (std::find(moving.begin(), moving.end(), a) == moving.end()) moving.push_back(a);
  }

  // The register that takes v's value.
  int destination(int v) {
    const Value& x = value(v);
    Place& p = place(v);
    if (x.form == kScalar) return memory_.buffer(size_of(v), kScalar);
    const bool computed_before = in_pass(x.scope) && x.first_pass != pass_;
    if (const int s = analysis_.direct_store(v); s >= 0 && !computed_before) {
      stored_[static_cast<size_t>(s)] = true;
      const int address = store_address(s);
      if (in_pass(x.scope)) move_in_pass(address);
      if (x.kept) p.kept_address = address;
      return memory_.register_of(static_cast<uint16_t>(address));
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

  int store_address(int index) {
    int& address = store_addresses_[static_cast<size_t>(index)];
    if (address >= 0) return address;
    const Store& s = analysis_.stores()[static_cast<size_t>(index)];
    address = memory_.address(*s.access, Address::Base::output, s.output->tensor, type_size(s.actual));
    plan_.addresses[static_cast<size_t>(address)].dense = s.contiguous && s.form == kFull;
    return address;
  }

  void write_value(int v) {
    const Statement& s = statement(v);
    if (value(v).absorbed) return;
    if (s.op == Op::input) {
      write_input(v);
    } else if (s.op == Op::constant) {
      write_constant(v);
    } else if (!is_reduction(s.op)) {
      write_primitive(v);
    } else if (layout_.schedule == Schedule::whole) {
      write_whole_reduction(v);
    } else {
      write_finish(v);
    }
    for (size_t i = 0; i < analysis_.stores().size(); ++i)
      if (analysis_.stores()[i].v == v && analysis_.stores()[i].scope == value(v).scope) write_store(i);
  }

  void write_input(int v) {
    const Statement& s = statement(v);
    const Value& x = value(v);
    const Access& access = bound_.inputs[static_cast<size_t>(v)];
    const Type actual = input_types_[static_cast<size_t>(s.tensor)];
    const size_t size = type_size(actual);
    const uint16_t address = memory_.address(access, Address::Base::input, s.tensor, size);
    if (in_pass(x.scope)) move_in_pass(address);
    int reg = memory_.register_of(address);
    const bool gathers = !analysis_.natural(access, x.form);
    const bool converts = is_16bit_float(actual);
    if (gathers) {
      const int raw = converts ? memory_.take_temporary(size, x.form) : destination(v);
      Instruction i = call(nullptr, x.form, raw, reg);
      i.count = Instruction::Count::pattern;
      i.pattern = memory_.gather(access, size, x.form);
      code(v).push_back(i);
      reg = raw;
    }
    if (converts) {
      const int out = destination(v);
      Instruction i = call(tile_.load(actual), x.form, out, reg);
      i.work = actual == Type::f16 ? Work::load_f16 : Work::load_bf16;
      code(v).push_back(i);
      if (gathers) memory_.give_back(static_cast<uint16_t>(reg), size, x.form);
      reg = out;
    }
    place(v).reg = reg;
  }

  void write_constant(int v) {
    const Statement& s = statement(v);
    uint64_t bits = 0;
    const float single = static_cast<float>(s.literal.f);
    if (s.type == Type::f32)
      std::memcpy(&bits, &single, sizeof single);
    else if (s.type == Type::f64)
      std::memcpy(&bits, &s.literal.f, sizeof bits);
    else
      bits = s.type == Type::boolean ? s.literal.i != 0 : static_cast<uint64_t>(s.literal.i);  // little-endian
    place(v).reg = memory_.constant(bits);
  }

  bool is_constant(int v, int number) const {
    const Statement& s = statement(v);
    return s.op == Op::constant && (is_float(s.type) ? s.literal.f == number : s.literal.i == number);
  }

  void write_primitive(int v) {
    const Statement& s = statement(v);
    const Type type = statement(s.operands[s.operand_count - 1]).type;  // of where: the values'
    if (s.op == Op::cast)
      return write_call(v, s.operands, 1, Work::none, [&](unsigned) { return tile_.cast(type, s.type); });
    if (s.op == Op::op_add && (value(s.operands[0]).absorbed || value(s.operands[1]).absorbed))
      return write_multiply_add(v);
    if (s.op == Op::op_exp && value(s.operands[0]).absorbed)
      return write_call(v, statement(s.operands[0]).operands, 2, Work::exp_of_difference,
                        [&](unsigned scalars) { return tile_.exp_of_difference(scalars); });
    if (s.op == Op::op_pow && (is_constant(s.operands[1], 2) || is_constant(s.operands[1], 3))) return write_power(v);
    write_call(v, s.operands, s.operand_count, type == Type::f32 ? Work::primitive : Work::none,
               [&](unsigned scalars) { return tile_.primitive(s.op, type, scalars); });
  }

  void write_multiply_add(int v) {
    const Statement& s = statement(v);
    const int which = value(s.operands[0]).absorbed ? 0 : 1;
    const Statement& product = statement(s.operands[which]);
    int operands[3] = {product.operands[0], product.operands[1], s.operands[1 - which]};
    if (value(operands[0]).form != kFull) std::swap(operands[0], operands[1]);
    write_call(v, operands, 3, Work::multiply_add, [&](unsigned scalars) { return tile_.multiply_add(scalars); });
  }

  // The square or the cube.
  void write_power(int v) {
    const Statement& s = statement(v);
    const Form form = value(v).form;
    const TileFn multiply = tile_.primitive(Op::op_mul, s.type, 0);
    const int base = expanded(s.operands[0], form);
    if (is_constant(s.operands[1], 2)) release_operands(v);  // else it is still read after the first product
    const int out = place(v).reg = destination(v);
    Instruction i = call(multiply, form, out, base, base);
    if (s.type == Type::f32) i.work = Work::primitive;
    i.op = Op::op_mul;
    code(v).push_back(i);
    if (is_constant(s.operands[1], 2)) return;
    i.a = static_cast<uint16_t>(out);
    code(v).push_back(i);
    release_operands(v);
  }

  void write_store(size_t index) {
    if (stored_[index]) return;
    stored_[index] = true;
    const Store& s = analysis_.stores()[index];
    const size_t size = type_size(s.actual);
    const int address = store_address(static_cast<int>(index));
    if (in_pass(s.scope)) move_in_pass(address);
    const int target = memory_.register_of(static_cast<uint16_t>(address));
    int reg = expanded(s.v, s.form);
    TileFn fn = nullptr;
    if (s.converts) fn = tile_.store(s.actual);
    if (s.rounds)
      fn = tile_.primitive(s.output->storage == Type::f16 ? Op::op_round_f16 : Op::op_round_bf16, Type::f32, 0);
    Code& where = code(s.scope, value(s.v).stage);
    const auto push = [&](Instruction i) {
      i.guarded = s.guarded();
      i.guard_grid = s.guard_grid;
      i.guard_loop = s.guard_loop;
      i.guard_block = s.guard_block;
      where.push_back(i);
    };
    if (s.contiguous || s.form == kScalar) {
      Instruction i = call(fn != nullptr ? fn : tile_.copy(size), s.form, target, reg);
      if (s.converts) i.work = s.actual == Type::f16 ? Work::store_f16 : Work::store_bf16;
      if (s.rounds) {
        i.work = Work::primitive;
        i.op = s.output->storage == Type::f16 ? Op::op_round_f16 : Op::op_round_bf16;
      }
      if (s.actual == Type::f32 && !s.rounds) i.work = Work::store;
      push(i);
    } else {
      const int converted = fn != nullptr ? memory_.take_temporary(size, s.form) : -1;
      if (fn != nullptr) push(call(fn, s.form, converted, reg));
      Instruction i = call(nullptr, s.form, target, fn != nullptr ? converted : reg);
      i.count = Instruction::Count::pattern;
      i.pattern = memory_.scatter(*s.access, size, s.form);
      push(i);
      if (fn != nullptr) memory_.give_back(static_cast<uint16_t>(converted), size, s.form);
    }
    release(s.v);
  }

  ReductionFns reduction(int v) const { return tile_.reduction(statement(v).op, statement(v).type); }

  // The operands of the product that reduction v absorbs, else its operand.
  int reduction_operands(int v, int* operands) const {
    const int operand = statement(v).operands[0];
    if (!value(operand).absorbed) {
      operands[0] = operand;
      return 1;
    }
    operands[0] = statement(operand).operands[0];
    operands[1] = statement(operand).operands[1];
    return 2;
  }

  void write_whole_reduction(int v) {
    int operands[2];
    const int count = reduction_operands(v, operands);
    const TileFn fn = count == 2 ? reduction(v).whole_of_products : reduction(v).whole;
    const Form form = static_cast<Form>(value(operands[0]).form | kInner);
    Operand in[2] = {};
    for (int k = 0; k < count; ++k) in[k] = {expanded(operands[k], form), form, size_of(operands[k])};
    release_operands(v);
    const int out = place(v).reg = destination(v);
    if (form == kFull)
      code(v).push_back(call_in_steps(fn, operand(v), in, count));
    else
      code(v).push_back(call(fn, kInner, out, in[0].reg, in[1].reg));
  }

  // Of a reduction in a pass: before it, in it and after it.

  bool accumulates_tiles(int v) const {
    return !layout_.item_is_point() && value(statement(v).operands[0]).form == kFull;
  }

  void write_init(int v) {
    const Form form = accumulates_tiles(v) ? kFull : kScalar;
    place(v).accumulator = memory_.buffer(8, form);
    plan_.item_code[static_cast<size_t>(pass_)].push_back(call(reduction(v).init, form, place(v).accumulator, 0));
    plan_.accumulators.push_back(
        {static_cast<uint16_t>(place(v).accumulator), static_cast<size_t>(pass_), reduction(v).merge});
  }

  void write_accumulate(int v) {
    int operands[2];
    const int count = reduction_operands(v, operands);
    if (!layout_.item_is_point()) {
      this_pass().tile_code.push_back(call(reduction(v).column, accumulates_tiles(v) ? kFull : kScalar,
                                           place(v).accumulator, place(operands[0]).reg));
    } else {
      const int a = expanded(operands[0], kFull), b = count == 2 ? expanded(operands[1], kFull) : 0;
      this_pass().tile_code.push_back(
          call(count == 2 ? reduction(v).row_of_products : reduction(v).row, kFull, place(v).accumulator, a, b));
    }
    release_operands(v);
  }

  void write_finish(int v) {
    if (count_register_ < 0) count_register_ = memory_.constant(static_cast<uint64_t>(layout_.reduced_points));
    place(v).reg = destination(v);
    code(v).push_back(call(reduction(v).finish, value(v).form, place(v).reg, place(v).accumulator, count_register_));
  }

  // Counts, for each value of the code that comes next, its uses there; one that other code uses too counts none and
  // so keeps its register.
  template <class InCode>
  void count_uses(const InCode& in_code, int stage, bool pass) {
    for (int v = 0; v < analysis_.count(); ++v)
      if (in_code(v)) place(v).uses = 0;
    std::vector<bool> lasts(kernel_.statements.size(), false);
    const auto use = [&](int v, bool here) {
      if (!in_code(v)) return;
      if (here)
        ++place(v).uses;
      else
        lasts[static_cast<size_t>(v)] = true;
    };
    const bool whole = layout_.schedule == Schedule::whole;
    for (int v = 0; v < analysis_.count(); ++v) {
      if (!value(v).needed) continue;
      const Statement& s = statement(v);
      const bool here = is_reduction(s.op) && !whole ? pass && analysis_.accumulates(v, stage) : in_code(v);
      for (int i = 0; i < s.operand_count; ++i) use(s.operands[i], here);
    }
    for (const Store& s : analysis_.stores()) use(s.v, in_pass(s.scope) == pass && value(s.v).stage == stage);
    for (int v = 0; v < analysis_.count(); ++v)
      if (!pass && in_code(v) && (lasts[static_cast<size_t>(v)] || value(v).once)) place(v).uses = 0;
  }

  void write_item(int stage) {
    const auto here = [&](int v) {
      return value(v).needed && value(v).scope == Scope::item && value(v).stage == stage;
    };
    memory_.forget_temporaries();
    count_uses(here, stage, false);
    for (int v = 0; v < analysis_.count(); ++v)
      if (here(v)) write_value(v);
    for (size_t i = 0; i < analysis_.stores().size(); ++i) {
      const Store& s = analysis_.stores()[i];
      if (s.scope == Scope::item && value(s.v).stage == stage) write_store(i);
    }
  }

  void write_pass(int pass) {
    pass_ = pass;
    const auto here = [&](int v) { return analysis_.wanted(pass, v); };
    memory_.forget_temporaries();
    std::vector<std::vector<int>> reductions(kernel_.statements.size());  // by operand
    for (int v = 0; v < analysis_.count(); ++v) {
      if (analysis_.accumulates(v, pass)) {
        write_init(v);
        reductions[static_cast<size_t>(statement(v).operands[0])].push_back(v);
      }
      if (!in_pass(value(v).scope)) continue;
      Place& p = place(v);
      p.expanded = -1;
      p.uses = 0;
      p.temporary = false;
      if (!here(v) && p.kept_address >= 0 && value(v).last_pass >= pass) {
        move_in_pass(p.kept_address);
        p.reg = memory_.register_of(static_cast<uint16_t>(p.kept_address));
      }
    }
    count_uses(here, pass, true);
    for (int v = 0; v < analysis_.count(); ++v) {
      if (here(v)) write_value(v);
      for (int r : reductions[static_cast<size_t>(v)]) write_accumulate(r);
    }
    for (size_t i = 0; i < analysis_.stores().size(); ++i) {
      const Store& s = analysis_.stores()[i];
      if (in_pass(s.scope) && value(s.v).stage == pass) write_store(i);
    }
  }

  // About what an item costs, in nanoseconds.
  void estimate() {
    constexpr double per_call = 4, per_point = 0.06;
    const double points = static_cast<double>(layout_.capacity());
    const auto cost = [&](const Code& code) {
      double sum = per_call * static_cast<double>(code.size());
      for (const Instruction& i : code) {
        if (i.count == Instruction::Count::steps) sum += per_call * static_cast<double>(layout_.block);
        if (i.count != Instruction::Count::one) sum += per_point * points;
      }
      return sum;
    };
    for (const Code& c : plan_.item_code) plan_.item_cost += cost(c);
    const double blocks = static_cast<double>(layout_.item_is_point() ? layout_.blocks : 1);
    for (const Pass& p : plan_.passes)
      plan_.item_cost += static_cast<double>(layout_.loop_points) * (cost(p.loop_code) + blocks * cost(p.tile_code));
  }

  const Kernel& kernel_;
  const BoundKernel& bound_;
  const std::vector<Type>& input_types_;
  const TileKernels& tile_ = tile_kernels();
  KernelPlan plan_;
  const Layout& layout_;
  const Analysis analysis_;
  Memory memory_;
  std::vector<Place> places_;
  std::vector<bool> stored_;          // by index of the analysis' stores
  std::vector<int> store_addresses_;  // likewise
  int pass_ = 0;
  int count_register_ = -1;
};

}  // namespace

KernelPlan compile_kernel(const Kernel& kernel, const BoundKernel& bound, const std::vector<Type>& input_types,
                          const std::vector<Type>& output_types) {
  Compiler compiler(kernel, bound, input_types, output_types, true);
  KernelPlan plan = compiler.compile();
  const bool shares =
      plan.layout.item_is_point() && plan.items < kFewItems && plan.item_cost >= kLongItem && plan.tiles() > 1;
  if (!shares && compiler.kept_bytes() <= kMostKept) return plan;
  plan = Compiler(kernel, bound, input_types, output_types, false).compile();
  plan.shares_rows = shares;
  return plan;
}

}  // namespace onnxfuse::cpu
