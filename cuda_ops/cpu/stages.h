// The stages of pipelines. A stage holds a block of values in vector registers, changes them and jumps to the next
// stage with them, so that a chain of operations costs one load and one store. Included once for each instruction set,
// inside its namespace, after element_loops.h.
#pragma once

static constexpr size_t kVectors = 8;  // as many as calls pass in registers
static constexpr size_t kBlock = kVectors * kVector;

struct Block {
  Vector v[kVectors];
};

// Of a stage: the step it stands in, the position of the block, the block.
#define ONNXFUSE_STAGE_PARAMETERS \
  const Step *step, size_t at, Vector v0, Vector v1, Vector v2, Vector v3, Vector v4, Vector v5, Vector v6, Vector v7
#define ONNXFUSE_BLOCK               \
  {                                  \
    {                                \
      v0, v1, v2, v3, v4, v5, v6, v7 \
    }                                \
  }
using Stage = void (*)(ONNXFUSE_STAGE_PARAMETERS);

static inline Stage stage_of(const Step* step) { return reinterpret_cast<Stage>(step->fn); }
#define ONNXFUSE_NEXT(b) ONNXFUSE_SKIP(1, b)
#define ONNXFUSE_SKIP(steps, b) \
  return stage_of(step + steps)(step + steps, at, b.v[0], b.v[1], b.v[2], b.v[3], b.v[4], b.v[5], b.v[6], b.v[7])

static void last_stage(ONNXFUSE_STAGE_PARAMETERS) {
  (void)step, (void)at, (void)v0, (void)v1, (void)v2, (void)v3, (void)v4, (void)v5, (void)v6, (void)v7;
}

// Where an operand comes from: the block, a tensor or tile, one element.
template <Source source>
static inline Vector operand(const Step* step, int number, size_t at, size_t j, const Block& block) {
  const float* p = reinterpret_cast<const float*>(step->operand[number]);
  if constexpr (source == Source::block)
    return block.v[j];
  else if constexpr (source == Source::memory)
    return load_vector(p + at + j * kVector);
  else
    return splat(*p);
}

template <class F, Source a>
static void unary_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  for (size_t j = 0; j < kVectors; ++j) b.v[j] = F::value(operand<a>(step, 0, at, j, b));
  ONNXFUSE_NEXT(b);
}

template <class F, Source a, Source b_>
static void binary_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  for (size_t j = 0; j < kVectors; ++j)
    b.v[j] = F::value(operand<a>(step, 0, at, j, b), operand<b_>(step, 1, at, j, b));
  ONNXFUSE_NEXT(b);
}

// The maximum or minimum of values and one number, to the bit what F gives in more operations: NaN wins, and of equal
// zeros the second. A number other than NaN and 0 can only be equal to itself, so that one instruction does, which
// gives its second operand where one is NaN. is_zero: the bound is +0, which -0 becomes.
template <class F, Source a, bool is_zero>
static void ordinary_bound_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  const Vector bound = operand<Source::element>(step, 1, at, 0, b);
  for (size_t j = 0; j < kVectors; ++j) {
    b.v[j] = F::beyond(bound, operand<a>(step, 0, at, j, b));
    if constexpr (is_zero) b.v[j] += splat(0);
  }
  ONNXFUSE_NEXT(b);
}

template <class F, Source a>
static void bound_stage(ONNXFUSE_STAGE_PARAMETERS) {
  const float bound = *reinterpret_cast<const float*>(step->operand[1]);
  const auto stage = bound < 0 || bound > 0                    ? ordinary_bound_stage<F, a, false>
                     : bound == 0 && !__builtin_signbit(bound) ? ordinary_bound_stage<F, a, true>
                                                               : binary_stage<F, a, Source::element>;
  return stage(step, at, v0, v1, v2, v3, v4, v5, v6, v7);
}

template <Vector (Divisor::*divide)(Vector) const, Source a>
static void divide_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  const Divisor divisor(*reinterpret_cast<const float*>(step->operand[1]));
  for (size_t j = 0; j < kVectors; ++j) b.v[j] = operand<a>(step, 0, at, j, b);
  for (size_t j = 0; j < kVectors; ++j) b.v[j] = (divisor.*divide)(b.v[j]);
  ONNXFUSE_NEXT(b);
}

template <Source a, Source b_, Source c>
static void multiply_add_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  for (size_t j = 0; j < kVectors; ++j)
    b.v[j] = operand<a>(step, 0, at, j, b) * operand<b_>(step, 1, at, j, b) + operand<c>(step, 2, at, j, b);
  ONNXFUSE_NEXT(b);
}

// Functions that the compiler vectorizes: through memory, which is little beside what they cost.
template <float (*f)(float)>
static inline void map_block(Block& b) {
  alignas(64) float t[kBlock];
  __builtin_memcpy(t, &b, sizeof t);
  ONNXFUSE_VECTORIZE
  for (size_t i = 0; i < kBlock; ++i) t[i] = f(t[i]);
  __builtin_memcpy(&b, t, sizeof t);
}

