// Prefixes across the blocks that share a row, in one launch. Blocks take the tiles of the rows in their order, so that
// all that a block waits for is at work already.
//
// In the single-pass scan of Merrill and Garland ("Single-pass parallel prefix scan with decoupled look-back", 2016) a
// tile adds up its predecessors' sums until it meets one that knows its prefix; which one that is depends on timing,
// and so do the bits of a floating-point result. Here a tile gives its sum alone, and a prefix is what the complete
// groups of GROUP_TILES tiles before add up to, one after the other, and the single tiles behind them: always in the
// same order. Nothing waits for a chain of prefixes, for every block adds up every group itself and keeps what comes
// before the group that it has got to: where a GPU has about as many blocks as a group has tiles, that is one group a
// tile.
//
// Tiles are numbered in the order of the scan; a row has a node for each.

DEVICE void store_relaxed(u64* address, u64 value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(address), "l"(value) : "memory");
}
DEVICE u64 load_relaxed(const u64* address) {
  u64 value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

// Tile number `number` of a row, in the order of the scan.
struct Tile {
  u32 row, number;
  bool exists;
};
// What the blocks of a launch count together.
struct Counters {
  u32 tickets, left;  // taken; blocks that take no more
  u32 cleared;        // 1: the nodes are 0
  u32 unused;
};
// One for each stream that uses the kernel, whose launches come one after the other: 0 between them. For all other
// launches the counters come before the nodes, in memory that is 0.
constexpr int STREAMS = 64;
__device__ Counters counters_of_streams[STREAMS];
DEVICE Counters* counters_of(int stream, u64* zeros) {
  return stream < 0 ? reinterpret_cast<Counters*>(zeros) : counters_of_streams + stream;
}
DEVICE u32 take_ticket(Counters* counters) { return atomicAdd(&counters->tickets, 1u); }
// A ticket that is taken after `earlier` has arrived.
DEVICE u32 take_ticket_behind(Counters* counters, u32 earlier) {
  return take_ticket(counters + (earlier == 0xffffffffu));
}
DEVICE void fence() { asm volatile("fence.acq_rel.gpu;" : : : "memory"); }
// By one thread of each block, after its last ticket: whoever comes last leaves the counters as the next launch needs
// them. All that waited for cleared nodes has found them.
DEVICE void leave(Counters* counters) {
  fence();
  if (atomicAdd(&counters->left, 1u) != gridDim.x - 1) return;
  fence();
  *counters = {0, 0, 0, 0};
}
// By the THREADS that compute of the block with the first tile: the nodes behind the counters, an even number of words.
template <int THREADS>
DEVICE void clear_nodes(u64* zeros, i64 words) {
  uint4* const nodes = reinterpret_cast<uint4*>(zeros) + 1;
  for (i64 i = threadIdx.x; i < words / 2; i += THREADS) nodes[i] = make_uint4(0, 0, 0, 0);
}
// By one of them, after a barrier.
DEVICE void tell_cleared(Counters* counters) {
  fence();
  asm volatile("st.relaxed.gpu.global.u32 [%0], 1;" : : "l"(&counters->cleared) : "memory");
}
DEVICE void wait_until_cleared(const Counters* counters) {
  u32 cleared;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(cleared) : "l"(&counters->cleared) : "memory");
  } while (cleared == 0);
}
DEVICE Tile tile_of(u32 ticket, u32 tiles, i64 rows) {
  const u32 row = ticket / tiles;
  return {row, ticket % tiles, row < rows};
}
// Where the rows are strips of columns: the first tiles of all strips come first.
DEVICE Tile tile_of_strip(u32 ticket, u32 tiles, u32 strips) {
  const u32 number = ticket / strips;
  return {ticket % strips, number, number < tiles};
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
// One look at a node: whether the value is there, and the value.
template <class T>
DEVICE void look(const u64* node, u64 (&words)[NODE_WORDS<T>]) {
#pragma unroll
  for (int k = 0; k < NODE_WORDS<T>; ++k) words[k] = load_relaxed(node + k);
}
template <class T>
DEVICE bool take(const u64 (&words)[NODE_WORDS<T>], T& value) {
  bool given = true;
  Raw<sizeof(T)> raw;
#pragma unroll
  for (int k = 0; k < NODE_WORDS<T>; ++k) {
    given = given && words[k] >> 32 != 0;
    raw.word[k] = static_cast<u32>(words[k]);
  }
  if (given) value = Element<T>::get(raw.word, 0);
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

constexpr int GROUP_TILES = 256;
constexpr int GROUP_NODES = GROUP_TILES / 32;  // of a lane

// Number k of the lane's tiles of a group: neighbours where the order matters, else what lanes read at a time.
template <class Scan>
DEVICE u32 tile_of_lane(int k) {
  return MULTIPLIES<Scan> ? threadIdx.x % 32 * GROUP_NODES + k : k * 32 + threadIdx.x % 32;
}
// One look at the nodes that the bits of `missing` stand for: all loads are on their way at a time. Gives what is left.
template <class Scan, class T>
DEVICE u32 look_at(const u64* nodes, u32 missing, T (&value)[GROUP_NODES]) {
  u64 words[GROUP_NODES][NODE_WORDS<T>];
#pragma unroll
  for (int k = 0; k < GROUP_NODES; ++k) {
    if ((missing >> k & 1u) != 0) look<T>(nodes + tile_of_lane<Scan>(k) * NODE_WORDS<T>, words[k]);
  }
#pragma unroll
  for (int k = 0; k < GROUP_NODES; ++k) {
    if ((missing >> k & 1u) != 0 && take(words[k], value[k])) missing &= ~(1u << k);
  }
  return missing;
}
// By one warp: what the first `count` tiles from the node on add up to, at most a group.
template <class Scan, class T, class A>
DEVICE A combine_tiles(const u64* nodes, u32 count) {
  T value[GROUP_NODES];
  u32 missing = 0;
#pragma unroll
  for (int k = 0; k < GROUP_NODES; ++k) {
    value[k] = Scan::template identity<T>();
    if (tile_of_lane<Scan>(k) < count) missing |= 1u << k;
  }
  while (__any_sync(0xffffffffu, missing != 0)) missing = look_at<Scan>(nodes, missing, value);
  A sum = static_cast<A>(value[0]);
#pragma unroll
  for (int k = 1; k < GROUP_NODES; ++k) sum = Scan::apply(sum, static_cast<A>(value[k]));
  return combine_warp<Scan>(sum);
}

// What a warp knows of the row that it has got to: what the first groups of tiles add up to.
template <class A>
struct Known {
  u32 row, groups;
  A carry;
};
// By one warp: what all tiles of the row before number `tile` add up to. `nodes` is the row's first; rows and tiles
// come in their order.
template <class Scan, class T, class A>
DEVICE A look_back(const u64* nodes, Known<A>& known, u32 row, u32 tile) {
  if (known.row != row) known = {row, 0, Scan::template identity<A>()};
  while (true) {
    const u64* const group = nodes + static_cast<u64>(known.groups) * (GROUP_TILES * NODE_WORDS<T>);
    const bool whole = known.groups < tile / GROUP_TILES;
    const A sum = Scan::apply(known.carry, combine_tiles<Scan, T, A>(group, whole ? GROUP_TILES : tile % GROUP_TILES));
    if (!whole) return sum;
    known.carry = sum;
    ++known.groups;
  }
}
