// Scans within a thread, a group of threads and a block. What is combined with what follows from positions alone.
//
// Everywhere, REVERSE scans from the last to the first. A is the type in which a block combines: that of the operands,
// or double for products of floats.

// Its identity leaves -0 alone, where a sum that begins with 0 does not.
struct RunningSum {
  template <class T>
  DEVICE T identity() {
    return static_cast<T>(-0.0f);
  }
  template <class T>
  DEVICE T apply(T a, T b) {
    return of_add(a, b);
  }
};
// Of the parts `a` and, behind it, `b`. What leaves the range of double stays at the end of it whatever follows, but
// for 0, an infinity and NaN, as factors that are gathered one after the other stay 0 or infinite. So 0 times a part
// that overflows is 0, and what comes behind an underflow does not bring it back.
constexpr double LARGEST = 0x1.fffffffffffffp1023, SMALLEST = 0x1p-1074;
DEVICE double product_in_range(double a, double b) {
  const double product = a * b, size = fabs(a), factor = fabs(b);
  if (!(size > 0.0 && factor > 0.0 && size <= LARGEST && factor <= LARGEST)) return product;
  if (size == LARGEST || size == SMALLEST) return copysign(size, product);
  if (of_isinf(product)) return copysign(LARGEST, product);
  return product == 0.0 ? copysign(SMALLEST, product) : product;
}
template <class T>
DEVICE T product_in_range(T a, T b) {
  return of_mul(a, b);
}
struct RunningProduct {
  template <class T>
  DEVICE T identity() {
    return T(1);
  }
  template <class T>
  DEVICE T apply(T a, T b) {
    return product_in_range(a, b);
  }
};

template <class Scan>
constexpr bool MULTIPLIES = false;
template <>
constexpr bool MULTIPLIES<RunningProduct> = true;

// What is stored: what has left the range upwards is infinite.
DEVICE double from_range(double value) { return fabs(value) == LARGEST ? 2.0 * value : value; }
template <class T>
DEVICE T from_range(T value) {
  return value;
}
template <class Scan, class T, class A>
DEVICE T scan_result(A value) {
  if constexpr (MULTIPLIES<Scan>) value = from_range(value);
  return static_cast<T>(value);
}

// Turns the operands of neighbouring points into results. `carry` is the combination of all that come before.
template <class Scan, bool EXCLUSIVE, bool REVERSE, class A, class T, int LANES>
DEVICE void scan_lanes(T (&value)[LANES], A carry) {
  A run = Scan::template identity<A>();
#pragma unroll
  for (int j = 0; j < LANES; ++j) {
    const int w = REVERSE ? LANES - 1 - j : j;
    const A own = static_cast<A>(value[w]), before = run;
    run = j == 0 ? own : Scan::apply(run, own);
    const A all = EXCLUSIVE ? before : run;
    value[w] = scan_result<Scan, T>(EXCLUSIVE && j == 0 ? carry : Scan::apply(carry, all));
  }
}
// One point's result. `run` is the combination of the points that this thread has visited since `carry`.
template <class Scan, bool EXCLUSIVE, class A, class T>
DEVICE T scan_next(A carry, A& run, T value) {
  const A before = run;
  run = Scan::apply(run, static_cast<A>(value));
  return scan_result<Scan, T>(Scan::apply(carry, EXCLUSIVE ? before : run));
}

// Over GROUP neighbouring threads (a power of two up to 32), own value included.
template <class Scan, int GROUP, bool REVERSE, class A>
DEVICE A scan_group(A value) {
  const int thread = threadIdx.x % GROUP, position = REVERSE ? GROUP - 1 - thread : thread;
#pragma unroll
  for (int distance = 1; distance < GROUP; distance *= 2) {
    const A earlier = shuffle_earlier<GROUP, REVERSE>(value, distance);
    if (position >= distance) value = Scan::apply(earlier, value);
  }
  return value;
}
// From own value included to own value excluded.
template <class Scan, int GROUP, bool REVERSE, class A>
DEVICE A excluded(A included) {
  const int thread = threadIdx.x % GROUP, position = REVERSE ? GROUP - 1 - thread : thread;
  const A earlier = shuffle_earlier<GROUP, REVERSE>(included, 1);
  return position == 0 ? Scan::template identity<A>() : earlier;
}
template <int GROUP, bool REVERSE, class A>
DEVICE A last_of_group(A included) {
  return shuffle_from<GROUP>(included, REVERSE ? 0 : GROUP - 1);
}

