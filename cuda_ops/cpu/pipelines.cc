// Joins float instructions that follow each other into pipelines.
#include <algorithm>
#include <set>

#include "plan.h"

namespace onnxfuse::cpu {
namespace {

bool gives_bool(Work work) {
  return work == Work::comparison || work == Work::comparison_of_i32 || work == Work::comparison_of_i64 ||
         work == Work::logic;
}

int operand_count(const Instruction& i) {
  if (i.work == Work::multiply_add) return 3;
  if (i.work == Work::exp_of_difference || i.work == Work::fold_products || i.work == Work::share) return 2;
  if (i.work != Work::primitive && i.work != Work::where && !gives_bool(i.work)) return 1;
  switch (i.op) {
#define ONNXFUSE_REDUCTION(...)
#define ONNXFUSE_PRIMITIVE(name, arity, ...) \
  case Op::op_##name:                        \
    return arity;
#include "primitives.inc"
#undef ONNXFUSE_PRIMITIVE
#undef ONNXFUSE_REDUCTION
    default:
      return 0;
  }
}

// Of floats, bytes.
size_t accumulator_size(Op op) {
  return op == Op::op_reduce_sum || op == Op::op_reduce_mean ? sizeof(double) : sizeof(float);
}

bool reduces(Work work) { return work == Work::fold || work == Work::fold_products || work == Work::accumulate; }
bool folds(Work work) { return work == Work::fold || work == Work::fold_products; }
bool narrows(Work work) { return work == Work::store_f16 || work == Work::store_bf16 || work == Work::store_byte; }

// Bytes of an element in memory.
size_t operand_size(Work work, int operand) {
  switch (work) {
    case Work::load_f16:
    case Work::load_bf16:
      return 2;
    case Work::load_bool:
    case Work::load_u8:
    case Work::load_i8:
    case Work::logic:
      return 1;
    case Work::where:
      return operand == 0 ? 1 : sizeof(float);
    case Work::comparison_of_i64:
    case Work::load_i64:
      return 8;
    default:
      return sizeof(float);
  }
}

size_t result_size(Work work) {
  if (gives_bool(work) || work == Work::store_byte) return 1;
  return narrows(work) ? 2 : sizeof(float);
}

class Former {
 public:
  explicit Former(KernelPlan& plan) : plan_(plan) {
    if (!plan.streams) return;
    for (const Address& a : plan.addresses)
      if (a.base == Address::Base::output && a.dense) streamed_.insert(a.reg);
    const auto forget_read = [&](const Code& code) {
      for (const Instruction& i : code)
        for (uint16_t reg : {i.a, i.b, i.c}) streamed_.erase(reg);
    };
    for (const Code& code : plan.item_code) forget_read(code);
    for (const Pass& pass : plan.passes) forget_read(pass.tile_code);
  }

  bool streams() const { return streams_; }  // whether any store goes past the caches

  void form(Code& code) {
    Code result;
    for (size_t first = 0; first < code.size();) {
      size_t last = first;
      while (last < code.size() && joins(code[last]) && alike(code[first].count, code[last].count) &&
             parts_for(last - first + 1) <= kMostParts && !waits(code, first, last))
        ++last;
      const bool alone = may_stream(code[first]) || (plan_.asks_ahead && code[first].work == Work::accumulate);
      if (last - first < (alone ? 1u : 2u)) {
        if (!gives_one_a_row(code[first])) keep(code[first].out);
        result.push_back(code[first++]);
        continue;
      }
      result.push_back(join(code, first, last));
      first = last;
    }
    code = std::move(result);
  }

 private:
  using Count = Instruction::Count;

  // Each instruction may take a part that stores its value besides, and where inputs are asked for, one for each.
  size_t parts_for(size_t instructions) const { return (plan_.asks_ahead ? 5 : 2) * instructions + 1; }

  bool joins(const Instruction& i) const {
    if (i.work == Work::none || i.guarded) return false;
    if (i.count != Count::tile && i.count != Count::steps && i.count != Count::inner) return false;
    const Source sources[3] = {i.scalars & 1 ? Source::element : Source::memory,
                               i.scalars & 2 ? Source::element : Source::memory,
                               i.scalars & 4 ? Source::element : Source::memory};
    return tile_.stage(i.work, i.op, sources) != nullptr;
  }

