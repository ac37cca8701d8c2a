// Turns a kernel into instructions for its layout.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "plan.h"
#include "table.h"

namespace onnxfuse::cpu {
namespace {

constexpr size_t kMostKept =
    1 << 20;  // bytes of one item's points kept for later passes; beyond, they are computed again

size_t value_size(Type type) { return type_size(type); }

// Where a value is computed: once per task, per item, per point of the loop, per tile.
enum class Scope : uint8_t { task, item, loop, tile };

struct Value {
  uint32_t deps = 0;  // dimensions of the space
  Scope scope = Scope::task;
  bool vector = false;  // one element for each point of the tile, or one for all
  int stage = 0;        // the first pass that can use it
  bool needed = false;
  bool kept = false;    // stays in memory for later passes
  int first_pass = -1;  // that computes it, of scope loop or tile
  int reg = -1;
  int splat_reg = -1;
  bool temporary = false;  // reg is given back after the last use
  int uses = 0;            // that are left in the code being written
  int accumulator = -1;    // register, of a reduction
};

class Compiler {
 public:
  Compiler(const Kernel& kernel, const BoundKernel& bound, const std::vector<Type>& input_types,
           const std::vector<Type>& output_types, bool keep)
      : kernel_(kernel), bound_(bound), input_types_(input_types), output_types_(output_types), keep_(keep) {
    plan_.layout = make_layout(kernel, bound);
  }

  KernelPlan compile() {
    for (const Dim& d : layout().grid) grid_mask_ |= d.mask;
    for (const Dim& d : layout().loop) loop_mask_ |= d.mask;
    for (const Dim& d : layout().tile) tile_mask_ |= d.mask;
    classify();
    plan_passes();
    plan_.item_code.resize(static_cast<size_t>(passes_) + 1);
    plan_.passes.resize(static_cast<size_t>(passes_));
    write();
    plan_.items = layout().grid_points * (layout().column ? layout().blocks : 1);
    estimate();
    return std::move(plan_);
  }

  size_t kept_bytes() const { return kept_bytes_; }

 private:
  const Layout& layout() const { return plan_.layout; }
  const Statement& statement(int v) const { return kernel_.statements[static_cast<size_t>(v)]; }
  Value& value(int v) { return values_[static_cast<size_t>(v)]; }
  int count() const { return static_cast<int>(kernel_.statements.size()); }
  bool in_pass(Scope scope) const { return scope >= Scope::loop; }

  static uint32_t moving_dims(const BoundKernel& bound, const Access& access) {
    uint32_t dims = 0;
    for (size_t d = 0; d < access.strides.size(); ++d)
      if (access.strides[d] != 0 && bound.extents[d] != 1) dims |= 1u << d;
    return dims;
  }

  Scope scope_of(uint32_t deps) const {
    if (deps & loop_mask_) return deps & tile_mask_ ? Scope::tile : Scope::loop;
    if (deps & tile_mask_) return layout().column ? Scope::item : Scope::tile;
    return deps & grid_mask_ ? Scope::item : Scope::task;
  }

  // Sets deps, scope, vector and stage of all values, and which are needed.
  void classify() {
    values_.resize(kernel_.statements.size());
    for (int v = 0; v < count(); ++v) {
      const Statement& s = statement(v);
      Value& x = value(v);
      Scope least = Scope::task;
      if (s.op == Op::input) x.deps = moving_dims(bound_, bound_.inputs[static_cast<size_t>(v)]);
      if (s.op == Op::input) least = Scope::item;
      for (int i = 0; i < s.operand_count; ++i) {
        const Value& operand = value(s.operands[i]);
        x.deps |= operand.deps;
        x.stage = std::max(x.stage, operand.stage);
        if (!is_reduction(s.op)) least = std::max(least, operand.scope);
      }
      if (is_reduction(s.op)) {
        x.deps &= ~kernel_.space.reduced_mask();
        ++x.stage;
        least = Scope::item;
      }
      x.vector = (x.deps & tile_mask_) != 0;
      x.scope = std::max(least, scope_of(x.deps));
      if (x.scope == Scope::loop && x.vector) x.scope = Scope::tile;
    }
    for (const Output& o : kernel_.outputs) value(o.value).needed = true;
    for (int v = count() - 1; v >= 0; --v)
      if (value(v).needed)
        for (int i = 0; i < statement(v).operand_count; ++i) value(statement(v).operands[i]).needed = true;
  }

