// Which pass computes what, and which values stay in memory between passes.
#include <algorithm>

#include "analysis.h"

namespace onnxfuse::cpu {

bool Analysis::accumulates(int v, int pass) const {
  return value(v).needed && is_reduction(statement(v).op) && value(v).stage == pass + 1;
}

bool Analysis::scans_in_pass(int v) const { return is_scan(statement(v).op) && in_pass(value(v).scope); }

bool Analysis::has_scans(bool reverse) const {
  for (int v = 0; v < count(); ++v)
    if (value(v).needed && scans_in_pass(v) && statement(v).reverse == reverse) return true;
  return false;
}

bool Analysis::shareable() const {
  if (layout_.schedule == Schedule::column) {
    // Tasks of an item cannot tell the first block by its number; arguments of columns are not joined.
    const auto guards_block = [](const Store& s) { return s.guard_block; };
    return passes_ > 0 && !takes_order(kernel_) && std::none_of(stores_.begin(), stores_.end(), guards_block);
  }
  for (int v = 0; v < count(); ++v)
    if (value(v).needed && statement(v).op == Op::op_scan_prod && is_float(statement(v).type)) return false;
  return !has_scans(true) || !has_scans(false);
}

// Scans go with the pass that computes their operands, but for two kinds, which go after all that does not need them:
// reverse scans, since what a pass goes through backwards it does in no other pass; and those of shared rows, after a
// pass that finds the totals.
void Analysis::place_scans() {
  const bool shared = handing_ == Handing::shared, reverse = has_scans(true);
  if (!reverse && !(shared && has_scans(false))) return;
  std::vector<bool> late(kernel_.statements.size(), false);
  int before = 0;  // passes that the others take
  for (int v = 0; v < count(); ++v) {
    const Statement& s = statement(v);
    const auto at = static_cast<size_t>(v);
    late[at] = scans_in_pass(v) && (shared || s.reverse);
    for (int i = 0; i < s.operand_count; ++i) late[at] = late[at] || late[static_cast<size_t>(s.operands[i])];
    if (!value(v).needed || late[at]) continue;
    if (is_reduction(s.op)) before = std::max(before, value(v).stage);
    if (scans_in_pass(v)) before = std::max(before, value(v).stage + 1);
  }
  for (const Store& s : stores_)
    if (in_pass(s.scope) && !late[static_cast<size_t>(s.v)]) before = std::max(before, value(s.v).stage + 1);
  if (shared) totals_pass_ = before++;
  if (reverse) reverse_pass_ = before;
  for (int v = 0; v < count(); ++v)
    if (late[static_cast<size_t>(v)]) at(v).stage = before;
}

int Analysis::lender(int v) const {
  const Value& x = value(v);
  int reader = -1;
  for (int u = 0; u < count(); ++u) {
    const Statement& s = statement(u);
    for (int i = 0; i < s.operand_count; ++i) {
      if (s.operands[i] != v || !in_pass(value(u).scope) || !wanted(x.last_pass, u)) continue;
      if (reader >= 0 && reader != u) return -1;
      reader = u;
    }
  }
  if (reader < 0 || value(reader).absorbed || value(reader).first_pass != x.last_pass) return -1;
  for (int u = 0; u < count(); ++u)
    if (accumulates(u, x.last_pass) && statement(u).operands[0] == v) return -1;
  for (const Store& s : stores_)
    if (s.v == v && in_pass(s.scope) && x.stage == x.last_pass) return -1;
  const int store = direct_store(reader);
  return store >= 0 && x.form == value(reader).form && type_size(statement(reader).type) == type_size(statement(v).type)
             ? store
             : -1;
}

// Whether a later pass had better compute the value again: an input, or simple arithmetic on one.
bool Analysis::is_cheap(int v) const {
  const Statement& s = statement(v);
  const auto is_input = [&](int u) {
    return statement(u).op == Op::input && natural(bound_.inputs[static_cast<size_t>(u)], value(u).form);
  };
  if (s.op == Op::input) return is_input(v);
  if (s.op != Op::op_add && s.op != Op::op_sub && s.op != Op::op_mul && s.op != Op::op_relu) return false;
  int inputs = 0;
  for (int i = 0; i < s.operand_count; ++i) {
    const int u = s.operands[i];
    if (!in_pass(value(u).scope)) continue;
    if (!is_input(u)) return false;
    ++inputs;
  }
  return inputs <= 1;
}

void Analysis::need_in_pass(int v, int pass) {
  Value& x = at(v);
  if (!in_pass(x.scope) || wanted(pass, v)) return;
  const bool again = x.first_pass >= 0 && x.first_pass < pass;
  const bool may_keep = x.scope == Scope::tile && !is_cheap(v) && !x.absorbed;
  const bool must_keep = is_scan(statement(v).op) && pass == reverse_pass_ && !statement(v).reverse;
  if (again && (must_keep || (may_keep && (handing_ == Handing::keep || direct_store(v) >= 0)))) {
    x.kept = true;
    x.last_pass = pass;
    return;
  }
  wanted_[static_cast<size_t>(pass)][static_cast<size_t>(v)] = true;
  if (x.first_pass < 0) x.first_pass = pass;
  for (int i = 0; i < statement(v).operand_count; ++i) need_in_pass(statement(v).operands[i], pass);
}

void Analysis::plan_passes() {
  for (int v = 0; v < count(); ++v)
    if (value(v).needed && is_reduction(statement(v).op)) passes_ = std::max(passes_, value(v).stage);
  for (const Store& s : stores_)
    if (in_pass(s.scope)) passes_ = std::max(passes_, value(s.v).stage + 1);
  wanted_.assign(static_cast<size_t>(passes_), std::vector<bool>(kernel_.statements.size(), false));
  for (int p = 0; p < passes_; ++p) {
    for (const Store& s : stores_)
      if (in_pass(s.scope) && value(s.v).stage == p) need_in_pass(s.v, p);
    for (int v = 0; v < count(); ++v) {
      if (accumulates(v, p) || (p == totals_pass_ && value(v).needed && scans_in_pass(v)))
        need_in_pass(statement(v).operands[0], p);
      if (reverse_pass_ >= 0 && value(v).needed && scans_in_pass(v) && value(v).stage == p) need_in_pass(v, p);
    }
  }
}

}  // namespace onnxfuse::cpu
