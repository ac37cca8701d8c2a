// The loops of reductions of columns over the rows of a tile. Included once for each instruction set, inside its
// namespace, by reduction_loops.h after column_loop.
#pragma once

// Joins the rows of vectors that lie next to each other: row i at a + i * stride; the last vector has n elements.
template <class R, size_t vectors>
static inline void join_rows(Vector* v, const float* a, size_t stride, size_t rows, size_t n) {
  const auto load_row = [=](const float* row, size_t j) {
    if (n == kVector || j + 1 < vectors) return load_vector(row + j * kVector);
    return load_part(row + j * kVector, n, R::template identity<float>());
  };
  for (size_t j = 0; j < vectors; ++j) v[j] = load_row(a, j);
  for (size_t i = 1; i < rows; ++i)
    for (size_t j = 0; j < vectors; ++j) v[j] = R::join_vectors(load_row(a + i * stride, j), v[j]);
}

static inline void join_part(Sum, double* sums, Vector v, size_t n) {
  if (n == kVector) return add_to_sums(sums, v);
  for (size_t k = 0; k < n; ++k) sums[k] += static_cast<double>(v[k]);
}

template <class R>
static inline void join_part(R, float* best, Vector v, size_t n) {
  store_part(best, n, R::join_vectors(v, load_part(best, n, 0)));
}

// Accumulators take in their elements of rows, n of the last vector. Sums are in float of few rows, which are added in
// double; again in double where floats overflow.
template <class R, size_t vectors, class A>
static inline void take_vectors(A* out, const float* a, size_t stride, size_t rows, size_t n) {
  const size_t most = R::widens ? 16 : rows;
  for (size_t first = 0; first < rows; first += most) {
    const size_t count = rows - first < most ? rows - first : most;
    const float* const from = a + first * stride;
    Vector v[vectors];
    join_rows<R, vectors>(v, from, stride, count, n);
    for (size_t j = 0; j < vectors; ++j) {
      const size_t m = j + 1 < vectors ? kVector : n;
      if (!R::widens || all_moderate(v[j]))
        join_part(R(), out + j * kVector, v[j], m);
      else
        for (size_t i = 0; i < count; ++i)
          for (size_t k = j * kVector; k < j * kVector + m; ++k) out[k] += static_cast<A>(from[i * stride + k]);
    }
  }
}

// Accumulators, one for each column, take in rows that lie one after the other.
template <class R, class A, class T>
static inline void take_rows(Stored<A>* out, const Stored<T>* a, size_t columns, size_t rows) {
  if constexpr (is_same<T, float> && !is_same<R, Product>) {
    constexpr size_t most = 4;  // vectors
    size_t c = 0;
    for (; c + most * kVector <= columns; c += most * kVector)
      take_vectors<R, most>(out + c, a + c, columns, rows, kVector);
    const size_t left = columns - c, vectors = (left + kVector - 1) / kVector, n = left - (vectors - 1) * kVector;
    if (vectors == 3) take_vectors<R, 3>(out + c, a + c, columns, rows, n);
    if (vectors == 2) take_vectors<R, 2>(out + c, a + c, columns, rows, n);
    if (vectors == 1) take_vectors<R, 1>(out + c, a + c, columns, rows, n);
    if (vectors == most) take_vectors<R, most>(out + c, a + c, columns, rows, n);
  } else {
    for (size_t i = 0; i < rows; ++i) column_loop<R, A, T>(out, a + i * columns, nullptr, nullptr, columns);
  }
}

template <class R, class T>
static void band_loop(void* out, const void* a, const void* b, const void*, size_t n) {
  using A = Accumulator<R, T>;
  constexpr size_t wide = 64;
  auto* po = static_cast<Stored<A>*>(out);
  auto* pa = static_cast<const Stored<T>*>(a);
  const size_t columns = static_cast<size_t>(*static_cast<const int64_t*>(b)), rows = n / columns;
  if (columns > wide / 2) return take_rows<R, A, T>(po, pa, columns, rows);
  // Several rows at a time, as if they were one of more columns.
  const size_t abreast = wide / columns, width = abreast * columns, done = rows / abreast * abreast;
  Stored<A> running[wide];
  for (size_t i = 0; i < width; ++i) running[i] = R::template identity<A>();
  take_rows<R, A, T>(running, pa, width, rows / abreast);
  for (size_t i = 0; i < abreast; ++i) column_loop<R, A, A>(po, running + i * columns, nullptr, nullptr, columns);
  take_rows<R, A, T>(po, pa + done * columns, columns, rows - done);
}