// part[k] belongs to vector k * GROUP + (thread in the group). Turns what each vector adds up to into what all before
// it do; gives what all do.
template <class Scan, int GROUP, bool REVERSE, class A, int SLOTS>
DEVICE A scan_slots(A (&part)[SLOTS]) {
  A sum = Scan::template identity<A>();
#pragma unroll
  for (int j = 0; j < SLOTS; ++j) {
    const int k = REVERSE ? SLOTS - 1 - j : j;
    const A included = scan_group<Scan, GROUP, REVERSE>(part[k]);
    part[k] = Scan::apply(sum, excluded<Scan, GROUP, REVERSE>(included));
    sum = Scan::apply(sum, last_of_group<GROUP, REVERSE>(included));
  }
  return sum;
}
// What all vectors of a warp add up to, where that is all that is asked for.
template <class Scan, bool REVERSE, class A, int SLOTS>
DEVICE A sum_slots(A (&part)[SLOTS]) {
  if constexpr (MULTIPLIES<Scan>) {
    return scan_slots<Scan, 32, REVERSE>(part);  // keeps the order
  } else {
    A sum = part[0];
#pragma unroll
    for (int k = 1; k < SLOTS; ++k) sum = Scan::apply(sum, part[k]);
    return reduce_warp<Scan, 32>(sum);
  }
}
// What all WARPS warps (a power of two) left in shared memory: gives what those before `warp` add up to, and sets `sum`
// to what all do.
template <class Scan, int WARPS, bool REVERSE, class A>
DEVICE A scan_shared(const A* shared, int warp, A& sum) {
  constexpr int AT_ONCE = WARPS < 32 ? WARPS : 32;
  sum = Scan::template identity<A>();
  A before = sum;
#pragma unroll
  for (int j = 0; j < WARPS / AT_ONCE; ++j) {
    const int k = REVERSE ? WARPS / AT_ONCE - 1 - j : j;
    const A included = scan_group<Scan, AT_ONCE, REVERSE>(shared[k * AT_ONCE + threadIdx.x % AT_ONCE]);
    const A earlier = shuffle_from<AT_ONCE>(excluded<Scan, AT_ONCE, REVERSE>(included), warp % AT_ONCE);
    if (warp / AT_ONCE == k) before = Scan::apply(sum, earlier);
    sum = Scan::apply(sum, last_of_group<AT_ONCE, REVERSE>(included));
  }
  return before;
}

// Rows of shared memory in which a block of ACROSS * GROUP threads combines columns: those of a warp are one.
template <int ACROSS, int GROUP>
constexpr int COLUMN_ROWS = ACROSS < 32 ? GROUP * ACROSS / 32 : GROUP;

