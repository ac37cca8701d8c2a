// Prefixes across the blocks that share columns, in one launch; look_back.cuh has those of rows. The tiles of all
// strips of columns come in turns, so that a block meets other columns each time and cannot keep what it has added up.
// So sums are handed on in two steps: the last of BRANCH tiles of a column gives what they add up to, and the last of
// BRANCH such groups what comes before all tiles behind it. A tile looks up that, the groups behind it and the tiles
// behind those: always the same in the same order.
constexpr u32 BRANCH = 16, BRANCHES = BRANCH * BRANCH;

// Of a scan: what each tile of each column adds up to, each group, and what comes before each BRANCHES tiles but the
// first; nodes of T, A and A.
struct ColumnNodes {
  u64 *tiles, *groups, *carries;
  i64 columns;
};
template <class T, class A>
DEVICE ColumnNodes column_nodes(u64* words, i64 columns, u32 tiles) {
  u64* const groups = words + tiles * columns * NODE_WORDS<T>;
  return {words, groups, groups + (tiles + BRANCH - 1) / BRANCH * columns * NODE_WORDS<A>, columns};
}

// What `count` nodes that lie `stride` words apart add up to, behind `sum`; waits until they are given.
template <class Scan, class T, class A>
DEVICE A combine_nodes(const u64* nodes, u32 count, i64 stride, A sum) {
  constexpr int AT_ONCE = 8 / NODE_WORDS<T>;
  for (u32 first = 0; first < count; first += AT_ONCE) {
    const u64* const node = nodes + first * stride;
    u64 words[AT_ONCE][NODE_WORDS<T>];
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
      if (first + k < count) look<T>(node + k * stride, words[k]);
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
      if (first + k >= count) continue;
      T value;
      while (!take(words[k], value)) look<T>(node + k * stride, words[k]);
      sum = Scan::apply(sum, static_cast<A>(value));
    }
  }
  return sum;
}
// By one thread: what all tiles of the column before number `tile` add up to. The last tile of a group hands that on
// with what it adds up to itself.
template <class Scan, class T, class A>
DEVICE A look_back_column(const ColumnNodes& nodes, u32 tile, i64 column) {
  const i64 row_of_tiles = nodes.columns * NODE_WORDS<T>, row = nodes.columns * NODE_WORDS<A>;
  const u32 group = tile / BRANCH, carry = tile / BRANCHES;
  const u64* const tiles = nodes.tiles + group * BRANCH * row_of_tiles + column * NODE_WORDS<T>;
  u64* const groups = nodes.groups + column * NODE_WORDS<A>;
  u64* const carries = nodes.carries + column * NODE_WORDS<A>;
  const bool last_of_group = tile % BRANCH == BRANCH - 1, last_of_all = tile % BRANCHES == BRANCHES - 1;
  const A nothing = Scan::template identity<A>();
  const A behind = combine_nodes<Scan, T>(tiles, tile % BRANCH, row_of_tiles, nothing);
  A group_sum = behind;
  if (last_of_group) {
    group_sum = combine_nodes<Scan, T>(tiles + (BRANCH - 1) * row_of_tiles, 1, row_of_tiles, behind);
    if (!last_of_all) give(groups + group * row, group_sum);
  }
  A sum = nothing;
  if (carry > 0) sum = combine_nodes<Scan, A>(carries + (carry - 1) * row, 1, row, nothing);
  sum = combine_nodes<Scan, A>(groups + carry * BRANCH * row, group % BRANCH, row, sum);
  if (last_of_all) give(carries + carry * row, Scan::apply(sum, group_sum));
  return Scan::apply(sum, behind);
}
