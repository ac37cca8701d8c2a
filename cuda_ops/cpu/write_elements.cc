// Writes inputs, constants, element-wise operations and stores.
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "caches.h"
#include "compiler.h"

namespace onnxfuse::cpu {
namespace {

// Softmaxes of half of what else goes past the caches go there, too: their loop stores there at no cost. Of 4 MB on an
// EPYC, in turn with another session, one thread takes 0.20 to 0.25 ms in place of 0.29 to 0.35; of 2 MB on a Xeon 0.32
// in place of 0.47, two threads 0.27 in place of 0.33.
constexpr int64_t kLessOfSoftmax = 2;

// Points of the longest rows of these, whose exponentials the second-level cache holds.
constexpr int64_t kStreamedSoftmax = 131072;

}  // namespace

template <class Find>
void Compiler::write_call(int v, const int* operands, int count, Work work, const Find& find) {
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
  // Rows of a band that leave much to the loops that follow a pipeline's blocks.
  const bool short_rows = layout_.schedule == Schedule::band &&
                          (layout_.inner < kShortTile || (layout_.inner % static_cast<int64_t>(tile_.block) != 0 &&
                                                          layout_.reduced_points >= 8 * layout_.block));
  if (fn == nullptr || (in_steps && short_rows)) {
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
  i.work = work;
  i.op = statement(v).op;
  i.scalars = scalars;
  code(v).push_back(i);
}

void Compiler::write_input(int v) {
  const Statement& s = statement(v);
  const Value& x = value(v);
  const Access& access = bound_.inputs[static_cast<size_t>(v)];
  const Type actual = input_types_[static_cast<size_t>(s.tensor)];
  const size_t size = type_size(actual);
  const uint16_t address = memory_.address(access, Address::Base::input, s.tensor, size);
  if (in_pass(x.scope)) move_in_pass(address);
  int reg = memory_.register_of(address);
  const bool gathers = !analysis_.natural(access, x.form);
  plan_.addresses[address].dense = !gathers && x.form == kFull;
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

uint16_t Compiler::constant_of(float f) {
  uint64_t bits = 0;
  std::memcpy(&bits, &f, sizeof f);
  return memory_.constant(bits);
}

void Compiler::write_constant(int v) {
  const Statement& s = statement(v);
  uint64_t bits = 0;
  if (s.type == Type::f32) {
    place(v).reg = constant_of(static_cast<float>(s.literal.f));
    return;
  }
  if (s.type == Type::f64)
    std::memcpy(&bits, &s.literal.f, sizeof bits);
  else
    bits = s.type == Type::boolean ? s.literal.i != 0 : static_cast<uint64_t>(s.literal.i);  // little-endian
  place(v).reg = memory_.constant(bits);
}

bool Compiler::is_constant(int v, int number) const {
  const Statement& s = statement(v);
  return s.op == Op::constant && (is_float(s.type) ? s.literal.f == number : s.literal.i == number);
}

// Whether 1 / divisor is exact, so that a product with it is the quotient.
static bool has_exact_reciprocal(double divisor) {
  int exponent = 0;
  return std::fabs(std::frexp(divisor, &exponent)) == 0.5 && exponent > -100 && exponent < 100;
}

// What a primitive is in a pipeline, of operands of the type.
static Work work_of(const Statement& s, Type type) {
  if (s.op == Op::op_where) return type == Type::f32 ? Work::where : Work::none;
  if (type == Type::f32) return s.type == Type::f32 ? Work::primitive : Work::comparison;
  if (type == Type::boolean) return s.op == Op::op_equal ? Work::none : Work::logic;
  if (s.type != Type::boolean) return Work::none;
  return type == Type::i32 ? Work::comparison_of_i32 : type == Type::i64 ? Work::comparison_of_i64 : Work::none;
}

static Work work_of_cast(Type from, Type to) {
  if (from == Type::f32) return to == Type::u8 || to == Type::i8 ? Work::store_byte : Work::none;
  if (to != Type::f32) return Work::none;
  switch (from) {
    case Type::boolean:
      return Work::load_bool;
    case Type::u8:
      return Work::load_u8;
    case Type::i8:
      return Work::load_i8;
    case Type::i32:
      return Work::load_i32;
    case Type::i64:
      return Work::load_i64;
    default:
      return Work::none;
  }
}

void Compiler::write_primitive(int v) {
  if (analysis_.softmax_operand(v) >= 0) return write_softmax(v);
  const Statement& s = statement(v);
  const Type type = statement(s.operands[s.operand_count - 1]).type;  // of where: the values'
  if (s.op == Op::cast)
    return write_call(v, s.operands, 1, work_of_cast(type, s.type), [&](unsigned) { return tile_.cast(type, s.type); });
  if (s.op == Op::op_add && (value(s.operands[0]).absorbed || value(s.operands[1]).absorbed))
    return write_multiply_add(v);
  if (s.op == Op::op_exp && value(s.operands[0]).absorbed)
    return write_call(v, statement(s.operands[0]).operands, 2, Work::exp_of_difference,
                      [&](unsigned scalars) { return tile_.exp_of_difference(scalars); });
  if (s.op == Op::op_div && type == Type::f32 && statement(s.operands[1]).op == Op::op_reduce_sum &&
      statement(s.operands[1]).operands[0] == s.operands[0]) {
    write_call(v, s.operands, 2, Work::primitive,
               [&](unsigned scalars) { return scalars == 2 ? tile_.share : tile_.primitive(s.op, type, scalars); });
    if (Instruction& i = code(v).back(); i.scalars == 2) i.work = Work::share;
    return;
  }
  if (s.op == Op::op_pow && (is_constant(s.operands[1], 2) || is_constant(s.operands[1], 3))) return write_power(v);
  if (s.op == Op::op_div && type == Type::f32 && statement(s.operands[1]).op == Op::constant &&
      has_exact_reciprocal(statement(s.operands[1]).literal.f)) {
    write_call(v, s.operands, 2, Work::primitive,
               [&](unsigned scalars) { return tile_.primitive(Op::op_mul, type, scalars); });
    Instruction& i = code(v).back();
    i.op = Op::op_mul;
    i.b = constant_of(static_cast<float>(1 / statement(s.operands[1]).literal.f));
    return;
  }
  write_call(v, s.operands, s.operand_count, work_of(s, type),
             [&](unsigned scalars) { return tile_.primitive(s.op, type, scalars); });
}

// The address of an input of floats whose tiles come one after the other in memory; -1: there is none.
int Compiler::tile_input() const {
  for (int v = 0; v < analysis_.count(); ++v) {
    const Statement& s = statement(v);
    if (s.op != Op::input || !value(v).needed || input_types_[static_cast<size_t>(s.tensor)] != Type::f32) continue;
    for (size_t i = 0; i < plan_.addresses.size(); ++i)
      if (plan_.addresses[i].dense && plan_.addresses[i].reg == places_[static_cast<size_t>(v)].reg)
        return static_cast<int>(i);
  }
  return -1;
}

void Compiler::write_softmax(int v) {
  const int a = analysis_.softmax_operand(v);
  const Form form = value(v).form;  // of a, too
  const int in = expanded(a, form);
  plan_.rows_alone = true;
  place(v).reg = destination(v);  // another than in, which it reads again where a row is special
  for (int reader = 0; reader < 2; ++reader) release(a);  // the maximum and the difference
  const int ahead_of = tile_input();
  const bool direct = ahead_of >= 0 && plan_.addresses[static_cast<size_t>(ahead_of)].reg == in;
  // Past the caches, where nothing reads them there and the buffer leaves room in the second-level cache.
  const bool can_stream = (direct || tiles_stream()) && layout_.reduced_points <= kStreamedSoftmax &&
                          analysis_.direct_store(v) >= 0 && value(v).readers == 1 &&
                          largest_output() >= cache_share(threads_) / kLessOfSoftmax;
  const auto row = static_cast<size_t>(layout_.reduced_points);
  const size_t buffered = can_stream ? softmax_rows_buffered(row) * softmax_buffered(row) * sizeof(float) : 0;
  const uint16_t state = memory_.bytes(sizeof(SoftmaxState) + buffered);
  const uint16_t rows = memory_.constant(static_cast<uint64_t>(layout_.reduced_points));  // as in SoftmaxRows
  memory_.constant(may_come_from_memory(bound_));
  memory_.constant(can_stream);
  const int constant = analysis_.softmax_instead_of_nan(v);
  double instead = std::nan("");
  if (constant >= 0) {
    instead = static_cast<float>(statement(constant).literal.f);
    release(constant);
  }
  uint64_t bits = 0;
  std::memcpy(&bits, &instead, sizeof bits);
  memory_.constant(bits);
  streams_rows_ |= can_stream;
  plan_.softmaxes.push_back({state, ahead_of});
  code(v).push_back(call(tile_.softmax, form, place(v).reg, in, rows, state));
  if (can_stream) plan_.end_code.push_back(call(tile_.softmax_end, kScalar, state, 0, rows));
}

void Compiler::write_multiply_add(int v) {
  const Statement& s = statement(v);
  const int which = value(s.operands[0]).absorbed ? 0 : 1;
  const Statement& product = statement(s.operands[which]);
  int operands[3] = {product.operands[0], product.operands[1], s.operands[1 - which]};
  if (value(operands[0]).form != kFull) std::swap(operands[0], operands[1]);
  write_call(v, operands, 3, Work::multiply_add, [&](unsigned scalars) { return tile_.multiply_add(scalars); });
}

void Compiler::write_power(int v) {
  const Statement& s = statement(v);
  const Form form = value(v).form;
  const TileFn multiply = tile_.primitive(Op::op_mul, s.type, 0);
  const int base = expanded(s.operands[0], form);
  const auto product = [&](int out, int a) {
    Instruction i = call(multiply, form, out, a, base);
    if (s.type == Type::f32) i.work = Work::primitive;
    i.op = Op::op_mul;
    code(v).push_back(i);
  };
  const bool cube = is_constant(s.operands[1], 3);
  // Not where the cube goes: that may be an output in the place of the base, which is read again.
  const int square = cube ? memory_.take_temporary(size_of(v), form) : base;
  if (cube) product(square, base);
  release_operands(v);
  place(v).reg = destination(v);
  product(place(v).reg, square);
  if (cube) memory_.give_back(static_cast<uint16_t>(square), size_of(v), form);
}

void Compiler::write_store(size_t index) {
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

}  // namespace onnxfuse::cpu