  // What is stored, and where in the code.
  struct Store {
    const Output* output = nullptr;
    const Access* access = nullptr;
    int v = 0;
    Scope scope = Scope::item;
    Type actual = Type::f32;
    bool rounds = false;      // through a 16-bit type, the element is f32
    bool converts = false;    // to a 16-bit type
    bool vector = false;      // takes the points of the tile, else one element
    bool contiguous = false;  // the tile's points lie one after the other
    uint32_t guard_grid = 0, guard_loop = 0;
    bool guard_block = false;
    bool done = false;
    int address = -1;
    bool guarded() const { return guard_grid != 0 || guard_loop != 0 || guard_block; }
  };

  Store make_store(const Output& o, const Access& access) {
    Store s;
    s.output = &o;
    s.access = &access;
    s.v = o.value;
    s.actual = output_types_[static_cast<size_t>(o.tensor)];
    s.converts = is_16bit_float(s.actual);
    s.rounds = is_16bit_float(o.storage) && !s.converts;
    const uint32_t dims = moving_dims(bound_, access);
    const auto lacks = [&](const Dim& d) { return (dims & d.mask) == 0; };
    for (size_t d = 0; d < layout().grid.size(); ++d)
      if (lacks(layout().grid[d])) s.guard_grid |= 1u << d;
    s.vector = (dims & tile_mask_) != 0;
    s.scope = std::max({value(s.v).scope, scope_of(dims), Scope::item});
    if (s.scope == Scope::loop && (s.vector || value(s.v).vector)) s.scope = Scope::tile;
    if (in_pass(s.scope))
      for (size_t d = 0; d < layout().loop.size(); ++d)
        if (lacks(layout().loop[d])) s.guard_loop |= 1u << d;
    if (!layout().tile.empty() && layout().blocks > 1 && lacks(layout().tile[0]))
      s.guard_block = layout().column || s.scope == Scope::tile;
    s.contiguous = s.vector && natural(access, type_size(s.actual)) && !s.guard_block;
    return s;
  }

  // Whether the tile's points lie one after the other.
  bool natural(const Access& access, size_t) const {
    int64_t expected = 1;
    for (size_t d = layout().tile.size(); d-- > 0;) {
      if (access.strides[static_cast<size_t>(layout().tile[d].innermost)] != expected) return false;
      expected *= layout().tile[d].extent;
    }
    return true;
  }

  bool is_direct(const Store& s) {
    const Statement& source = statement(s.v);
    return s.contiguous && !s.rounds && !s.converts && !s.guarded() && value(s.v).vector &&
           value(s.v).scope == s.scope && source.op != Op::input;
  }

  // An input that a later pass had better load again.
  bool is_cheap(int v) {
    const Statement& s = statement(v);
    if (s.op != Op::input) return s.op == Op::constant;
    return !value(v).vector || natural(bound_.inputs[static_cast<size_t>(v)], 0);
  }

  void need_in_pass(int v, int pass) {
    Value& x = value(v);
    if (!in_pass(x.scope) || wanted_[static_cast<size_t>(pass)][static_cast<size_t>(v)]) return;
    if (x.first_pass >= 0 && x.first_pass < pass && x.scope == Scope::tile && !is_cheap(v) &&
        (keep_ || direct_store(v) != nullptr)) {
      x.kept = true;
      return;
    }
    wanted_[static_cast<size_t>(pass)][static_cast<size_t>(v)] = true;
    if (x.first_pass < 0) x.first_pass = pass;
    for (int i = 0; i < statement(v).operand_count; ++i)
      if (!is_reduction(statement(v).op)) need_in_pass(statement(v).operands[i], pass);
  }

  Store* direct_store(int v) {
    for (Store& s : stores_)
      if (s.v == v && is_direct(s)) return &s;
    return nullptr;
  }

