// Prefixes across the blocks that share a row, in one launch. Blocks take the tiles of the rows in their order, so that
// all that a block waits for is at work already.
//
// In the single-pass scan of Merrill and Garland ("Single-pass parallel prefix scan with decoupled look-back", 2016) a
// tile adds up its predecessors' sums until it meets one that knows its prefix; which one that is depends on timing,
// and so do the bits of a floating-point result. Here the sums of 32 tiles make that of a group, those of 32 groups
// that of a larger one, and so on; a prefix is what the complete groups before a tile and the single tiles behind them
// add up to, always the same ones. Nothing waits for a chain of prefixes: the last tile of a group gives the group's
// sum as soon as it has those of the others.
//
// A row has nodes for its tiles, its complete groups of 32, of 32^2, ...; LEVELS of them: 32 to the power of LEVELS is
// at least the number of tiles. Tiles are numbered in the order of the scan.

DEVICE void store_relaxed(u64* address, u64 value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(address), "l"(value) : "memory");
}
DEVICE u64 load_relaxed(const u64* address) {
  u64 value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

// Tile number `number` of a row, in the order of the scan, and where a block has it.
struct Tile {
  u32 row, number;
  int buffer;
  bool exists;
};
DEVICE u32 take_ticket(u64* counter) { return atomicAdd(reinterpret_cast<u32*>(counter), 1u); }
DEVICE Tile tile_of(u32 ticket, u32 tiles, i64 rows, int buffer) {
  const u32 row = ticket / tiles;
  return {row, ticket % tiles, buffer, row < rows};
}

// A value that one thread gives and others wait for: words of 32 bits with a mark above each. Zero before.
template <class T>
constexpr int NODE_WORDS = sizeof(T) > 4 ? 2 : 1;
template <class T>
DEVICE void give(u64* node, T value) {
  const T values[1] = {value};
  Raw<sizeof(T)> raw;
  Element<T>::put(raw.word, values);
#pragma unroll
  for (int k = 0; k < NODE_WORDS<T>; ++k) store_relaxed(node + k, static_cast<u64>(1) << 32 | raw.word[k]);
}
template <class T>
DEVICE bool take(const u64* node, T& value) {
  u64 words[NODE_WORDS<T>];
#pragma unroll
  for (int k = 0; k < NODE_WORDS<T>; ++k) words[k] = load_relaxed(node + k);
  bool given = true;
  Raw<sizeof(T)> raw;
#pragma unroll
  for (int k = 0; k < NODE_WORDS<T>; ++k) {
    given = given && words[k] >> 32 != 0;
    raw.word[k] = static_cast<u32>(words[k]);
  }
  value = Element<T>::get(raw.word, 0);
  return given;
}

// What the threads of a warp have, in their order; the same for all of them.
template <class Scan, class T>
DEVICE T combine_warp(T value) {
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) {
    const T other = shuffle(value, mask);
    value = (threadIdx.x & mask) != 0 ? Scan::apply(other, value) : Scan::apply(value, other);
  }
  return value;
}

// By one warp: `own` is what tile number `tile` adds up to. If it is the last of a group, gives what the group does.
template <class Scan, int LEVELS, class T>
DEVICE void close_groups(u64* nodes, u32 tiles, u32 tile, T own) {
  const u32 lane = threadIdx.x % 32;
#pragma unroll
  for (int level = 0; level + 1 < LEVELS; ++level) {
    if (tile % 32 != 31) return;
    T value = own;
    bool there = lane == 31;
    while (!__all_sync(0xffffffffu, there)) {
      if (!there) there = take(nodes + (tile - 31 + lane) * NODE_WORDS<T>, value);
    }
    own = combine_warp<Scan>(value);
    nodes += static_cast<u64>(tiles) * NODE_WORDS<T>;
    tiles /= 32;
    tile /= 32;
    if (lane == 0) give(nodes + tile * NODE_WORDS<T>, own);
  }
}

// By one warp: what all tiles before number `tile` of `tiles` add up to.
template <class Scan, int LEVELS, class T>
DEVICE T look_back(const u64* nodes, u32 tiles, u32 tile) {
  const u32 lane = threadIdx.x % 32;
  const u64* node[LEVELS];
  T value[LEVELS];
  bool there[LEVELS];
#pragma unroll
  for (int level = 0; level < LEVELS; ++level) {
    node[level] = nodes + (tile / 32 * 32 + lane) * NODE_WORDS<T>;
    value[level] = Scan::template identity<T>();
    there[level] = lane >= tile % 32 || take(node[level], value[level]);
    nodes += static_cast<u64>(tiles) * NODE_WORDS<T>;
    tiles /= 32;
    tile /= 32;
  }
  T before = Scan::template identity<T>();
#pragma unroll
  for (int level = 0; level < LEVELS; ++level) {
    while (!__all_sync(0xffffffffu, there[level])) {
      if (!there[level]) there[level] = take(node[level], value[level]);
    }
    // Single products are combined in their order; all else in one go.
    if constexpr (MULTIPLIES<Scan>) value[level] = combine_warp<Scan>(value[level]);
    before = level == 0 ? value[level] : Scan::apply(value[level], before);
  }
  return MULTIPLIES<Scan> ? before : combine_warp<Scan>(before);
}