  // Whether an instruction needs what a reduction before it gives only at the end; or is one too many.
  static bool waits(const Code& code, size_t first, size_t last) {
    size_t count = folds(code[last].work);
    const uint16_t regs[3] = {code[last].a, code[last].b, code[last].c};
    for (size_t i = first; i < last; ++i) {
      if (!folds(code[i].work)) continue;
      if (std::find(regs, regs + operand_count(code[last]), code[i].out) != regs + operand_count(code[last]))
        return true;
      ++count;
    }
    return count > kMostFolds;
  }

  // As a reduction of whole rows does, or what follows from it.
  static bool gives_one_a_row(const Instruction& i) {
    return i.count == Count::one || i.count == Count::rows || (i.count == Count::steps && i.step_out <= sizeof(double));
  }

  void keep(uint16_t reg) { plan_.keeps_tiles |= plan_.registers[reg].kind == Register::Kind::arena; }

  static bool alike(Count a, Count b) { return (a == Count::inner) == (b == Count::inner); }

  // Whether the value goes to an output that nothing reads again.
  bool may_stream(const Instruction& i) const {
    return plan_.streams && streamed_.count(i.out) > 0 && !reduces(i.work) && !narrows(i.work) && !gives_bool(i.work);
  }

  Work store_of(const Instruction& i) {
    if (gives_bool(i.work)) return Work::store_bool;
    streams_ |= may_stream(i);
    return may_stream(i) ? Work::stream : Work::store;
  }

  static bool reads(const Instruction& i, uint16_t reg) { return i.a == reg || i.b == reg || i.c == reg; }

  // Whether the value that code[at] leaves in its register is read there again, other than from the block.
  bool stays(const Code& code, size_t at, size_t last) const {
    const uint16_t reg = code[at].out;
    if (!plan_.registers[reg].temporary) return true;
    for (size_t i = at + 1; i < code.size(); ++i) {
      if (reads(code[i], reg) && (i != at + 1 || i >= last)) return true;
      if (code[i].out == reg) return false;
    }
    return false;
  }

  Instruction join(const Code& code, size_t first, size_t last) {
    Pipeline p;
    p.count = code[first].count;
    for (size_t i = first; i < last; ++i)
      if (code[i].count == Count::steps) p.count = Count::steps;
    if (plan_.asks_ahead) ask(p, code, first, last);
    int block = -1;  // the register whose value is in the block
    for (size_t i = first; i < last; ++i) {
      add(p, code, i, last, block);
      if (code[i].work == Work::fold_products)
        block = -1;
      else if (!reduces(code[i].work))
        block = narrows(code[i].work) ? code[i].a : code[i].out;
    }
    p.parts.push_back({tile_.stage(Work::end, Op::input, nullptr), {}, -1});
    Instruction result;
    result.count = Count::pipeline;
    result.pattern = static_cast<uint16_t>(plan_.pipelines.size());
    plan_.pipelines.push_back(std::move(p));
    return result;
  }

  Stream stream(const Pipeline& p, const Instruction& i, uint16_t reg, size_t size, uint32_t step) const {
    Stream s;
    s.reg = reg;
    s.size = static_cast<uint8_t>(size);
    if (p.count == Count::steps)
      s.row_step =
          i.count == Count::steps ? step : static_cast<uint32_t>(size * static_cast<size_t>(plan_.layout.inner));
    return s;
  }

  // Steps that ask early for the inputs that the instructions read.
  void ask(Pipeline& p, const Code& code, size_t first, size_t last) const {
    std::set<uint16_t> inputs;
    for (const Address& a : plan_.addresses)
      if (a.base == Address::Base::input && a.dense) inputs.insert(a.reg);
    for (size_t i = first; i < last; ++i) {
      const uint16_t regs[3] = {code[i].a, code[i].b, code[i].c};
      const uint32_t steps[3] = {code[i].step_a, code[i].step_b, code[i].step_c};
      for (int k = 0; k < operand_count(code[i]); ++k) {
        if (operand_size(code[i].work, k) != sizeof(float) || inputs.erase(regs[k]) == 0) continue;
        Pipeline::Part part = {tile_.stage(Work::ask, Op::input, nullptr), {}, -1};
        Pipeline::Rest rest = {tile_.ask, {}, {}, -1};
        part.streams[0] = rest.in[0] = stream(p, code[i], regs[k], sizeof(float), steps[k]);
        p.parts.push_back(part);
        p.rest.push_back(rest);
      }
    }
  }