  void plan_passes() {
    for (size_t i = 0; i < kernel_.outputs.size(); ++i)
      stores_.push_back(make_store(kernel_.outputs[i], bound_.outputs[i]));
    for (int v = 0; v < count(); ++v) {
      if (value(v).needed && is_reduction(statement(v).op)) passes_ = std::max(passes_, value(v).stage);
    }
    for (const Store& s : stores_)
      if (in_pass(s.scope)) passes_ = std::max(passes_, value(s.v).stage + 1);
    wanted_.assign(static_cast<size_t>(passes_), std::vector<bool>(kernel_.statements.size(), false));
    for (int p = 0; p < passes_; ++p) {
      for (const Store& s : stores_)
        if (in_pass(s.scope) && value(s.v).stage == p) need_in_pass(s.v, p);
      for (int v = 0; v < count(); ++v)
        if (value(v).needed && is_reduction(statement(v).op) && value(v).stage == p + 1)
          need_in_pass(statement(v).operands[0], p);
    }
  }

  // Registers and addresses.

  uint16_t new_register(Register::Kind kind, size_t offset) {
    if (plan_.registers.size() >= 0xffff) throw std::runtime_error("the program needs too many registers");
    plan_.registers.push_back({kind, offset});
    return static_cast<uint16_t>(plan_.registers.size() - 1);
  }

  size_t reserve(size_t bytes) {
    const size_t offset = plan_.arena_bytes;
    plan_.arena_bytes += (bytes + 63) / 64 * 64;
    return offset;
  }

  uint16_t new_buffer(size_t size, bool vector) {
    return new_register(Register::Kind::arena, reserve(size * (vector ? layout().capacity() : 1)));
  }

  uint16_t new_constant(uint64_t bits) {
    plan_.constants.push_back(bits);
    return new_register(Register::Kind::constant, plan_.constants.size() - 1);
  }

  uint16_t take_temporary(size_t size) {
    std::vector<uint16_t>& free = free_[size];
    if (free.empty()) return new_buffer(size, true);
    const uint16_t reg = free.back();
    free.pop_back();
    return reg;
  }

  int new_address(const Access& access, Address::Base base, int tensor, size_t size) {
    Address a;
    const int64_t bytes = static_cast<int64_t>(size);
    const auto stride = [&](const Dim& d) { return access.strides[static_cast<size_t>(d.innermost)] * bytes; };
    a.base = base;
    a.tensor = tensor;
    a.offset = access.offset * bytes;
    a.reg = new_register(Register::Kind::address, 0);
    if (!layout().tile.empty()) a.block = stride(layout().tile[0]) * layout().block;
    for (const Dim& d : layout().grid) a.grid.push_back(stride(d));
    for (const Dim& d : layout().loop) a.loop.push_back(stride(d));
    plan_.addresses.push_back(a);
    return static_cast<int>(plan_.addresses.size() - 1);
  }

  // Memory for a value at all points of an item.
  int new_kept_address(size_t size) {
    Address a;
    a.base = Address::Base::arena;
    a.reg = new_register(Register::Kind::address, 0);
    int64_t bytes = static_cast<int64_t>(size) * layout().inner;
    if (!layout().column) {
      a.block = bytes * layout().block;
      bytes *= layout().tile_extent;
    } else {
      bytes *= layout().block;
    }
    a.grid.assign(layout().grid.size(), 0);
    a.loop.resize(layout().loop.size());
    for (size_t d = a.loop.size(); d-- > 0;) {
      a.loop[d] = bytes;
      bytes *= layout().loop[d].extent;
    }
    if (layout().column) a.block = 0;
    a.offset = static_cast<int64_t>(reserve(static_cast<size_t>(bytes)));
    kept_bytes_ += static_cast<size_t>(bytes);
    plan_.addresses.push_back(a);
    return static_cast<int>(plan_.addresses.size() - 1);
  }

  void move_in_pass(int address) {
    plan_.passes[static_cast<size_t>(pass_)].moving.push_back(static_cast<uint16_t>(address));
  }

  // Code.

  Code& code(Scope scope, int stage) {
    if (scope == Scope::task) return plan_.task_code;
    if (scope == Scope::item) return plan_.item_code[static_cast<size_t>(stage)];
    Pass& pass = plan_.passes[static_cast<size_t>(pass_)];
    return scope == Scope::loop ? pass.loop_code : pass.tile_code;
  }
  Code& code(int v) { return code(value(v).scope, value(v).stage); }

  static Instruction call(TileFn fn, bool vector, int out, int a, int b = 0, int c = 0) {
    Instruction i;
    i.fn = fn;
    i.count = vector ? Instruction::Count::tile : Instruction::Count::one;
    i.out = static_cast<uint16_t>(out);
    i.a = static_cast<uint16_t>(a);
    i.b = static_cast<uint16_t>(b);
    i.c = static_cast<uint16_t>(c);
    return i;
  }

