#include "task.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "caches.h"

namespace onnxfuse::cpu {
namespace {

// A task's registers and buffers; each thread keeps its own between runs.
class Arena {
 public:
  char* reserve(size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset(new char[bytes + kAlignment]);
      bytes_ = bytes;
    }
    const auto address = reinterpret_cast<uintptr_t>(memory_.get());
    return memory_.get() + ((kAlignment - address % kAlignment) % kAlignment);
  }

 private:
  static constexpr size_t kAlignment = 64;
  std::unique_ptr<char[]> memory_;
  size_t bytes_ = 0;
};

void copy_row(char* out, const char* in, int64_t n, int64_t out_stride, int64_t in_stride, size_t size) {
  const auto strided = [&](auto element) {
    for (int64_t i = 0; i < n; ++i) std::memcpy(out + i * out_stride, in + i * in_stride, sizeof element);
  };
  const int64_t step = static_cast<int64_t>(size);
  if (out_stride == step && in_stride == step) {
    std::memcpy(out, in, static_cast<size_t>(n) * size);
  } else if (size == 1) {
    strided(uint8_t());
  } else if (size == 2) {
    strided(uint16_t());
  } else if (size == 4) {
    strided(uint32_t());
  } else {
    strided(uint64_t());
  }
}

void copy_dims(char* out, const char* in, const CopyDim* dims, size_t count, int64_t factor, size_t size) {
  const int64_t n = dims->extent * factor;
  if (count == 1) return copy_row(out, in, n, dims->out_stride, dims->in_stride, size);
  for (int64_t i = 0; i < n; ++i)
    copy_dims(out + i * dims->out_stride, in + i * dims->in_stride, dims + 1, count - 1, 1, size);
}

}  // namespace

void Odometer::seek(const std::vector<Dim>& dims, int64_t position) {
  nonzero = 0;
  for (size_t d = dims.size(); d-- > 0;) {
    index[d] = position % dims[d].extent;
    position /= dims[d].extent;
    if (index[d] != 0) nonzero |= 1u << d;
  }
}

void Odometer::advance(const std::vector<Dim>& dims) {
  for (size_t d = dims.size(); d-- > 0;) {
    nonzero |= 1u << d;
    if (++index[d] < dims[d].extent) return;
    index[d] = 0;
    nonzero &= ~(1u << d);
  }
}

void Odometer::retreat(const std::vector<Dim>& dims) {
  for (size_t d = dims.size(); d-- > 0;) {
    const bool wraps = index[d] == 0;
    index[d] = wraps ? dims[d].extent - 1 : index[d] - 1;
    nonzero = index[d] != 0 ? nonzero | 1u << d : nonzero & ~(1u << d);
    if (!wraps) return;
  }
}

Task::Task(const KernelPlan& plan, Tensors inputs, Tensors outputs)
    : plan_(plan), layout_(plan.layout), inputs_(inputs), outputs_(outputs) {
  static thread_local Arena arena;
  const size_t registers = plan.registers.size(), addresses = plan.addresses.size();
  const size_t table = ((registers + addresses) * sizeof(char*) + 63) / 64 * 64;
  char* memory = arena.reserve(table + plan.arena_bytes);
  reg_ = reinterpret_cast<char**>(memory);
  item_address_ = reg_ + registers;
  buffers_ = memory + table;
  for (size_t r = 0; r < registers; ++r) {
    const Register& source = plan.registers[r];
    if (source.kind == Register::Kind::arena)
      reg_[r] = buffers_ + source.offset;
    else if (source.kind == Register::Kind::constant)
      reg_[r] = reinterpret_cast<char*>(const_cast<uint64_t*>(plan.constants.data() + source.offset));
    else
      reg_[r] = nullptr;
  }
  rows_ = layout_.block;
  execute(plan.task_code);
}

void Task::run(int64_t first, int64_t last) {
  const int64_t blocks = layout_.item_is_point() ? 1 : layout_.blocks;
  grid_.seek(layout_.grid, first / blocks);
  int64_t block = first % blocks;
  for (int64_t i = first; i < last; ++i) {
    run_item(block);
    if (++block == blocks) {
      block = 0;
      grid_.advance(layout_.grid);
    }
  }
  execute(plan_.end_code);
  if (plan_.streams) tile_kernels().fence();
}

void Task::place(int64_t block) {
  const size_t dims = layout_.grid.size();
  for (size_t i = 0; i < plan_.addresses.size(); ++i) {
    const Address& a = plan_.addresses[i];
    int64_t offset = a.offset + block * a.block;
    for (size_t d = 0; d < dims; ++d) offset += grid_.index[d] * a.grid[d];
    const size_t tensor = static_cast<size_t>(a.tensor);
    char* base = a.base == Address::Base::input    ? static_cast<char*>(inputs_[tensor].data)
                 : a.base == Address::Base::output ? static_cast<char*>(outputs_[tensor].data)
                                                   : buffers_;
    item_address_[i] = reg_[a.reg] = base + offset;
  }
}

void Task::set_block(int64_t block) {
  block_ = block;
  rows_ = std::min(layout_.block, layout_.tile_extent - block * layout_.block);
}

void Task::enter(int64_t item) {
  const int64_t blocks = layout_.item_is_point() ? 1 : layout_.blocks;
  grid_.seek(layout_.grid, item / blocks);
  place(item % blocks);
  set_block(layout_.item_is_point() ? 0 : item % blocks);
}

void Task::run_item_code(size_t pass, bool lead) {
  if (layout_.item_is_point()) rows_ = layout_.block;
  loop_.nonzero = 0;
  block_ = lead ? 0 : 1;
  execute(plan_.item_code[pass]);
}

