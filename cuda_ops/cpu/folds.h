// Reductions at the end of pipelines: the block in the registers is folded into a state in memory. Included once for
// each instruction set, inside its namespace, after reduction_loops.h and stages.h.
#pragma once

// Of a sum, a double for each element of a vector; of a maximum or minimum, a vector.
static_assert(kVector * sizeof(double) <= kFoldBytes);
__attribute__((noinline, cold)) static void add_large(double* sums, Vector v0, Vector v1, Vector v2, Vector v3,
                                                      Vector v4, Vector v5, Vector v6, Vector v7) {
  const Vector all[] = {v0, v1, v2, v3, v4, v5, v6, v7};
  for (const Vector& v : all) add_to_sums(sums, v);
}

// The block's vectors are added in float, and the sum in double; each in double where floats overflow.
static inline void add_block(char* state, const Vector* v) {
  auto* sums = reinterpret_cast<double*>(state);
  const Vector sum = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  if (all_moderate(sum)) {
    add_to_sums(sums, sum);
  } else {
    add_large(sums, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
  }
}

template <Source a>
static void sum_stage(ONNXFUSE_STAGE_PARAMETERS) {
  const Block b = ONNXFUSE_BLOCK;
  Vector v[kVectors];
  for (size_t j = 0; j < kVectors; ++j) v[j] = operand<a>(step, 0, at, j, b);
  add_block(step->operand[2], v);
  ONNXFUSE_NEXT(b);
}

#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
// What softmax spends most of its time on: the exponential, its store and its sum in one.
template <Source a, Source b_, bool stores>
static void exp_and_sum_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  for (size_t j = 0; j < kVectors; ++j)
    b.v[j] = exp_of_difference(operand<a>(step, 0, at, j, b), operand<b_>(step, 1, at, j, b));
  constexpr size_t fold = stores ? 2 : 1;
  if constexpr (stores) {
    float* p = reinterpret_cast<float*>(step[1].operand[0]) + at;
    for (size_t j = 0; j < kVectors; ++j) store_vector(p + j * kVector, b.v[j]);
  }
  add_block(step[fold].operand[2], b.v);
  ONNXFUSE_SKIP(fold + 1, b);
}
#endif

template <class R>
static inline Vector best_of(Vector a, Vector b) {
#if defined(__AVX512F__)
  return is_same<R, Maximum> ? greater(a, b) : less(a, b);  // b where one is NaN
#else
  return R::join_vectors(a, b);
#endif
}

template <class R, Source a>
static void extreme_stage(ONNXFUSE_STAGE_PARAMETERS) {
  const Block b = ONNXFUSE_BLOCK;
  Vector v[kVectors];
  for (size_t j = 0; j < kVectors; ++j) v[j] = operand<a>(step, 0, at, j, b);
#if defined(__AVX512F__)
  unsigned nan = 0;
  for (size_t j = 0; j < kVectors; j += 2) nan |= _mm512_cmp_ps_mask(v[j], v[j + 1], _CMP_UNORD_Q);
#endif
  for (size_t n = kVectors / 2; n > 0; n /= 2)
    for (size_t j = 0; j < n; ++j) v[j] = best_of<R>(v[j], v[j + n]);
  auto* state = reinterpret_cast<float*>(step->operand[2]);
  Vector best = best_of<R>(v[0], load_vector(state));  // NaN stays
#if defined(__AVX512F__)
  if (nan) best = splat(kNaN);
#endif
  store_vector(state, best);
  ONNXFUSE_NEXT(b);
}

// Each element into an accumulator of its own, as in ReductionFns.
template <Source a>
static void add_to_columns_stage(ONNXFUSE_STAGE_PARAMETERS) {
  const Block b = ONNXFUSE_BLOCK;
  auto* sums = reinterpret_cast<double*>(step->operand[2]) + at;
  for (size_t j = 0; j < kVectors; ++j) add_to_sums(sums + j * kVector, operand<a>(step, 0, at, j, b));
  ONNXFUSE_NEXT(b);
}

template <class F, Source a>
static void best_of_columns_stage(ONNXFUSE_STAGE_PARAMETERS) {
  const Block b = ONNXFUSE_BLOCK;
  auto* best = reinterpret_cast<float*>(step->operand[2]) + at;
  for (size_t j = 0; j < kVectors; ++j) {
    float* const p = best + j * kVector;
    store_vector(p, F::value(operand<a>(step, 0, at, j, b), load_vector(p)));
  }
  ONNXFUSE_NEXT(b);
}

static void sum_init(void* out, const void*, const void*, const void*, size_t) {
  __builtin_memset(out, 0, kVector * sizeof(double));
}

static void sum_rest(void* out, const void* a, const void*, const void*, size_t n) {
  *static_cast<double*>(out) += fold_row<Sum, float>(a, n);
}

static void sum_rest_of_products(void* out, const void* a, const void* b, const void*, size_t n) {
  *static_cast<double*>(out) += fold_products(a, b, n);
}

static inline double sum_of_state(const void* state) {
  Doubles halves[2];
  __builtin_memcpy(halves, state, sizeof halves);
  halves[0] += halves[1];
  double sums[kHalf];
  __builtin_memcpy(sums, halves, sizeof sums);
  halve<Sum, double, kHalf>(sums);
  return sums[0];
}

template <bool mean>
static void sum_finish(void* out, const void* a, const void* b, const void*, size_t) {
  *static_cast<float*>(out) = finish<double, float, mean>(sum_of_state(a), *static_cast<const int64_t*>(b));
}

static void sum_accumulate(void* out, const void* a, const void*, const void*, size_t) {
  *static_cast<double*>(out) += sum_of_state(a);
}

template <class R>
static void extreme_init(void* out, const void*, const void*, const void*, size_t) {
  store_vector(static_cast<float*>(out), splat(R::template identity<float>()));
}

template <class R>
static void extreme_rest(void* out, const void* a, const void*, const void*, size_t n) {
  auto* state = static_cast<float*>(out);
  *state = R::join(*state, fold_row<R, float>(a, n));
}

template <class R>
static void extreme_finish(void* out, const void* a, const void*, const void*, size_t) {
  *static_cast<float*>(out) = fold_vector<R>(load_vector(static_cast<const float*>(a)));
}

template <class R>
static void extreme_accumulate(void* out, const void* a, const void*, const void*, size_t) {
  auto* accumulator = static_cast<float*>(out);
  *accumulator = R::join(*accumulator, fold_vector<R>(load_vector(static_cast<const float*>(a))));
}

template <class R>
static FoldFns fold_of_extreme() {
  return {extreme_init<R>, extreme_rest<R>, nullptr, extreme_finish<R>, extreme_accumulate<R>};
}

static FoldFns find_fold(Op op) {
  switch (op) {
    case Op::op_reduce_sum:
      return {sum_init, sum_rest, sum_rest_of_products, sum_finish<false>, sum_accumulate};
    case Op::op_reduce_mean:
      return {sum_init, sum_rest, sum_rest_of_products, sum_finish<true>, sum_accumulate};
    case Op::op_reduce_max:
      return fold_of_extreme<Maximum>();
    case Op::op_reduce_min:
      return fold_of_extreme<Minimum>();
    default:
      return {};
  }
}