  // A register with one element for each point of the tile.
  int vector_register(int v) {
    Value& x = value(v);
    if (x.vector) return x.reg;
    if (x.splat_reg < 0) {
      const size_t size = value_size(statement(v).type);
      x.splat_reg = new_buffer(size, true);
      Instruction i = call(kernels_.splat(size), true, x.splat_reg, x.reg);
      i.count = Instruction::Count::capacity;
      code(v).push_back(i);
    }
    return x.splat_reg;
  }

  void release(int v) {
    Value& x = value(v);
    if (--x.uses == 0 && x.temporary) {
      free_[value_size(statement(v).type)].push_back(static_cast<uint16_t>(x.reg));
      x.temporary = false;
    }
  }

  // The register that takes v's value.
  int destination(int v) {
    Value& x = value(v);
    const size_t size = value_size(statement(v).type);
    if (!x.vector) return new_buffer(size, false);
    if (Store* s = direct_store(v); s != nullptr && !(in_pass(x.scope) && x.first_pass != pass_)) {
      open_store(*s);
      s->done = true;
      if (x.kept) kept_address_[static_cast<size_t>(v)] = s->address;
      return plan_.addresses[static_cast<size_t>(s->address)].reg;
    }
    if (in_pass(x.scope) && x.kept && x.first_pass == pass_) {
      int& address = kept_address_[static_cast<size_t>(v)];
      address = new_kept_address(size);
      move_in_pass(address);
      return plan_.addresses[static_cast<size_t>(address)].reg;
    }
    if (x.uses == 0) return new_buffer(size, true);  // used by other code only, so it must last
    x.temporary = true;
    return take_temporary(size);
  }

  void open_store(Store& s) {
    if (s.address >= 0) return;
    s.address = new_address(*s.access, Address::Base::output, s.output->tensor, type_size(s.actual));
    if (in_pass(s.scope)) move_in_pass(s.address);
  }

  void write_input(int v) {
    const Statement& s = statement(v);
    Value& x = value(v);
    const Access& access = bound_.inputs[static_cast<size_t>(v)];
    const Type actual = input_types_[static_cast<size_t>(s.tensor)];
    const size_t size = type_size(actual);
    const int address = new_address(access, Address::Base::input, s.tensor, size);
    if (in_pass(x.scope)) move_in_pass(address);
    int reg = plan_.addresses[static_cast<size_t>(address)].reg;
    const bool gathers = x.vector && !natural(access, size);
    const bool converts = is_16bit_float(actual);
    if (gathers) {
      const int raw = converts ? take_temporary(size) : destination(v);
      Instruction i = call(nullptr, true, raw, reg);
      i.count = Instruction::Count::pattern;
      i.pattern = gather_pattern(access, size);
      code(v).push_back(i);
      reg = raw;
    }
    if (converts) {
      const int out = destination(v);
      code(v).push_back(call(kernels_.load(actual), x.vector, out, reg));
      if (gathers) free_[size].push_back(static_cast<uint16_t>(reg));
      reg = out;
    }
    x.reg = reg;
  }

  uint16_t gather_pattern(const Access& access, size_t size) {
    CopyPattern p;
    p.size = size;
    p.per_block = true;
    int64_t compact = static_cast<int64_t>(size);
    for (size_t d = layout().tile.size(); d-- > 0;) {
      const Dim& dim = layout().tile[d];
      const int64_t extent = d == 0 ? 1 : dim.extent;
      const int64_t in = access.strides[static_cast<size_t>(dim.innermost)] * static_cast<int64_t>(size);
      add_dim(p, {extent, compact, in});
      compact *= extent;
    }
    plan_.patterns.push_back(p);
    return static_cast<uint16_t>(plan_.patterns.size() - 1);
  }

  // Adds the next dimension outwards, merged with the last one where both strides allow.
  static void add_dim(CopyPattern& p, CopyDim outer) {
    if (!p.dims.empty()) {
      CopyDim& inner = p.dims.front();
      if (outer.out_stride == inner.out_stride * inner.extent && outer.in_stride == inner.in_stride * inner.extent) {
        inner.extent *= outer.extent;
        return;
      }
    }
    p.dims.insert(p.dims.begin(), outer);
  }

