// Reductions within a group of threads. All threads of a group get the same bits, whatever the timing.

struct Sum {
  template <class T>
  DEVICE T identity() {
    return T(0);
  }
  template <class T>
  DEVICE T apply(T a, T b) {
    return of_add(a, b);
  }
};
struct Product {
  template <class T>
  DEVICE T identity() {
    return T(1);
  }
  template <class T>
  DEVICE T apply(T a, T b) {
    return of_mul(a, b);
  }
};
struct Maximum {
  template <class T>
  DEVICE T identity() {
    return lowest(T());
  }
  template <class T>
  DEVICE T apply(T a, T b) {
    return of_max(a, b);
  }
};
struct Minimum {
  template <class T>
  DEVICE T identity() {
    return highest(T());
  }
  template <class T>
  DEVICE T apply(T a, T b) {
    return of_min(a, b);
  }
};

// LANES is a power of two; neighbours' halves are combined first.
template <class Reduction, int LANES, class T>
DEVICE T reduce_first(const T* value) {
  if constexpr (LANES == 1) {
    return value[0];
  } else {
    return Reduction::apply(reduce_first<Reduction, LANES / 2>(value),
                            reduce_first<Reduction, LANES / 2>(value + LANES / 2));
  }
}
template <class Reduction, int LANES, class T>
DEVICE T reduce_lanes(const T (&value)[LANES]) {
  return reduce_first<Reduction, LANES>(value);
}

// Over GROUP neighbouring threads of a warp (a power of two up to 32).
template <class Reduction, int GROUP, class T>
DEVICE T reduce_warp(T value) {
#pragma unroll
  for (int mask = GROUP / 2; mask > 0; mask /= 2) value = Reduction::apply(value, shuffle(value, mask));
  return value;
}
// Over the threads of a warp that are a multiple of STRIDE apart (a power of two).
template <class Reduction, int STRIDE, class T>
DEVICE T reduce_strided(T value) {
#pragma unroll
  for (int mask = 16; mask >= STRIDE; mask /= 2) value = Reduction::apply(value, shuffle(value, mask));
  return value;
}
// The second half of a reduction over WARPS warps (a power of two): each warp combines what all left in shared memory.
template <class Reduction, int WARPS, class T>
DEVICE T reduce_shared(const T* shared) {
  T value = shared[threadIdx.x % (WARPS < 32 ? WARPS : 32)];
#pragma unroll
  for (int k = 32; k < WARPS; k += 32) value = Reduction::apply(value, shared[threadIdx.x % 32 + k]);
  return reduce_warp<Reduction, (WARPS < 32 ? WARPS : 32)>(value);
}