void Task::run_item(int64_t block) {
  place(block);
  if (layout_.item_is_point())
    rows_ = layout_.block;  // of the code before a pass
  else
    set_block(block);
  for (const SoftmaxPlace& softmax : plan_.softmaxes) {
    auto& state = *reinterpret_cast<SoftmaxState*>(reg_[softmax.state]);
    if (!begun_) state = {};
    const bool whole = layout_.tile_extent - block * layout_.block >= 2 * layout_.block;  // the next block
    if (const auto i = static_cast<size_t>(softmax.ahead_of); softmax.ahead_of >= 0 && whole)
      state.next = reinterpret_cast<const float*>(item_address_[i] + plan_.addresses[i].block);
    else
      state.next = nullptr;
  }
  if (!begun_) execute(plan_.once_code);
  begun_ = true;
  const int64_t tiles = plan_.tiles();
  for (size_t p = 0; p < plan_.passes.size(); ++p) {
    execute(plan_.item_code[p]);
    run_tiles(p, 0, tiles);
    block_ = block;
    if (layout_.item_is_point()) rows_ = layout_.block;
    loop_.nonzero = 0;
  }
  if (asks_for_rows() && !plan_.rows_alone && layout_.schedule == Schedule::whole && block + 1 < layout_.blocks)
    execute_last(plan_.item_code.back());
  else
    execute(plan_.item_code.back());
}

// Asks for the cache lines that the next item will write, a few at each instruction: a row's stores come all at once,
// at its end, and would wait for them. Outputs that go past the caches are written without waiting; but then inputs are
// likely to come from memory as well, and a row's loads come all at once, at its beginning.
void Task::execute_last(const Code& code) {
  constexpr size_t line = 64;
  for (size_t i = 0; i < code.size(); ++i) {
    for (size_t j = 0; j < plan_.addresses.size(); ++j) {
      const Address& a = plan_.addresses[j];
      if (!a.dense || plan_.streams != (a.base == Address::Base::input)) continue;
      const size_t lines = static_cast<size_t>(a.block) / line;
      const char* next = item_address_[j] + a.block;
      for (size_t l = lines * i / code.size(); l < lines * (i + 1) / code.size(); ++l)
        plan_.streams ? __builtin_prefetch(next + l * line, 0, 2) : __builtin_prefetch(next + l * line, 1, 2);
    }
    execute(code[i]);
  }
}

// Puts the pass's addresses at a block of the loop's point.
void Task::move_to_tile(const Pass& pass, int64_t block) {
  for (uint16_t i : pass.moving) {
    const Address& a = plan_.addresses[i];
    int64_t offset = layout_.item_is_point() ? block * a.block : 0;
    for (size_t d = 0; d < layout_.loop.size(); ++d) offset += loop_.index[d] * a.loop[d];
    reg_[a.reg] = item_address_[i] + offset;
  }
}

void Task::run_tiles(size_t number, int64_t first, int64_t last) {
  if (first >= last) return;
  const Pass& pass = plan_.passes[number];
  const int64_t blocks = layout_.item_is_point() ? layout_.blocks : 1;
  const int64_t start = pass.reverse ? plan_.tiles() - 1 - first : first;
  loop_.seek(layout_.loop, start / blocks);
  int64_t block = start % blocks;
  bool enters = true;  // a point of the loop
  for (int64_t t = first; t < last; ++t) {
    move_to_tile(pass, block);
    if (layout_.item_is_point()) set_block(block);
    if (enters) execute(pass.loop_code);
    execute(pass.tile_code);
    enters = block == (pass.reverse ? 0 : blocks - 1);
    if (pass.reverse) {
      block = enters ? blocks - 1 : block - 1;
      if (enters) loop_.retreat(layout_.loop);
    } else {
      block = enters ? 0 : block + 1;
      if (enters) loop_.advance(layout_.loop);
    }
  }
  for (uint16_t i : pass.moving) reg_[plan_.addresses[i].reg] = item_address_[i];
  if (plan_.streams && plan_.shares_rows) tile_kernels().fence();
}

void Task::execute(const Code& code) {
  for (const Instruction& i : code) execute(i);
}

void Task::execute(const Instruction& i) {
  if (i.guarded &&
      ((i.guard_grid & grid_.nonzero) != 0 || (i.guard_loop & loop_.nonzero) != 0 || (i.guard_block && block_ != 0)))
    return;
  switch (i.count) {
    case Instruction::Count::one:
      call(i, 1);
      break;
    case Instruction::Count::rows:
      call(i, static_cast<size_t>(rows_));
      break;
    case Instruction::Count::inner:
      call(i, static_cast<size_t>(layout_.inner));
      break;
    case Instruction::Count::tile:
      call(i, static_cast<size_t>(rows_ * layout_.inner));
      break;
    case Instruction::Count::capacity:
      call(i, layout_.capacity());
      break;
    case Instruction::Count::steps:
      call_in_steps(i);
      break;
    case Instruction::Count::pattern: {
      const CopyPattern& p = plan_.patterns[i.pattern];
      copy_dims(reg_[i.out], reg_[i.a], p.dims.data(), p.dims.size(), p.per_block ? rows_ : 1, p.size);
      break;
    }
    case Instruction::Count::pipeline:
      run_pipeline(plan_.pipelines[i.pattern]);
      break;
  }
}

void Task::call_in_steps(const Instruction& i) {
  char *out = reg_[i.out], *a = reg_[i.a], *b = reg_[i.b], *c = reg_[i.c];
  const size_t n = static_cast<size_t>(layout_.inner);
  for (int64_t r = 0; r < rows_; ++r) {
    i.fn(out, a, b, c, n);
    out += i.step_out;
    a += i.step_a;
    b += i.step_b;
    c += i.step_c;
  }
}

}  // namespace onnxfuse::cpu