  // Stores the points whose index is 0 along the dimensions that the output lacks.
  uint16_t scatter_pattern(const Access& access, size_t size) {
    CopyPattern p;
    p.size = size;
    p.per_block = false;
    int64_t in = static_cast<int64_t>(size);
    for (size_t d = layout().tile.size(); d-- > 0;) {
      const Dim& dim = layout().tile[d];
      const int64_t stride = access.strides[static_cast<size_t>(dim.innermost)] * static_cast<int64_t>(size);
      if (stride != 0) {
        add_dim(p, {d == 0 ? 1 : dim.extent, stride, in});
        if (d == 0) p.per_block = true;
      }
      in *= dim.extent;
    }
    plan_.patterns.push_back(p);
    return static_cast<uint16_t>(plan_.patterns.size() - 1);
  }

  void write_constant(int v) {
    const Statement& s = statement(v);
    uint64_t bits = 0;
    if (s.type == Type::f32) {
      const float f = static_cast<float>(s.literal.f);
      std::copy_n(reinterpret_cast<const char*>(&f), sizeof f, reinterpret_cast<char*>(&bits));
    } else if (s.type == Type::f64) {
      std::copy_n(reinterpret_cast<const char*>(&s.literal.f), sizeof bits, reinterpret_cast<char*>(&bits));
    } else {
      bits = s.type == Type::boolean ? s.literal.i != 0 : static_cast<uint64_t>(s.literal.i);  // little-endian
    }
    value(v).reg = new_constant(bits);
  }

  bool is_constant(int v, double number) const {
    const Statement& s = statement(v);
    return s.op == Op::constant &&
           (is_float(s.type) ? s.literal.f == number : static_cast<double>(s.literal.i) == number);
  }

  void write_primitive(int v) {
    const Statement& s = statement(v);
    Value& x = value(v);
    const Type type = statement(s.operands[s.operand_count - 1]).type;  // of where: the values'
    const int base = s.operands[0];
    if (s.op == Op::op_pow && (is_constant(s.operands[1], 2) || is_constant(s.operands[1], 3))) {
      const TileFn multiply = kernels_.primitive(Op::op_mul, type, 0);
      const int a = value(base).reg;
      if (is_constant(s.operands[1], 2)) release_operands(v);
      x.reg = destination(v);
      code(v).push_back(call(multiply, x.vector, x.reg, a, a));
      if (is_constant(s.operands[1], 3)) {
        code(v).push_back(call(multiply, x.vector, x.reg, x.reg, a));
        release_operands(v);
      }
      return;
    }
    int regs[3] = {0, 0, 0};
    unsigned scalars = 0;
    for (int i = 0; i < s.operand_count; ++i) {
      regs[i] = value(s.operands[i]).reg;
      if (x.vector && !value(s.operands[i]).vector) scalars |= 1u << i;
    }
    TileFn fn = nullptr;
    if (s.op == Op::cast) {
      fn = kernels_.cast(type, s.type);
    } else {
      fn = kernels_.primitive(s.op, type, scalars);
      if (fn == nullptr) {
        for (int i = 0; i < s.operand_count; ++i)
          if (x.vector) regs[i] = vector_register(s.operands[i]);
        fn = kernels_.primitive(s.op, type, 0);
      }
    }
    if (fn == nullptr)
      throw std::runtime_error(std::string("no CPU kernel for ") + op_name(s.op) + " of " + type_name(type));
    release_operands(v);
    x.reg = destination(v);
    code(v).push_back(call(fn, x.vector, x.reg, regs[0], regs[1], regs[2]));
  }

  void release_operands(int v) {
    const Statement& s = statement(v);
    for (int i = 0; i < s.operand_count; ++i)
      if (value(s.operands[i]).uses > 0) release(s.operands[i]);
  }

  void write_value(int v) {
    const Statement& s = statement(v);
    if (s.op == Op::input)
      write_input(v);
    else if (s.op == Op::constant)
      write_constant(v);
    else if (is_reduction(s.op))
      write_finish(v);
    else
      write_primitive(v);
    for (Store& store : stores_)
      if (store.v == v && store.scope == value(v).scope) write_store(store);
  }

