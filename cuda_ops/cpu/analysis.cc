#include "analysis.h"

#include <algorithm>

#include "table.h"

namespace onnxfuse::cpu {
namespace {

// The dimensions along which an access moves.
uint32_t moving_dims(const BoundKernel& bound, const Access& access) {
  uint32_t dims = 0;
  for (size_t d = 0; d < access.strides.size(); ++d)
    if (access.strides[d] != 0 && bound.extents[d] != 1) dims |= 1u << d;
  return dims;
}

}  // namespace

Analysis::Analysis(const Kernel& kernel, const BoundKernel& bound, const Layout& layout,
                   const std::vector<Type>& output_types, Handing handing)
    : kernel_(kernel), bound_(bound), layout_(layout), output_types_(output_types), handing_(handing) {
  for (const Dim& d : layout.grid) grid_mask_ |= d.mask;
  for (const Dim& d : layout.loop) loop_mask_ |= d.mask;
  for (const Dim& d : layout.tile) tile_mask_ |= d.mask;
  if (!layout.tile.empty()) row_mask_ = layout.tile[0].mask;
  inner_mask_ = tile_mask_ & ~row_mask_;
  reduced_mask_ = kernel.space.reduced_mask() & (loop_mask_ | tile_mask_);
  classify();
  find_needed();
  for (size_t i = 0; i < kernel.outputs.size(); ++i) stores_.push_back(make_store(kernel.outputs[i], bound.outputs[i]));
  place_scans();
  absorb_operands();
  plan_passes();
}

Scope Analysis::scope_of(uint32_t deps) const {
  if (deps & loop_mask_) return deps & tile_mask_ ? Scope::tile : Scope::loop;
  const uint32_t moving = layout_.schedule == Schedule::band ? row_mask_ : layout_.item_is_point() ? tile_mask_ : 0;
  if (deps & moving) return Scope::tile;
  if (deps & tile_mask_) return Scope::item;
  return deps & grid_mask_ ? Scope::item : Scope::task;
}

Form Analysis::form_of(uint32_t deps) const {
  if (layout_.schedule == Schedule::column || layout_.schedule == Schedule::row)
    return deps & tile_mask_ ? kFull : kScalar;
  return static_cast<Form>((deps & row_mask_ ? kRows : 0u) | (deps & inner_mask_ ? kInner : 0u));
}

void Analysis::classify() {
  values_.resize(kernel_.statements.size());
  for (int v = 0; v < count(); ++v) {
    const Statement& s = statement(v);
    Value& x = at(v);
    Scope least = Scope::task;
    if (s.op == Op::input) {
      x.deps = moving_dims(bound_, bound_.inputs[static_cast<size_t>(v)]);
      least = Scope::item;
    }
    for (int i = 0; i < s.operand_count; ++i) {
      const Value& operand = value(s.operands[i]);
      x.deps |= operand.deps;
      x.stage = std::max(x.stage, operand.stage);
      if (!is_reduction(s.op)) least = std::max(least, operand.scope);
    }
    if (is_reduction(s.op)) {
      x.deps &= ~kernel_.space.reduced_mask();
      if (layout_.schedule != Schedule::whole) ++x.stage;
      least = Scope::item;
    }
    if (is_scan(s.op)) {
      x.deps |= reduced_mask_;
      least = std::max(least, Scope::item);
    }
    x.form = form_of(x.deps);
    x.scope = std::max(least, scope_of(x.deps));
    if (x.scope == Scope::loop && x.form != kScalar) x.scope = Scope::tile;
    x.once =
        layout_.schedule == Schedule::whole && x.form == kInner && (x.deps & ~inner_mask_) == 0 && !is_reduction(s.op);
    for (int i = 0; i < s.operand_count; ++i) {
      const Value& operand = value(s.operands[i]);
      x.once = x.once && (operand.once || operand.scope == Scope::task);
    }
  }
}

void Analysis::find_needed() {
  for (const Output& o : kernel_.outputs) {
    at(o.value).needed = true;
    ++at(o.value).readers;
  }
  for (int v = count() - 1; v >= 0; --v) {
    if (!value(v).needed) continue;
    for (int i = 0; i < statement(v).operand_count; ++i) {
      at(statement(v).operands[i]).needed = true;
      ++at(statement(v).operands[i]).readers;
    }
  }
}

Store Analysis::make_store(const Output& output, const Access& access) const {
  Store s;
  s.output = &output;
  s.access = &access;
  s.v = output.value;
  s.actual = output_types_[static_cast<size_t>(output.tensor)];
  s.converts = is_16bit_float(s.actual);
  s.rounds = is_16bit_float(output.storage) && !s.converts;
  const uint32_t dims = moving_dims(bound_, access);
  const auto lacks = [&](const Dim& d) { return (dims & d.mask) == 0; };
  s.form = form_of(dims);
  s.scope = std::max({value(s.v).scope, scope_of(dims), Scope::item});
  if (s.scope == Scope::loop && s.form != kScalar) s.scope = Scope::tile;
  for (size_t d = 0; d < layout_.grid.size(); ++d)
    if (lacks(layout_.grid[d])) s.guard_grid |= 1u << d;
  if (in_pass(s.scope))
    for (size_t d = 0; d < layout_.loop.size(); ++d)
      if (lacks(layout_.loop[d])) s.guard_loop |= 1u << d;
  // In the row schedule, tasks may share a row: see Task.
  if (!layout_.tile.empty() && layout_.blocks > 1 && lacks(layout_.tile[0])) s.guard_block = true;
  if (handing_ == Handing::shared && layout_.schedule == Schedule::column && !in_pass(s.scope)) s.guard_block = true;
  s.contiguous = s.form != kScalar && natural(access, s.form);
  return s;
}

bool Analysis::natural(const Access& access, Form form) const {
  int64_t expected = 1;
  for (size_t d = layout_.tile.size(); d-- > 0;) {
    const Dim& dim = layout_.tile[d];
    if (dim.extent == 1 || (form & (d == 0 ? kRows : kInner)) == 0) continue;
    if (access.strides[static_cast<size_t>(dim.innermost)] != expected) return false;
    expected *= dim.extent;
  }
  return true;
}

bool Analysis::is_direct(const Store& s) const {
  const Value& x = value(s.v);
  // What is computed for a task's first item alone is copied to the output for each.
  return s.contiguous && !s.rounds && !s.converts && !s.guarded() && x.form == s.form && x.scope == s.scope &&
         !x.once && statement(s.v).op != Op::input;
}

int Analysis::direct_store(int v) const {
  for (size_t i = 0; i < stores_.size(); ++i)
    if (stores_[i].v == v && is_direct(stores_[i])) return static_cast<int>(i);
  return -1;
}

int Analysis::computed_with(int u) const {
  if (!value(u).absorbed) return u;
  for (int w = u + 1; w < count(); ++w) {
    const Statement& s = statement(w);
    if (std::find(s.operands, s.operands + s.operand_count, u) != s.operands + s.operand_count) return w;
  }
  return u;
}

int Analysis::borrowed_store(int v) const {
  if (layout_.schedule != Schedule::whole || value(v).form != kFull || statement(v).type != Type::f32 || value(v).late)
    return -1;
  int last = -1;
  bool reduced = false;
  for (int u = v + 1; u < count(); ++u) {
    const Statement& s = statement(u);
    if (!value(u).needed || std::find(s.operands, s.operands + s.operand_count, v) == s.operands + s.operand_count)
      continue;
    if (value(u).late) return -1;
    const int reader = computed_with(u);
    reduced |= is_reduction(statement(reader).op);
    last = std::max(last, reader);
  }
  for (const Store& s : stores_)
    if (s.v == v) return -1;
  if (!reduced || value(last).softmax_of == v) return -1;  // its loop may read a row again after writing
  const Statement& s = statement(last);
  const bool simple = s.op == Op::op_add || s.op == Op::op_sub || s.op == Op::op_mul || s.op == Op::op_div;
  return simple && s.type == Type::f32 ? direct_store(last) : -1;
}

// v = e / reduce_sum(e), where e = exp(a - reduce_max(a)), and nothing else reads what stands in between.
void Analysis::find_softmax(int v) {
  const auto is = [&](int u, Op op, int readers) {
    return statement(u).op == op && value(u).readers == readers && statement(u).type == Type::f32;
  };
  if (statement(v).op != Op::op_div || statement(v).type != Type::f32 || (value(v).form & kInner) == 0) return;
  const int e = statement(v).operands[0], sum = statement(v).operands[1];
  if (!is(e, Op::op_exp, 2) || !is(sum, Op::op_reduce_sum, 1) || statement(sum).operands[0] != e) return;
  const int difference = statement(e).operands[0];
  if (!is(difference, Op::op_sub, 1)) return;
  const int a = statement(difference).operands[0], most = statement(difference).operands[1];
  if (!is(most, Op::op_reduce_max, 1) || statement(most).operands[0] != a || value(a).form != value(v).form) return;
  at(v).softmax_of = a;
  for (int u : {e, sum, difference, most}) at(u).absorbed = true;
}

// v = where(isnan(q), constant, q) of a softmax q that nothing else reads: as attention is exported with masks, where a
// row may be masked as a whole.
void Analysis::find_softmax_without_nan(int v) {
  const Statement& s = statement(v);
  if (s.op != Op::op_where || s.type != Type::f32) return;
  const int is_nan = s.operands[0], constant = s.operands[1], q = s.operands[2];
  if (statement(is_nan).op != Op::op_isnan || statement(is_nan).operands[0] != q || value(is_nan).readers != 1) return;
  if (statement(constant).op != Op::constant || value(q).softmax_of < 0 || value(q).readers != 2) return;
  at(v).softmax_of = value(q).softmax_of;
  at(v).instead_of_nan = constant;
  at(q).softmax_of = -1;
  for (int u : {q, is_nan}) at(u).absorbed = true;
}

// v = the mean or sum of (a - mean(a))^2. The difference itself is often wanted again for the result, and then computed
// only there.
void Analysis::find_moments(int v) {
  const Statement& s = statement(v);
  if ((s.op != Op::op_reduce_mean && s.op != Op::op_reduce_sum) || s.type != Type::f32) return;
  const int square = s.operands[0], difference = statement(square).operands[0];
  const bool squares = statement(square).op == Op::op_mul && statement(square).operands[1] == difference;
  if (!squares || value(square).readers != 1 || statement(difference).op != Op::op_sub) return;
  const int *operands = statement(difference).operands, which = statement(operands[1]).op == Op::op_reduce_mean ? 1 : 0;
  const int mean = operands[which], a = operands[1 - which];
  if (statement(mean).op != Op::op_reduce_mean || statement(mean).operands[0] != a || value(mean).squares >= 0 ||
      (value(a).form & kInner) == 0)
    return;
  at(mean).squares = v;
  at(v).mean = mean;
  at(square).absorbed = true;
  at(difference).late = std::none_of(stores_.begin(), stores_.end(), [&](const Store& x) { return x.v == difference; });
}

// Some pairs of operations have one loop, which spares the value between them: sums of products (in reductions a dot
// product, in additions a fused multiply-add) and the exponential of a difference.
void Analysis::absorb_operands() {
  for (int v = 0; v < count(); ++v) {
    const Statement& s = statement(v);
    const bool reduces = s.op == Op::op_reduce_sum || s.op == Op::op_reduce_mean;
    if (layout_.schedule == Schedule::whole && value(v).needed) {
      find_softmax(v);
      find_softmax_without_nan(v);
      find_moments(v);
    }
    if (!value(v).needed || value(v).absorbed || s.type != Type::f32 ||
        (s.op != Op::op_add && s.op != Op::op_exp && !reduces))
      continue;
    if (reduces && (layout_.schedule == Schedule::column || layout_.schedule == Schedule::band)) continue;
    for (int i = 0; i < s.operand_count; ++i) {
      const int inner = s.operands[i];
      const Statement& p = statement(inner);
      const Value& x = value(inner);
      if (p.op != (s.op == Op::op_exp ? Op::op_sub : Op::op_mul) || x.readers != 1 || x.form != kFull) continue;
      const bool full = value(p.operands[0]).form == kFull && value(p.operands[1]).form == kFull;
      const bool same = x.scope == value(v).scope && x.form == value(v).form && x.stage == value(v).stage;
      if (!(reduces ? full : same)) continue;
      at(inner).absorbed = true;
      break;  // of two products, one
    }
  }
}

}  // namespace onnxfuse::cpu
