// Softmax of rows, row after row, so that a row's loads and stores go on beside the arithmetic of its neighbours: done
// for many rows at once, its passes would wait for memory in turn.
//
// Most rows are read once. In place of the maximum comes a power of two near three of the row's vectors, since a common
// factor cancels; the sum of the exponentials tells whether it was near enough, for a float's exponents leave room for
// what matters next to the maximum and for 2^40 above the guess. Rows that it does not serve (NaN, infinities, numbers
// beyond what the guess may be) are computed again with their maximum. Either way a result depends on its row alone.
//
// Results that go past the caches come from a buffer: there a row's exponentials stay until their sum is known, and the
// shares are stored beside the exponentials of the next row, so that loads and stores go on all the time.
//
// Included once for each instruction set, inside its namespace, after softmax_parts.h.
#pragma once

static constexpr size_t kLongRow = 2048;  // elements; longer ones are finished one by one, from the cache
static constexpr size_t kAhead = 1024;    // elements: so far ahead the next are asked for

// The exponentials of a row and their sum (in float for 16 numbers, then in double). Beside it, asks for what is read
// later, and finishes another row.
template <bool bounded, class Other>
static inline double exponentials(float* out, const float* a, size_t n, const RowExponential& e, const float* ahead,
                                  const Other& other) {
  constexpr size_t running = kRunning;
  constexpr size_t step = running * kVector;
  Doubles sums[2] = {};
  const auto add = [&sums](Vector v) {
    HalfVector halves[2];
    __builtin_memcpy(halves, &v, sizeof v);
    for (size_t k = 0; k < 2; ++k) sums[k] += widen(halves[k]);
  };
  Vector v[running];
  size_t i = 0;
  const auto take_step = [&](const auto& beside) {
    // All loads before the first store: where an address agrees with one stored to in its last 12 bits, the load waits.
    Vector x[running];
    for (size_t j = 0; j < running; ++j) x[j] = load_vector(a + i + j * kVector);
    for (size_t j = 0; j < running; ++j) {
      const size_t at = i + j * kVector;
      x[j] = e.template of<bounded>(x[j]);
      __builtin_prefetch(ahead + at, 0, 2);
      store_vector(out + at, x[j]);
      v[j] += x[j];
      beside.finish(at);
    }
    i += step;
  };
  const size_t others = other.vectors();
  while (i + step <= n) {
    const size_t last = n - i < 16 * step ? n : i + 16 * step, both = last < others ? last : others;
    for (Vector& sum : v) sum = Vector{};
    if constexpr (Other::kFinishes)
      while (i + step <= both) take_step(other);
    while (i + step <= last) take_step(Nothing());
    add((v[0] + v[1]) + (v[2] + v[3]));
  }
  other.finish_rest((others < i ? others : i) / step * step);
  for (; i < n; i += kVector) {
    const size_t m = n - i < kVector ? n - i : kVector;
    const Vector x = e.template of<true>(load_part(a + i, m, -kInf));  // beyond the end as good as nothing
    store_part(out + i, m, x);
    add(x);
  }
  return sum_of(sums[0] + sums[1]);
}

// Reads a row for no other reason than to have it in the cache. Real loads make the stores before them drain, where
// prefetches only join them in the queue: of rows from memory, this saves a quarter of the time.
static inline void touch(const float* a, size_t n) {
  Vector v = {};
  for (size_t i = 0; i + kVector <= n; i += kVector) v += load_vector(a + i);
  asm volatile("" : : "m"(v));
}

// The row once more, by its maximum. Others have no NaN.
__attribute__((noinline)) static void softmax_by_maximum(float* out, const float* a, size_t n,
                                                         const SoftmaxRows& rows) {
  const float most = extreme_of_floats<Maximum>(a, n);
  exp_of_difference_loop<2>(out, a, &most, nullptr, n);
  const auto sum = static_cast<float>(fold_row<Sum, float>(out, n));
  share_loop(out, out, &sum, nullptr, n);
  if (rows.instead == rows.instead)
    for (size_t i = 0; i < n; ++i)
      if (out[i] != out[i]) out[i] = static_cast<float>(rows.instead);
}

// What softmax_loop does beside a row and after it, for rows of one kind.
class SoftmaxOfRows {
 public:
  SoftmaxOfRows(const SoftmaxRows& rows, SoftmaxState& state)
      : rows_(rows), n_(static_cast<size_t>(rows.length)), state_(state) {}