  void write_store(Store& s) {
    if (s.done) return;
    s.done = true;
    open_store(s);
    const int stage = value(s.v).stage;
    const size_t size = type_size(s.actual);
    int reg = s.vector ? vector_register(s.v) : value(s.v).reg;
    const int target = plan_.addresses[static_cast<size_t>(s.address)].reg;
    const bool scatters = s.vector && !s.contiguous;
    TileFn fn = s.converts ? kernels_.store(s.actual)
                : s.rounds ? kernels_.primitive(s.output->storage == Type::f16 ? Op::op_round_f16 : Op::op_round_bf16,
                                                Type::f32, 0)
                           : nullptr;
    Code& where = code(s.scope, stage);
    const auto push = [&](Instruction i) {
      i.guarded = s.guarded();
      i.guard_grid = s.guard_grid;
      i.guard_loop = s.guard_loop;
      i.guard_block = s.guard_block;
      where.push_back(i);
    };
    if (!scatters) {
      push(call(fn != nullptr ? fn : kernels_.copy(size), s.vector, target, reg));
    } else {
      int converted = -1;
      if (fn != nullptr) {
        converted = take_temporary(size);
        push(call(fn, true, converted, reg));
        reg = converted;
      }
      Instruction i = call(nullptr, true, target, reg);
      i.count = Instruction::Count::pattern;
      i.pattern = scatter_pattern(*s.access, size);
      push(i);
      if (converted >= 0) free_[size].push_back(static_cast<uint16_t>(converted));
    }
    if (value(s.v).uses > 0) release(s.v);
  }

  bool accumulates_vector(int v) { return layout().column && value(statement(v).operands[0]).vector; }

  void write_init(int v) {
    value(v).accumulator = new_buffer(8, accumulates_vector(v));
    const ReductionFns fns = kernels_.reduction(statement(v).op, statement(v).type);
    plan_.item_code[static_cast<size_t>(value(v).stage - 1)].push_back(
        call(fns.init, accumulates_vector(v), value(v).accumulator, 0));
    Instruction merge = call(fns.merge, accumulates_vector(v), value(v).accumulator, value(v).accumulator);
    plan_.merges.push_back(merge);
  }

  void write_accumulate(int v) {
    const int operand = statement(v).operands[0];
    const ReductionFns fns = kernels_.reduction(statement(v).op, statement(v).type);
    Pass& pass = plan_.passes[static_cast<size_t>(pass_)];
    if (layout().column) {
      pass.tile_code.push_back(call(fns.column, accumulates_vector(v), value(v).accumulator, value(operand).reg));
    } else {
      pass.tile_code.push_back(call(fns.row, true, value(v).accumulator, vector_register(operand)));
    }
    if (value(operand).uses > 0) release(operand);
  }

  void write_finish(int v) {
    Value& x = value(v);
    const ReductionFns fns = kernels_.reduction(statement(v).op, statement(v).type);
    x.reg = destination(v);
    code(v).push_back(call(fns.finish, x.vector, x.reg, x.accumulator, count_register()));
  }

  int count_register() {
    if (count_register_ < 0) count_register_ = new_constant(static_cast<uint64_t>(layout().reduced_points));
    return count_register_;
  }

  // Counts, for each value computed in the code that comes next, the uses there; a value that other code uses too
  // keeps its register.
  template <class InCode>
  void count_uses(const InCode& in_code, int stage, bool pass) {
    std::vector<bool> lasts(kernel_.statements.size(), false);
    for (int v = 0; v < count(); ++v) {
      if (!in_code(v)) continue;
      value(v).uses = 0;
      value(v).temporary = false;
    }
    const auto use = [&](int v, bool here) {
      if (!in_code(v)) return;
      if (here)
        ++value(v).uses;
      else
        lasts[static_cast<size_t>(v)] = true;
    };
    for (int v = 0; v < count(); ++v) {
      if (!value(v).needed) continue;
      const Statement& s = statement(v);
      for (int i = 0; i < s.operand_count; ++i) {
        if (is_reduction(s.op))
          use(s.operands[i], pass && value(v).stage == stage + 1);
        else
          use(s.operands[i], in_code(v));
      }
    }
    for (const Store& s : stores_) use(s.v, in_pass(s.scope) == pass && value(s.v).stage == stage);
    for (int v = 0; v < count(); ++v)
      if (in_code(v) && !pass && lasts[static_cast<size_t>(v)]) value(v).uses = 0;
  }