  void add(Pipeline& p, const Code& code, size_t at, size_t last, int block) {
    const Instruction& i = code[at];
    Pipeline::Part part = {};
    Pipeline::Rest rest = {};
    part.fold = rest.fold = -1;
    Source sources[3] = {Source::element, Source::element, Source::element};
    const uint16_t regs[3] = {i.a, i.b, i.c};
    const uint32_t steps[3] = {i.step_a, i.step_b, i.step_c};
    for (int k = 0; k < operand_count(i); ++k) {
      const bool element = (i.scalars >> k & 1) != 0;
      sources[k] = element ? Source::element : regs[k] == block ? Source::block : Source::memory;
      part.streams[k] = stream(p, i, regs[k], element ? 0 : operand_size(i.work, k), steps[k]);
      rest.in[k] = part.streams[k];
    }
    rest.fn = i.fn;
    rest.out = stream(p, i, i.out, result_size(i.work), i.step_out);
    if (folds(i.work)) {
      if (i.work == Work::fold && sources[0] == Source::block && code[at - 1].work == Work::exp_of_difference)
        sum_with_exp(p, code[at - 1], i.op);
      return add_fold(p, i, part, rest, sources);
    }
    if (i.work == Work::accumulate) {
      part.streams[2] = rest.out = stream(p, i, i.out, accumulator_size(i.op), 0);
      part.fn = tile_.stage(i.work, i.op, sources);
      p.parts.push_back(part);
      p.rest.push_back(rest);
      return;
    }
    p.rest.push_back(rest);
    if (i.work == Work::exp_of_difference) {
      exp_.part = p.parts.size();
      std::copy(sources, sources + 2, exp_.sources);
    }
    const bool writes = i.work == Work::store || narrows(i.work);
    if (writes && sources[0] != Source::block) {  // what it stores comes from memory
      Pipeline::Part load = part;
      const Source memory[1] = {sources[0]};
      load.fn = tile_.stage(Work::load, Op::input, memory);
      p.parts.push_back(load);
    }
    if (writes) part.streams[0] = rest.out;
    part.fn = tile_.stage(i.work == Work::store ? store_of(i) : i.work, i.op, sources);
    p.parts.push_back(part);
    if (writes || stays(code, at, last)) keep(i.out);
    if (writes || !stays(code, at, last)) return;
    Pipeline::Part store = {tile_.stage(store_of(i), Op::input, sources), {rest.out}, -1};
    p.parts.push_back(store);
  }

  // The exponential's step takes those after it along: its store, where there is one, and the sum that comes next.
  void sum_with_exp(Pipeline& p, const Instruction& exp, Op fold) {
    const size_t after = p.parts.size() - exp_.part;
    if ((fold != Op::op_reduce_sum && fold != Op::op_reduce_mean) || (after == 2 && may_stream(exp))) return;
    const Work work = after == 2 ? Work::exp_store_and_sum : Work::exp_and_sum;
    if (const StageFn fn = tile_.stage(work, exp.op, exp_.sources)) p.parts[exp_.part].fn = fn;
  }

  void add_fold(Pipeline& p, const Instruction& i, Pipeline::Part part, Pipeline::Rest rest, Source* sources) {
    const FoldFns fold = tile_.fold(i.op);
    if (i.work == Work::fold_products) {
      part.fn = tile_.stage(Work::primitive, Op::op_mul, sources);
      p.parts.push_back(part);
      sources[0] = Source::block;
    }
    part.fn = tile_.stage(i.work, i.op, sources);
    part.fold = rest.fold = static_cast<int>(p.folds.size());
    p.parts.push_back(part);
    rest.fn = i.work == Work::fold ? fold.rest : fold.rest_of_products;
    p.rest.push_back(rest);
    const bool to_accumulator = plan_.layout.schedule == Schedule::row;
    p.folds.push_back({fold.init, to_accumulator ? fold.accumulate : fold.finish, rest.out});
  }

  KernelPlan& plan_;
  const TileKernels& tile_ = tile_kernels();
  struct {  // the last exponential of a difference that was added
    size_t part;
    Source sources[2];
  } exp_ = {};
  bool streams_ = false;
  std::set<uint16_t> streamed_;  // registers of outputs that are never read
};

}  // namespace

void form_pipelines(KernelPlan& plan) {
  Former former(plan);
  former.form(plan.once_code);
  for (Code& code : plan.item_code) former.form(code);
  for (Pass& pass : plan.passes) former.form(pass.tile_code);
  plan.streams = former.streams();
}

}  // namespace onnxfuse::cpu
