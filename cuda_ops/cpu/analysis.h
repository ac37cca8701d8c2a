// What the compiler finds out about a kernel's values before it writes code.
#pragma once

#include <cstdint>
#include <vector>

#include "plan.h"

namespace onnxfuse::cpu {

// Where a value is computed: once per task, per item, per point of the loop, per tile.
enum class Scope : uint8_t { task, item, loop, tile };

inline bool in_pass(Scope scope) { return scope >= Scope::loop; }

// Which elements a value has: one, or one for each index of the tile's first dimension (bit 0), of its inner ones (bit
// 1). Columns and rows know one element and all points only.
enum Form : unsigned { kScalar = 0, kRows = 1, kInner = 2, kFull = 3 };

struct Value {
  uint32_t deps = 0;  // dimensions of the space
  Scope scope = Scope::task;
  Form form = kScalar;
  int stage = 0;    // the first pass that can use it
  int readers = 0;  // operations and stores that use it
  bool needed = false;
  bool absorbed = false;    // what reads it computes it too
  bool once = false;        // the same for all items: computed for a task's first one
  bool kept = false;        // stays in memory for later passes
  int last_pass = -1;       // the last pass that reads a kept value
  int first_pass = -1;      // the pass that computes it, in scopes loop and tile
  int softmax_of = -1;      // see Analysis::softmax_operand
  int instead_of_nan = -1;  // of a softmax: the constant that replaces it
  int squares = -1;         // see Analysis::squares_with
  int mean = -1;            // of such squares: the mean
  bool late = false;        // computed right before its first reader that needs it
};

// One of the kernel's outputs, and how it is written.
struct Store {
  const Output* output = nullptr;
  const Access* access = nullptr;
  int v = 0;
  Scope scope = Scope::item;
  Type actual = Type::f32;
  bool rounds = false;      // through a 16-bit type, the element is f32
  bool converts = false;    // to a 16-bit type
  Form form = kScalar;      // of the elements that are stored
  bool contiguous = false;  // they lie one after the other
  uint32_t guard_grid = 0, guard_loop = 0;
  bool guard_block = false;

  bool guarded() const { return guard_grid != 0 || guard_loop != 0 || guard_block; }
};

// How an item's passes hand values on.
enum class Handing : uint8_t {
  keep,    // in memory
  again,   // by computing them again, but for scans that only another pass can compute
  shared,  // by computing them again, since several tasks share an item
};

class Analysis {
 public:
  Analysis(const Kernel& kernel, const BoundKernel& bound, const Layout& layout, const std::vector<Type>& output_types,
           Handing handing);

  int count() const { return static_cast<int>(kernel_.statements.size()); }
  int passes() const { return passes_; }
  const Value& value(int v) const { return values_[static_cast<size_t>(v)]; }
  const std::vector<Store>& stores() const { return stores_; }
  bool wanted(int pass, int v) const { return wanted_[static_cast<size_t>(pass)][static_cast<size_t>(v)]; }
  bool accumulates(int v, int pass) const;  // v is a reduction over what this pass computes
  // The pass whose tiles come last to first, which is the last; of shared items, the one that finds what parts of
  // scanned rows come to, before the one that scans; -1: none.
  int reverse_pass() const { return reverse_pass_; }
  int totals_pass() const { return totals_pass_; }
  // Whether several tasks may share an item: not where scans go both ways, and no products of floats, since one of
  // parts may leave the range that the product of all stays in.
  bool shareable() const;

  // Whether the elements of a form lie one after the other.
  bool natural(const Access& access, Form form) const;
  // The store, as an index of stores(), to whose tensor v's instruction can write; -1: none.
  int direct_store(int v) const;
  // The store whose tensor can hold the kept value v until the instruction that reads it last, the only one of its
  // pass, puts its own value there; -1: none.
  int lender(int v) const;
  // Of the whole schedule: the store whose tensor can hold v, which a reduction reads, until its last reader puts its
  // own value there; -1: none. So what is stored last is in the cache already.
  int borrowed_store(int v) const;
  // Of the whole schedule: the value whose softmax v is, where v's instruction computes all of it; -1: none.
  int softmax_operand(int v) const { return value(v).softmax_of; }
  // Of such a v: the constant that it has in place of NaN; -1: none.
  int softmax_instead_of_nan(int v) const { return value(v).instead_of_nan; }

  // Of a mean, in the whole schedule: the reduction of the squares of what its elements are off it, which the mean's
  // instruction computes, too; -1: none. And the mean of such a reduction.
  int squares_with(int v) const { return value(v).squares; }
  int mean_with(int v) const { return value(v).mean; }

 private:
  const Statement& statement(int v) const { return kernel_.statements[static_cast<size_t>(v)]; }
  Value& at(int v) { return values_[static_cast<size_t>(v)]; }
  Scope scope_of(uint32_t deps) const;
  Form form_of(uint32_t deps) const;
  void classify();
  void find_needed();
  void absorb_operands();
  void find_softmax(int v);
  void find_softmax_without_nan(int v);
  void find_moments(int v);
  Store make_store(const Output& output, const Access& access) const;
  bool is_direct(const Store& store) const;
  // The value whose instruction reads the operand of u: u, or the one that absorbs it.
  int computed_with(int u) const;

  // passes.cc
  bool scans_in_pass(int v) const;
  bool has_scans(bool reverse) const;
  void place_scans();
  bool is_cheap(int v) const;
  void plan_passes();
  void need_in_pass(int v, int pass);

  const Kernel& kernel_;
  const BoundKernel& bound_;
  const Layout& layout_;
  const std::vector<Type>& output_types_;
  const Handing handing_;
  uint32_t grid_mask_ = 0, loop_mask_ = 0, row_mask_ = 0, inner_mask_ = 0, tile_mask_ = 0, reduced_mask_ = 0;
  std::vector<Value> values_;
  std::vector<Store> stores_;
  int passes_ = 0, reverse_pass_ = -1, totals_pass_ = -1;
  std::vector<std::vector<bool>> wanted_;  // by pass and value
};

}  // namespace onnxfuse::cpu
