// Merges dimensions and chooses which become the grid, the loop and the tile.
#include <algorithm>

#include "caches.h"
#include "plan.h"

namespace onnxfuse::cpu {
namespace {

constexpr int64_t kBand = 2048;         // the same of bands, whose reductions keep running values in registers
constexpr int64_t kRows = 2048;         // points of whole rows that are computed together
constexpr int64_t kRowsOfMemory = 512;  // the same of large tensors, see points_of_rows
constexpr int64_t kRowsAlone = 8192;    // the same where each row is finished on its own, see there

bool steps_alike(const Access& access, int outer, int64_t outer_stride_expected) {
  return access.strides.empty() || access.strides[static_cast<size_t>(outer)] == outer_stride_expected;
}

bool mergeable(const BoundKernel& bound, const Dim& outer, int inner, int64_t inner_extent) {
  const auto alike = [&](const Access& access) {
    return access.strides.empty() ||
           steps_alike(access, outer.innermost, access.strides[static_cast<size_t>(inner)] * inner_extent);
  };
  return std::all_of(bound.inputs.begin(), bound.inputs.end(), alike) &&
         std::all_of(bound.outputs.begin(), bound.outputs.end(), alike);
}

std::vector<Dim> merge_dims(const Kernel& kernel, const BoundKernel& bound) {
  std::vector<Dim> dims;
  const uint32_t reduced_mask = kernel.space.reduced_mask();
  for (int d = 0; d < kernel.space.rank(); ++d) {
    const int64_t extent = bound.extents[static_cast<size_t>(d)];
    const bool reduced = (reduced_mask >> d & 1) != 0;
    if (extent == 1) continue;
    if (!dims.empty() && dims.back().reduced == reduced && mergeable(bound, dims.back(), d, extent)) {
      dims.back().extent *= extent;
      dims.back().innermost = d;
      dims.back().mask |= 1u << d;
    } else {
      dims.push_back({extent, d, 1u << d, reduced});
    }
  }
  return dims;
}

// Moves dimensions from the end of dims into the tile and cuts the first of them into blocks.
void choose_tile(Layout& layout, std::vector<Dim>& dims, int64_t limit) {
  int64_t points = 1;
  while (!dims.empty() && (layout.tile.empty() || points < std::min(limit, kShortTile))) {
    layout.tile.insert(layout.tile.begin(), dims.back());
    points *= dims.back().extent;
    dims.pop_back();
  }
  if (layout.tile.empty()) return;
  layout.tile_extent = layout.tile[0].extent;
  layout.inner = layout.tile_extent == 0 ? 1 : points / layout.tile_extent;
  const int64_t most = std::max<int64_t>(1, limit / layout.inner);
  layout.blocks = (layout.tile_extent + most - 1) / most;
  if (layout.blocks > 1) {
    layout.block = (layout.tile_extent + layout.blocks - 1) / layout.blocks;
    if (layout.inner == 1) layout.block = (layout.block + 15) / 16 * 16;
    layout.blocks = (layout.tile_extent + layout.block - 1) / layout.block;
  } else {
    layout.block = layout.tile_extent;
  }
}

bool is_plain_softmax(const Kernel& kernel) {
  constexpr Op ops[] = {Op::input, Op::op_reduce_max, Op::op_sub, Op::op_exp, Op::op_reduce_sum, Op::op_div};
  const std::vector<Statement>& s = kernel.statements;
  if (s.size() < std::size(ops)) return false;
  const auto end = s.begin() + std::size(ops);
  return std::equal(s.begin(), end, std::begin(ops),
                    [](const Statement& a, Op op) { return a.op == op && a.type == Type::f32; }) &&
         std::all_of(end, s.end(), [](const Statement& a) {  // what replaces NaN
           return a.op == Op::op_isnan || a.op == Op::constant || a.op == Op::op_where;
         });
}

bool has_exponentials(const Kernel& kernel) {
  return std::any_of(kernel.statements.begin(), kernel.statements.end(),
                     [](const Statement& s) { return s.op == Op::op_exp; });
}

// Where rows come from memory, their loads and stores should go on beside arithmetic, of which exponentials are enough:
// on an EPYC with 32 MB of cache, scale + mask + softmax of 16 MB took 0.47 ns an element with 512 points at a time,
// 0.63 with 2048. Otherwise many rows at a time make less work: LayerNorm of 2 MB took 0.44 and 0.36, of 16 MB 0.5 and
// 0.43. A softmax of an input goes through row after row, and had better not begin anew too often.
int64_t points_of_rows(const Kernel& kernel, const BoundKernel& bound) {
  if (is_plain_softmax(kernel)) return kRowsAlone;
  return has_exponentials(kernel) && comes_from_memory(bound) ? kRowsOfMemory : kRows;
}

// The last dimension that is not reduced, in blocks, and all reduced ones.
void take_rows(Layout& layout, std::vector<Dim>& kept, const std::vector<Dim>& reduced, int64_t points) {
  layout.tile.push_back(kept.empty() ? Dim() : kept.back());
  if (!kept.empty()) kept.pop_back();
  layout.tile.insert(layout.tile.end(), reduced.begin(), reduced.end());
  layout.tile_extent = layout.tile[0].extent;
  layout.inner = layout.reduced_points;
  layout.block = std::min(layout.tile_extent, std::max<int64_t>(1, points / layout.inner));
  layout.blocks = (layout.tile_extent + layout.block - 1) / layout.block;
}

int64_t product(const std::vector<Dim>& dims) {
  int64_t points = 1;
  for (const Dim& d : dims) points *= d.extent;
  return points;
}

// As many as are read in long pieces, of columns that the last cache holds; or all that lie next to each other, so that
// memory is read in order (a maximum of 4096 x 2048 subtracted from each took 10.7 ms by blocks of 512, 4.8 so), while
// their accumulators do not leave the first cache by much. But what is gone through three times had better stay in the
// second cache, if it can (LayerNorm of 2 x 256 x 3136 along the second, one and two threads: 2.53 and 1.42 ms by all
// columns, 2.23 and 1.15 by blocks of 1024).
int64_t columns_of_block(const Kernel& kernel, int64_t adjacent, int64_t reduced_points) {
  constexpr int64_t second_cache = 1 << 20;
  const int64_t held = cache_share() / 4 / reduced_points / 64 * 64;
  const auto reductions = std::count_if(kernel.statements.begin(), kernel.statements.end(),
                                        [](const Statement& s) { return is_reduction(s.op); });
  const bool stays = reductions > 1 && !has_exponentials(kernel) && kTile * reduced_points * 4 <= second_cache;
  const int64_t whole = adjacent <= 4 * kTile && !(stays && adjacent > kTile) ? adjacent : 1;
  return std::max(std::clamp<int64_t>(held, kShortTile, kTile), whole);
}

// Whether bands pay: a tile has some rows, and points enough for a loop.
bool suits_band(const Kernel& kernel, int64_t columns, int64_t last) {
  return columns > 1 && columns <= kBand / 4 && last * columns >= kShortTile && !takes_order(kernel);
}

// Some points of the last reduced dimension, in blocks, and all columns.
void take_band(Layout& layout, std::vector<Dim>& kept, std::vector<Dim>& reduced, size_t columns) {
  layout.tile.push_back(reduced.back());
  reduced.pop_back();
  layout.tile.insert(layout.tile.end(), kept.end() - static_cast<std::ptrdiff_t>(columns), kept.end());
  kept.resize(kept.size() - columns);
  layout.tile_extent = layout.tile[0].extent;
  for (size_t d = 1; d < layout.tile.size(); ++d) layout.inner *= layout.tile[d].extent;
  layout.block = std::min(layout.tile_extent, kBand / layout.inner);
  layout.blocks = (layout.tile_extent + layout.block - 1) / layout.block;
}

}  // namespace

namespace {

int64_t points_of_tensors(const BoundKernel& bound) {
  int64_t points = 0;
  const auto count = [&](const Access& access) {
    int64_t own = 1;
    for (size_t d = 0; d < access.strides.size(); ++d)
      if (access.strides[d] != 0) own *= bound.extents[d];
    points += own;
  };
  std::for_each(bound.inputs.begin(), bound.inputs.end(), count);
  std::for_each(bound.outputs.begin(), bound.outputs.end(), count);
  return points;
}

}  // namespace

// If each point has 4 bytes.
bool comes_from_memory(const BoundKernel& bound) { return points_of_tensors(bound) >= 2 * cache_share() / 4; }
bool may_come_from_memory(const BoundKernel& bound) { return points_of_tensors(bound) >= cache_share() / 4; }

bool takes_order(const Kernel& kernel) {
  return std::any_of(kernel.statements.begin(), kernel.statements.end(),
                     [](const Statement& s) { return is_scan(s.op) || is_argument(s.op); });
}

Layout make_layout(const Kernel& kernel, const BoundKernel& bound, const Limits& limits) {
  Layout layout;
  std::vector<Dim> kept, reduced;
  int64_t inner = 1;  // points of the dimensions inside of the reduced ones
  size_t inner_dims = 0;
  for (const Dim& d : merge_dims(kernel, bound)) {
    (d.reduced ? reduced : kept).push_back(d);
    if (d.reduced || reduced.empty()) continue;
    inner *= d.extent;
    ++inner_dims;
  }
  layout.reduced_points = product(reduced);
  const bool reduces = kernel.space.reduced > 0;
  if (!reduced.empty() && suits_band(kernel, inner, reduced.back().extent)) {
    layout.schedule = Schedule::band;
    take_band(layout, kept, reduced, inner_dims);
    layout.loop = reduced;
  } else if (!reduces || reduced.empty() || layout.reduced_points < 16 || inner >= 16) {
    layout.schedule = Schedule::column;
    int64_t limit = reduces ? kTile : limits.tile;
    if (!reduced.empty() && layout.reduced_points > 0)
      limit = columns_of_block(kernel, inner > 1 ? kept.back().extent : 1, layout.reduced_points);
    choose_tile(layout, kept, limit);
    layout.loop = reduced;
  } else if (layout.reduced_points <= limits.whole_row) {
    layout.schedule = Schedule::whole;
    take_rows(layout, kept, reduced, points_of_rows(kernel, bound));
  } else {
    layout.schedule = Schedule::row;
    choose_tile(layout, reduced, kTile);
    layout.loop = reduced;
  }
  layout.grid = kept;
  layout.grid_points = product(layout.grid);
  layout.loop_points = product(layout.loop);
  return layout;
}

}  // namespace onnxfuse::cpu