// Threads ACROSS apart share columns, LANES each. Within a warp: from what the points of each thread add up to to what
// they do with all before; `before` becomes what those before do. Gives whether this thread has the last points.
template <class Scan, int ACROSS, int IN_WARP, bool REVERSE, class A, int LANES>
DEVICE bool scan_in_warp(A (&part)[LANES], A (&before)[LANES]) {
  const int thread = threadIdx.x / ACROSS % IN_WARP, position = REVERSE ? IN_WARP - 1 - thread : thread;
#pragma unroll
  for (int w = 0; w < LANES; ++w) {
#pragma unroll
    for (int distance = 1; distance < IN_WARP; distance *= 2) {
      const A earlier = shuffle_earlier<32, REVERSE>(part[w], distance * ACROSS);
      if (position >= distance) part[w] = Scan::apply(earlier, part[w]);
    }
    before[w] = IN_WARP > 1 ? shuffle_earlier<32, REVERSE>(part[w], ACROSS) : part[w];
    if (position == 0) before[w] = Scan::template identity<A>();
  }
  return position == IN_WARP - 1;
}
// ROWS values that lie STRIDE apart become the combinations of all before each; gives that of all.
template <class Scan, int ROWS, int STRIDE, bool REVERSE, class A>
DEVICE A scan_rows(A* values) {
  A run = Scan::template identity<A>();
#pragma unroll
  for (int j = 0; j < ROWS; ++j) {
    A& value = values[(REVERSE ? ROWS - 1 - j : j) * STRIDE];
    const A own = value;
    value = run;
    run = Scan::apply(run, own);
  }
  return run;
}
// Turns what the points of each thread add up to into what all before do; `sum` becomes what all do. `shared` has a row
// for each of COLUMN_ROWS, and one more; with AGAIN it may be used again at once.
template <class Scan, int ACROSS, int GROUP, bool REVERSE, bool AGAIN, class A, int LANES>
DEVICE void scan_columns(A (&part)[LANES], A (&sum)[LANES], A* shared) {
  constexpr int ROWS = COLUMN_ROWS<ACROSS, GROUP>, IN_WARP = GROUP / ROWS, COLUMNS = ACROSS * LANES;
  const int row = threadIdx.x / (ACROSS * IN_WARP);
  A* const column = shared + threadIdx.x % ACROSS * LANES;
  A before[LANES];
  if (scan_in_warp<Scan, ACROSS, IN_WARP, REVERSE>(part, before)) {
#pragma unroll
    for (int w = 0; w < LANES; ++w) column[row * COLUMNS + w] = part[w];
  }
  __syncthreads();
  if constexpr (ROWS <= 8 && LANES <= 8) {
#pragma unroll
    for (int w = 0; w < LANES; ++w) part[w] = sum[w] = Scan::template identity<A>();
#pragma unroll
    for (int j = 0; j < ROWS; ++j) {
      const int k = REVERSE ? ROWS - 1 - j : j;
#pragma unroll
      for (int w = 0; w < LANES; ++w) {
        if (k == row) part[w] = sum[w];
        sum[w] = Scan::apply(sum[w], column[k * COLUMNS + w]);
      }
    }
    if constexpr (AGAIN) __syncthreads();
  } else {
    for (int c = threadIdx.x; c < COLUMNS; c += ACROSS * GROUP) {
      shared[ROWS * COLUMNS + c] = scan_rows<Scan, ROWS, COLUMNS, REVERSE>(shared + c);
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < LANES; ++w) part[w] = column[row * COLUMNS + w], sum[w] = column[ROWS * COLUMNS + w];
    if constexpr (AGAIN && IN_WARP > 1) __syncwarp();  // others of the warp write there
  }
#pragma unroll
  for (int w = 0; w < LANES; ++w) part[w] = Scan::apply(part[w], before[w]);
}

// A block of THREADS turns `count` values into the combinations of `first` and of all before each.
template <class Scan, int THREADS, bool REVERSE, class T>
DEVICE void scan_array(T* values, int count, T first) {
  constexpr int EACH = 8, STEP = EACH * THREADS;
  __shared__ T shared[2][THREADS / 32];
  const int steps = (count + STEP - 1) / STEP;
  for (int s = 0; s < steps; ++s) {
    const int begin = (REVERSE ? steps - 1 - s : s) * STEP + threadIdx.x * EACH;
    T part[1] = {Scan::template identity<T>()}, own[EACH];
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
      const int k = REVERSE ? EACH - 1 - j : j;
      own[k] = begin + k < count ? values[begin + k] : Scan::template identity<T>();
      part[0] = Scan::apply(part[0], own[k]);
    }
    T sum = scan_slots<Scan, 32, REVERSE>(part);
    if (threadIdx.x % 32 == 0) shared[s % 2][threadIdx.x / 32] = sum;
    __syncthreads();
    const T before = scan_shared<Scan, THREADS / 32, REVERSE>(shared[s % 2], threadIdx.x / 32, sum);
    T run = Scan::apply(first, Scan::apply(before, part[0]));
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
      const int k = REVERSE ? EACH - 1 - j : j;
      if (begin + k < count) values[begin + k] = run;
      run = Scan::apply(run, own[k]);
    }
    first = Scan::apply(first, sum);
  }
}
// The same by one thread, for values that lie `stride` apart.
template <class Scan, bool REVERSE, class T>
DEVICE void scan_strided(T* values, int count, i64 stride, T first) {
  constexpr int EACH = 12;
  for (int s = 0; s < count; s += EACH) {
    T own[EACH];
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
      if (s + j < count) own[j] = values[(REVERSE ? count - 1 - s - j : s + j) * stride];
    }
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
      if (s + j >= count) break;
      values[(REVERSE ? count - 1 - s - j : s + j) * stride] = first;
      first = Scan::apply(first, own[j]);
    }
  }
}