  void write() {
    kept_address_.assign(kernel_.statements.size(), -1);
    for (int v = 0; v < count(); ++v)
      if (value(v).needed && value(v).scope == Scope::task) write_value(v);
    for (int stage = 0; stage <= passes_; ++stage) {
      const auto in_item = [&](int v) {
        return value(v).needed && value(v).scope == Scope::item && value(v).stage == stage;
      };
      free_.assign(9, {});
      count_uses(in_item, stage, false);
      for (int v = 0; v < count(); ++v)
        if (in_item(v)) write_value(v);
      for (Store& s : stores_)
        if (s.scope == Scope::item && value(s.v).stage == stage) write_store(s);
      if (stage < passes_) write_pass(stage);
    }
  }

  void write_pass(int pass) {
    pass_ = pass;
    for (int v = 0; v < count(); ++v)
      if (accumulates_in(v, pass)) write_init(v);
    const std::vector<bool>& wanted = wanted_[static_cast<size_t>(pass)];
    const auto here = [&](int v) { return static_cast<bool>(wanted[static_cast<size_t>(v)]); };
    free_.assign(9, {});
    for (int v = 0; v < count(); ++v) {
      if (!in_pass(value(v).scope)) continue;
      value(v).splat_reg = -1;
      value(v).uses = 0;
      value(v).temporary = false;
      if (!here(v) && kept_address_[static_cast<size_t>(v)] >= 0) {
        const int address = kept_address_[static_cast<size_t>(v)];
        move_in_pass(address);
        value(v).reg = plan_.addresses[static_cast<size_t>(address)].reg;
      }
    }
    count_uses(here, pass, true);
    std::vector<std::vector<int>> reductions(kernel_.statements.size());  // by operand
    for (int r = 0; r < count(); ++r)
      if (accumulates_in(r, pass)) reductions[static_cast<size_t>(statement(r).operands[0])].push_back(r);
    for (int v = 0; v < count(); ++v) {
      if (here(v)) write_value(v);
      for (int r : reductions[static_cast<size_t>(v)]) write_accumulate(r);
    }
    for (Store& s : stores_)
      if (in_pass(s.scope) && value(s.v).stage == pass) write_store(s);
  }

  bool accumulates_in(int v, int pass) {
    return value(v).needed && is_reduction(statement(v).op) && value(v).stage == pass + 1;
  }

  // About what an item costs, in nanoseconds.
  void estimate() {
    const auto vectors = [](const Code& code) {
      double n = 0;
      for (const Instruction& i : code) n += i.count == Instruction::Count::one ? 0 : 1;
      return n;
    };
    const double points = static_cast<double>(layout().capacity());
    constexpr double per_point = 0.08;
    for (const Code& c : plan_.item_code)
      plan_.item_cost += 5 * static_cast<double>(c.size()) + per_point * points * vectors(c);
    for (const Pass& p : plan_.passes) {
      const double tiles =
          static_cast<double>(layout().loop_points) * static_cast<double>(layout().column ? 1 : layout().blocks);
      plan_.item_cost += tiles * (5 * static_cast<double>(p.tile_code.size() + p.loop_code.size()) +
                                  per_point * points * vectors(p.tile_code));
    }
  }

  const Kernel& kernel_;
  const BoundKernel& bound_;
  const std::vector<Type>& input_types_;
  const std::vector<Type>& output_types_;
  const bool keep_;
  const TileKernels& kernels_ = tile_kernels();
  KernelPlan plan_;
  uint32_t grid_mask_ = 0, loop_mask_ = 0, tile_mask_ = 0;
  std::vector<Value> values_;
  std::vector<Store> stores_;
  std::vector<std::vector<bool>> wanted_;
  std::vector<int> kept_address_;
  std::vector<std::vector<uint16_t>> free_ = std::vector<std::vector<uint16_t>>(9);
  size_t kept_bytes_ = 0;
  int passes_ = 0, pass_ = 0, count_register_ = -1;
};

}  // namespace

KernelPlan compile_kernel(const Kernel& kernel, const BoundKernel& bound, const std::vector<Type>& input_types,
                          const std::vector<Type>& output_types) {
  Compiler compiler(kernel, bound, input_types, output_types, true);
  KernelPlan plan = compiler.compile();
  if (compiler.kept_bytes() <= kMostKept) return plan;
  return Compiler(kernel, bound, input_types, output_types, false).compile();
}

}  // namespace onnxfuse::cpu
