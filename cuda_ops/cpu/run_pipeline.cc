// Runs a pipeline over a tile, or over each row of one: whole blocks by its stages, what is left by loops.
#include "task.h"

namespace onnxfuse::cpu {

void Task::run_pipeline(const Pipeline& p) {
  const TileKernels& tile = tile_kernels();
  const size_t inner = static_cast<size_t>(layout_.inner);
  const int64_t rows = p.count == Instruction::Count::steps ? rows_ : 1;
  const size_t n = p.count == Instruction::Count::tile ? static_cast<size_t>(rows_) * inner : inner;
  const size_t blocks = n / tile.block, done = blocks * tile.block;
  const int64_t count = static_cast<int64_t>(n);
  alignas(64) char states[kMostFolds][kFoldBytes];
  Step steps[kMostParts];
  struct Moving {
    char** operand;
    size_t step;
  } moving[3 * kMostParts];
  size_t movings = 0;
  for (size_t k = 0; k < p.parts.size(); ++k) {
    const Pipeline::Part& part = p.parts[k];
    steps[k].fn = part.fn;
    for (int o = 0; o < 3; ++o) {
      steps[k].operand[o] = reg_[part.streams[o].reg];
      if (part.streams[o].row_step != 0) moving[movings++] = {&steps[k].operand[o], part.streams[o].row_step};
    }
    if (part.fold >= 0) steps[k].operand[2] = states[part.fold];
  }
  for (int64_t r = 0; r < rows; ++r) {
    const auto at = [&](const Stream& s) { return reg_[s.reg] + static_cast<size_t>(r) * s.row_step; };
    for (size_t f = 0; f < p.folds.size(); ++f) p.folds[f].init(states[f], nullptr, nullptr, nullptr, 1);
    if (blocks > 0) tile.run_blocks(steps, blocks);
    for (const Pipeline::Rest& i : p.rest) {
      if (done == n) break;
      const auto rest = [&](const Stream& s) { return at(s) + done * s.size; };
      char* const out = i.fold >= 0 ? states[i.fold] : rest(i.out);
      i.fn(out, rest(i.in[0]), rest(i.in[1]), rest(i.in[2]), n - done);
    }
    for (size_t f = 0; f < p.folds.size(); ++f) p.folds[f].finish(at(p.folds[f].out), states[f], &count, nullptr, 1);
    for (size_t k = 0; k < movings; ++k) *moving[k].operand += moving[k].step;
  }
}

}  // namespace onnxfuse::cpu