  // Computes a row, of which e knows the first part; false: it needs its maximum.
  template <class Other>
  bool exponentiate(float* out, const float* a, const RowExponential& e, const float* ahead, const Other& other) {
    if (RowExponential::kCanDoWithoutBound && !state_.bounded) {
      sum_ = exponentials<false>(out, a, n_, e, ahead, other);
      if (RowExponential::holds(sum_)) return true;
      sum_ = exponentials<true>(out, a, n_, e, ahead, Nothing());
      state_.bounded = RowExponential::holds(sum_);  // a masked row: the next will be one as well
      return state_.bounded;
    }
    sum_ = exponentials<true>(out, a, n_, e, ahead, other);
    return RowExponential::holds(sum_);
  }
  // The same by its maximum.
  void by_maximum(float* out, const float* a) const { softmax_by_maximum(out, a, n_, rows_); }
  double sum() const { return sum_; }
  size_t length() const { return n_; }

 private:
  const SoftmaxRows& rows_;
  const size_t n_;
  SoftmaxState& state_;
  double sum_ = 0;
};

// Rows a to out, which lie apart, through the caches. next: as ahead, if any.
static void softmax_in_place(float* out, const float* a, size_t n, SoftmaxOfRows& rows, const float* ahead,
                             const float* touched) {
  const size_t row = rows.length();
  const bool one_by_one = row >= kLongRow || touched != nullptr;
  float* last = nullptr;
  double sum = 0;
  RowExponential e, following(a, row);
  for (size_t i = 0; i < n; i += row) {
    e = following;
    if (i + row < n) following = RowExponential(a + i + row, row);  // early, since it takes long to know it
    const bool good = last != nullptr
                          ? rows.exponentiate(out + i, a + i, e, ahead + i, Unfinished<false>(last, last, sum, row))
                          : rows.exponentiate(out + i, a + i, e, ahead + i, Nothing());
    last = nullptr;
    if (touched != nullptr) touch(touched + i, row);
    if (!good) {
      rows.by_maximum(out + i, a + i);
      continue;
    }
    sum = rows.sum();
    if (one_by_one || i + row == n)
      Unfinished<false>(out + i, out + i, sum, row).finish_rest(0);
    else
      last = out + i;
  }
}

// Rows a to out past the caches; the last one's shares may be left to the next call.
static void softmax_streaming(float* out, const float* a, size_t n, SoftmaxOfRows& rows, const float* ahead,
                              SoftmaxState& state) {
  const size_t row = rows.length();
  float* const buffer = reinterpret_cast<float*>(&state + 1);
  RowExponential e, following(a, row);
  for (size_t i = 0; i < n; i += row) {
    e = following;
    if (i + row < n) following = RowExponential(a + i + row, row);
    float* const to = state.row == buffer ? buffer + softmax_buffered(row) : buffer;
    const bool good = state.row != nullptr ? rows.exponentiate(to, a + i, e, ahead + i,
                                                               Unfinished<true>(state.out, state.row, state.sum, row))
                                           : rows.exponentiate(to, a + i, e, ahead + i, Nothing());
    state.row = good ? to : nullptr;
    state.out = out + i;
    state.sum = rows.sum();
    if (!good) rows.by_maximum(out + i, a + i);
    if (softmax_rows_buffered(row) == 1 && good) {
      Unfinished<true>(state.out, state.row, state.sum, row).finish_rest(0);
      state.row = nullptr;
    }
  }
}

static void softmax_loop(void* out, const void* a, const void* b, const void* c, size_t n) {
  auto* po = static_cast<float*>(out);
  auto* pa = static_cast<const float*>(a);
  const auto& rows = *static_cast<const SoftmaxRows*>(b);
  auto& state = *static_cast<SoftmaxState*>(const_cast<void*>(c));
  const auto row = static_cast<size_t>(rows.length);
  if (row < kVector) {
    for (size_t i = 0; i < n; i += row) softmax_by_maximum(po + i, pa + i, row, rows);
    return;
  }
  const float* next = state.next;
  // Whether it is these rows that come from there, each after the one before. Else a loop before this one reads it.
  const bool direct = next == pa + n;
  if (direct) next = pa + row;
  const bool is_long = row >= kLongRow;
  const float* ahead = next == nullptr || (direct && !is_long) ? pa + kAhead : next;
  SoftmaxOfRows kind(rows, state);
  if (rows.streams != 0)
    softmax_streaming(po, pa, n, kind, ahead, state);
  else
    softmax_in_place(po, pa, n, kind, ahead, rows.far && !is_long ? next : nullptr);
}

// Stores the shares that are left.
static void softmax_end(void* out, const void*, const void* b, const void*, size_t) {
  auto& state = *static_cast<SoftmaxState*>(out);
  if (state.row == nullptr) return;
  const auto n = static_cast<size_t>(static_cast<const SoftmaxRows*>(b)->length);
  Unfinished<true>(state.out, state.row, state.sum, n).finish_rest(0);
  state.row = nullptr;
}