template <class P>
static inline float value_of(float a) {
  return static_cast<float>(P::value(a, a, a));
}

template <float (*f)(float), Source a>
static void function_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  for (size_t j = 0; j < kVectors; ++j) b.v[j] = operand<a>(step, 0, at, j, b);
  map_block<f>(b);
  ONNXFUSE_NEXT(b);
}

#if !defined(ONNXFUSE_VECTOR_FUNCTIONS)
template <Source a, Source b_>
static void exp_of_difference_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  for (size_t j = 0; j < kVectors; ++j) b.v[j] = operand<a>(step, 0, at, j, b) - operand<b_>(step, 1, at, j, b);
  map_block<of_exp>(b);
  ONNXFUSE_NEXT(b);
}
#endif

static void store_stage(ONNXFUSE_STAGE_PARAMETERS) {
  const Block b = ONNXFUSE_BLOCK;
  float* p = reinterpret_cast<float*>(step->operand[0]) + at;
  for (size_t j = 0; j < kVectors; ++j) store_vector(p + j * kVector, b.v[j]);
  ONNXFUSE_NEXT(b);
}

// Past the caches, where the address allows.
static void stream_stage(ONNXFUSE_STAGE_PARAMETERS) {
#if defined(__AVX2__)
  const Block b = ONNXFUSE_BLOCK;
  float* p = reinterpret_cast<float*>(step->operand[0]) + at;
  if (reinterpret_cast<uintptr_t>(p) % sizeof(Vector) == 0) {
    for (size_t j = 0; j < kVectors; ++j) stream_vector(p + j * kVector, b.v[j]);
    ONNXFUSE_NEXT(b);
  }
#endif
  return store_stage(step, at, v0, v1, v2, v3, v4, v5, v6, v7);
}

// Asks for floats that later blocks read, so that memory goes on beside arithmetic.
static void ask_loop(void*, const void* a, const void*, const void*, size_t n) {
  const char* p = static_cast<const char*>(a) + kAskedAhead;
  for (size_t byte = 0; byte < n * sizeof(float); byte += 64) __builtin_prefetch(p + byte, 0, 2);
}

static void ask_stage(ONNXFUSE_STAGE_PARAMETERS) {
  const Block b = ONNXFUSE_BLOCK;
  ask_loop(nullptr, step->operand[0] + at * sizeof(float), nullptr, nullptr, kBlock);
  ONNXFUSE_NEXT(b);
}

// Waits until what was stored past the caches can be seen.
static void fence() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

// From another type, and to the 16-bit floats.
template <class T, TileFn fn>
static void load_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  alignas(64) float t[kBlock];
  fn(t, reinterpret_cast<const T*>(step->operand[0]) + at, nullptr, nullptr, kBlock);
  __builtin_memcpy(&b, t, sizeof t);
  ONNXFUSE_NEXT(b);
}

template <TileFn fn>
static void narrow_stage(ONNXFUSE_STAGE_PARAMETERS) {
  const Block b = ONNXFUSE_BLOCK;
  alignas(64) float t[kBlock];
  __builtin_memcpy(t, &b, sizeof t);
  fn(reinterpret_cast<uint16_t*>(step->operand[0]) + at, t, nullptr, nullptr, kBlock);
  ONNXFUSE_NEXT(b);
}

struct V_add {
  static inline Vector value(Vector a, Vector b) { return a + b; }
};
struct V_sub {
  static inline Vector value(Vector a, Vector b) { return a - b; }
};
struct V_mul {
  static inline Vector value(Vector a, Vector b) { return a * b; }
};
struct V_div {
  static inline Vector value(Vector a, Vector b) { return a / b; }
};
struct V_max {
  static inline Vector value(Vector a, Vector b) { return a != a ? a : beyond(a, b); }
  static inline Vector beyond(Vector a, Vector b) { return greater(a, b); }
};
struct V_min {
  static inline Vector value(Vector a, Vector b) { return a != a ? a : beyond(a, b); }
  static inline Vector beyond(Vector a, Vector b) { return less(a, b); }
};
struct V_relu {
  static inline Vector value(Vector a) { return greater(splat(0), a); }
};
struct V_neg {
  static inline Vector value(Vector a) { return -a; }
};
struct V_identity {
  static inline Vector value(Vector a) { return a; }
};
struct V_reciprocal {
  static inline Vector value(Vector a) { return splat(1) / a; }
};

template <Vector (*f)(Vector)>
struct V_function {
  static inline Vector value(Vector a) { return f(a); }
};

#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
struct V_exp_of_difference {
  static inline Vector value(Vector a, Vector b) { return exp_of_difference(a, b); }
};
#endif

static void run_blocks(const Step* steps, size_t blocks) {
  const Vector z = {};
  for (size_t i = 0; i < blocks; ++i) stage_of(steps)(steps, i * kBlock, z, z, z, z, z, z, z, z);
}
