// Writes the code of a kernel: which values, in which order, where.
#include <memory>

#include "caches.h"
#include "compiler.h"

namespace onnxfuse::cpu {
namespace {

// Bytes of one item's points that are kept for later passes; where there are more, they are computed again.
constexpr size_t kMostKept = 1 << 20;

// Few items that are longer (in nanoseconds) are shared out among tasks.
constexpr double kLongItem = 60000;

}  // namespace

KernelPlan Compiler::compile() {
  plan_.streams = largest_output() >= cache_share(threads_);
  plan_.asks_ahead = comes_from_memory(bound_) &&
                     (layout_.schedule == Schedule::band ||
                      (layout_.schedule == Schedule::column && (layout_.blocks == 1 || analysis_.passes() == 0)));
  plan_.item_code.resize(static_cast<size_t>(analysis_.passes()) + 1);
  plan_.passes.resize(static_cast<size_t>(analysis_.passes()));
  for (int v = 0; v < analysis_.count(); ++v)
    if (value(v).needed && value(v).scope == Scope::task) write_value(v);
  for (int stage = 0; stage <= analysis_.passes(); ++stage) {
    write_item(stage);
    if (stage < analysis_.passes()) write_pass(stage);
  }
  plan_.totals_pass = analysis_.totals_pass();
  plan_.items = layout_.grid_points * (layout_.item_is_point() ? 1 : layout_.blocks);
  estimate();
  form_pipelines(plan_);
  plan_.streams |= streams_rows_;
  return std::move(plan_);
}

Code& Compiler::code(Scope scope, int stage) {
  if (scope == Scope::task) return plan_.task_code;
  if (scope == Scope::item) return plan_.item_code[static_cast<size_t>(stage)];
  return scope == Scope::loop ? this_pass().loop_code : this_pass().tile_code;
}

void Compiler::write_value(int v) {
  if (value(v).absorbed || value(v).late) return;
  if (analysis_.mean_with(v) < 0) write_late_operands(v);
  write_value_now(v);
}

void Compiler::write_late_operands(int v) {
  const Statement& s = statement(v);
  for (int i = 0; i < s.operand_count; ++i) {
    const int operand = s.operands[i];
    if (value(operand).absorbed) write_late_operands(operand);
    if (value(operand).late && place(operand).reg < 0) write_value_now(operand);
  }
}

void Compiler::write_value_now(int v) {
  const Statement& s = statement(v);
  if (analysis_.mean_with(v) >= 0) {
    release_operands(v);  // the mean's instruction has computed it
  } else if (s.op == Op::input) {
    write_input(v);
  } else if (s.op == Op::constant) {
    write_constant(v);
  } else if (is_scan(s.op)) {
    layout_.schedule == Schedule::whole ? write_whole_scan(v) : write_scan(v);
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

template <class InCode>
void Compiler::count_uses(const InCode& in_code, int stage, bool pass) {
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
    const bool total = is_scan(s.op) && pass && analysis_.totals_pass() == stage;
    for (int i = 0; i < s.operand_count; ++i) use(s.operands[i], here || total);
  }
  for (const Store& s : analysis_.stores()) use(s.v, in_pass(s.scope) == pass && value(s.v).stage == stage);
  for (int v = 0; v < analysis_.count(); ++v)
    if (!pass && in_code(v) && (lasts[static_cast<size_t>(v)] || value(v).once)) place(v).uses = 0;
}

void Compiler::write_item(int stage) {
  const auto here = [&](int v) { return value(v).needed && value(v).scope == Scope::item && value(v).stage == stage; };
  memory_.forget_temporaries();
  count_uses(here, stage, false);
  for (int v = 0; v < analysis_.count(); ++v)
    if (here(v)) write_value(v);
  for (size_t i = 0; i < analysis_.stores().size(); ++i) {
    const Store& s = analysis_.stores()[i];
    if (s.scope == Scope::item && value(s.v).stage == stage) write_store(i);
  }
}

void Compiler::write_pass(int pass) {
  pass_ = pass;
  this_pass().reverse =
      analysis_.reverse_pass() >= 0 && pass >= analysis_.reverse_pass() - (analysis_.totals_pass() >= 0);
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
  // Where totals were found before, the values that they were of come first and so by the same code, which gives the
  // same bits whether or not a task finds totals.
  const int totals = analysis_.totals_pass();
  const auto was_totalled = [&](int v) { return totals >= 0 && pass == totals + 1 && analysis_.wanted(totals, v); };
  for (int v = 0; v < analysis_.count(); ++v)
    if (here(v) && was_totalled(v)) write_value(v);
  for (int v = 0; v < analysis_.count(); ++v) {
    if (here(v) && !was_totalled(v)) write_value(v);
    for (int r : reductions[static_cast<size_t>(v)]) write_accumulate(r);
  }
  for (int v = 0; v < analysis_.count(); ++v)
    if (pass == totals && value(v).needed && is_scan(statement(v).op)) write_total(v);
  for (size_t i = 0; i < analysis_.stores().size(); ++i) {
    const Store& s = analysis_.stores()[i];
    if (in_pass(s.scope) && value(s.v).stage == pass) write_store(i);
  }
}

int64_t Compiler::largest_output() const {
  int64_t bytes = 0;
  for (const Store& s : analysis_.stores()) {
    int64_t points = static_cast<int64_t>(type_size(s.actual));
    for (size_t d = 0; d < s.access->strides.size(); ++d)
      if (s.access->strides[d] != 0) points *= bound_.extents[d];
    bytes = std::max(bytes, points);
  }
  return bytes;
}

void Compiler::estimate() {
  constexpr double per_call = 4, per_point = 0.06, per_point_of_softmax = 0.2;
  const double points = static_cast<double>(layout_.capacity());
  const auto cost = [&](const Code& code) {
    double sum = per_call * static_cast<double>(code.size());
    for (const Instruction& i : code) {
      if (i.count == Instruction::Count::steps) sum += per_call * static_cast<double>(layout_.block);
      if (i.count != Instruction::Count::one)
        sum += points * (i.fn == tile_.softmax ? per_point_of_softmax : per_point);
    }
    return sum;
  };
  for (const Code& c : plan_.item_code) plan_.item_cost += cost(c);
  const double blocks = static_cast<double>(layout_.item_is_point() ? layout_.blocks : 1);
  for (const Pass& p : plan_.passes)
    plan_.item_cost += static_cast<double>(layout_.loop_points) * (cost(p.loop_code) + blocks * cost(p.tile_code));
}

KernelPlan compile_kernel(const Kernel& kernel, const BoundKernel& bound, const std::vector<Type>& input_types,
                          const std::vector<Type>& output_types, int threads) {
  const auto make = [&](Handing handing, const Limits& limits) {
    return std::make_unique<Compiler>(kernel, bound, input_types, output_types, threads, handing, limits);
  };
  auto compiler = make(Handing::keep, {kLongWholeRow, kLongTile});
  KernelPlan plan = compiler->compile();
  const bool long_rows = plan.layout.schedule == Schedule::whole && plan.layout.reduced_points > kWholeRow;
  // Long rows that are read twice, a tile at a time three times; one alone had better be shared.
  const bool reads_twice = plan.finds_moments && !plan.keeps_tiles && plan.items > 1;
  if ((long_rows && !plan.rows_alone && !reads_twice) ||
      (plan.layout.schedule == Schedule::column && plan.passes.empty() && plan.keeps_tiles)) {
    compiler = make(Handing::keep, {kWholeRow, kTile});
    plan = compiler->compile();
  }
  const bool shares = plan.layout.schedule != Schedule::whole && plan.items < kFewItems &&
                      plan.item_cost >= kLongItem && plan.tiles() > 1 && compiler->shareable();
  if (!shares && compiler->kept_bytes() <= kMostKept) return plan;
  plan = make(shares ? Handing::shared : Handing::again, {kWholeRow, kTile})->compile();
  plan.shares_rows = shares;
  return plan;
}

}  // namespace onnxfuse::cpu
