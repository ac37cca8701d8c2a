// Prefixes across the blocks that share a row, in one launch. Blocks take the tiles of the rows in their order, so that
// all that a block waits for is at work already.
//
// In the single-pass scan of Merrill and Garland ("Single-pass parallel prefix scan with decoupled look-back", 2016) a
// tile adds up its predecessors' sums until it meets one that knows its prefix; which one that is depends on timing,
// and so do the bits of a floating-point result. Here the sums of 32 tiles make that of a group, those of 32 groups
// that of a larger one, and so on; a prefix is what the complete groups before a tile and the single tiles behind them
// add up to, always the same ones. Nothing waits for a chain of prefixes: the last tile of a group gives the group's
// sum as soon as it has those of the others.

DEVICE void store_relaxed(u64* address, u64 value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(address), "l"(value) : "memory");
}
DEVICE u64 load_relaxed(const u64* address) {
  u64 value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
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

// By one warp, for tile number `tile` of `tiles` of a row, in the order of the scan: what all tiles before it add up
// to. 32 to the power of LEVELS is at least `tiles`; a row has nodes for its tiles, its complete groups of 32, of 32^2,
// ...
template <class Scan, int LEVELS, class T>
DEVICE T look_back(u64* nodes, u32 tiles, u32 tile, T own) {
  const u32 lane = threadIdx.x % 32;
  if (lane == 0) give(nodes + tile * NODE_WORDS<T>, own);
  u64* base[LEVELS];
  T value[LEVELS];
  bool there[LEVELS];
  u32 index = tile;
#pragma unroll
  for (int level = 0; level < LEVELS; ++level) {
    base[level] = nodes;
    there[level] = lane >= index % 32 || take(nodes + (index / 32 * 32 + lane) * NODE_WORDS<T>, value[level]);
    nodes += static_cast<u64>(tiles) * NODE_WORDS<T>;
    tiles /= 32;
    index /= 32;
  }
  T before = Scan::template identity<T>();
  bool closes = true;  // the group of this level ends with this tile
  index = tile;
#pragma unroll
  for (int level = 0; level < LEVELS; ++level) {
    while (!__all_sync(0xffffffffu, there[level])) {
      if (!there[level]) there[level] = take(base[level] + (index / 32 * 32 + lane) * NODE_WORDS<T>, value[level]);
    }
    const T earlier = lane < index % 32 ? value[level] : Scan::template identity<T>();
    before = level == 0 ? earlier : Scan::apply(earlier, before);
    closes = closes && index % 32 == 31;
    index /= 32;
    if (level + 1 < LEVELS && closes) {
      own = Scan::apply(reduce_warp<Scan, 32>(earlier), own);
      if (lane == 0) give(base[level + 1] + index * NODE_WORDS<T>, own);
    }
  }
  return reduce_warp<Scan, 32>(before);
}
