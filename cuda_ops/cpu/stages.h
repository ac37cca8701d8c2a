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
#define ONNXFUSE_NEXT(b) \
  return stage_of(step + 1)(step + 1, at, b.v[0], b.v[1], b.v[2], b.v[3], b.v[4], b.v[5], b.v[6], b.v[7])

static void last_stage(ONNXFUSE_STAGE_PARAMETERS) {
  (void)step, (void)at, (void)v0, (void)v1, (void)v2, (void)v3, (void)v4, (void)v5, (void)v6, (void)v7;
}

// Where an operand comes from: the block, a tensor or tile, one element.
template <Source source>
static inline Vector operand(const Step* step, int number, size_t at, size_t j, const Block& block) {
  const float* p = static_cast<const float*>(step->operand[number]);
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
  float* p = static_cast<float*>(step->operand[0]) + at;
  for (size_t j = 0; j < kVectors; ++j) store_vector(p + j * kVector, b.v[j]);
  ONNXFUSE_NEXT(b);
}

// From and to the 16-bit floats.
template <TileFn fn>
static void load_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  alignas(64) float t[kBlock];
  fn(t, static_cast<const uint16_t*>(step->operand[0]) + at, nullptr, nullptr, kBlock);
  __builtin_memcpy(&b, t, sizeof t);
  ONNXFUSE_NEXT(b);
}

template <TileFn fn>
static void narrow_stage(ONNXFUSE_STAGE_PARAMETERS) {
  const Block b = ONNXFUSE_BLOCK;
  alignas(64) float t[kBlock];
  __builtin_memcpy(t, &b, sizeof t);
  fn(static_cast<uint16_t*>(step->operand[0]) + at, t, nullptr, nullptr, kBlock);
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
  static inline Vector value(Vector a, Vector b) { return a != a ? a : greater(a, b); }
};
struct V_min {
  static inline Vector value(Vector a, Vector b) { return a != a ? a : less(a, b); }
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

#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
template <Vector (*f)(Vector)>
struct V_function {
  static inline Vector value(Vector a) { return f(a); }
};
struct V_exp_of_difference {
  static inline Vector value(Vector a, Vector b) { return exp_of_difference(a, b); }
};
#endif

static constexpr Source kBlockSource = Source::block, kMemory = Source::memory, kElement = Source::element;

template <class F>
static Stage pick_unary(Source a) {
  return a == kBlockSource ? unary_stage<F, kBlockSource> : a == kMemory ? unary_stage<F, kMemory> : nullptr;
}

template <float (*f)(float)>
static Stage pick_function(Source a) {
  return a == kBlockSource ? function_stage<f, kBlockSource> : a == kMemory ? function_stage<f, kMemory> : nullptr;
}

// Calls pick with a's source as a template argument.
#define ONNXFUSE_BY_SOURCE(source, ...)     \
  switch (source) {                         \
    case Source::block: {                   \
      constexpr Source S = Source::block;   \
      return __VA_ARGS__;                   \
    }                                       \
    case Source::memory: {                  \
      constexpr Source S = Source::memory;  \
      return __VA_ARGS__;                   \
    }                                       \
    default: {                              \
      constexpr Source S = Source::element; \
      return __VA_ARGS__;                   \
    }                                       \
  }

template <class F, Source a>
static Stage pick_second(Source b) {
  ONNXFUSE_BY_SOURCE(b, (binary_stage<F, a, S>))
}
template <class F>
static Stage pick_binary(const Source* sources) {
  ONNXFUSE_BY_SOURCE(sources[0], (pick_second<F, S>(sources[1])))
}

template <Source a, Source b>
static Stage pick_multiply_add_third(Source c) {
  ONNXFUSE_BY_SOURCE(c, (multiply_add_stage<a, b, S>))
}
template <Source a>
static Stage pick_multiply_add_second(const Source* sources) {
  ONNXFUSE_BY_SOURCE(sources[1], (pick_multiply_add_third<a, S>(sources[2])))
}
static Stage pick_multiply_add(const Source* sources) {
  return sources[0] == kBlockSource ? pick_multiply_add_second<kBlockSource>(sources)
         : sources[0] == kMemory    ? pick_multiply_add_second<kMemory>(sources)
                                    : nullptr;
}

#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
static Stage pick_exp_of_difference(const Source* sources) { return pick_binary<V_exp_of_difference>(sources); }
#else
template <Source a>
static Stage pick_exp_second(Source b) {
  ONNXFUSE_BY_SOURCE(b, (exp_of_difference_stage<a, S>))
}
static Stage pick_exp_of_difference(const Source* sources) {
  ONNXFUSE_BY_SOURCE(sources[0], (pick_exp_second<S>(sources[1])))
}
#endif

static Stage pick_stage_of_primitive(Op op, const Source* sources) {
  switch (op) {
    case Op::op_add:
      return pick_binary<V_add>(sources);
    case Op::op_sub:
      return pick_binary<V_sub>(sources);
    case Op::op_mul:
      return pick_binary<V_mul>(sources);
    case Op::op_div:
      return pick_binary<V_div>(sources);
    case Op::op_max:
      return pick_binary<V_max>(sources);
    case Op::op_min:
      return pick_binary<V_min>(sources);
    case Op::op_relu:
      return pick_unary<V_relu>(sources[0]);
    case Op::op_neg:
      return pick_unary<V_neg>(sources[0]);
    case Op::op_reciprocal:
      return pick_unary<V_reciprocal>(sources[0]);
#define ONNXFUSE_FUNCTION(name) \
  case Op::op_##name:           \
    return pick_function<value_of<P_##name>>(sources[0]);
      ONNXFUSE_FUNCTION(abs)
      ONNXFUSE_FUNCTION(sqrt)
      ONNXFUSE_FUNCTION(expm1)
      ONNXFUSE_FUNCTION(log)
      ONNXFUSE_FUNCTION(log1p)
      ONNXFUSE_FUNCTION(tanh)
      ONNXFUSE_FUNCTION(softplus)
      ONNXFUSE_FUNCTION(round_f16)
      ONNXFUSE_FUNCTION(round_bf16)
#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
    case Op::op_exp:
      return pick_unary<V_function<vector_exp>>(sources[0]);
    case Op::op_sigmoid:
      return pick_unary<V_function<vector_sigmoid>>(sources[0]);
    case Op::op_erf:
      return pick_unary<V_function<vector_erf>>(sources[0]);
#else
      ONNXFUSE_FUNCTION(exp)
      ONNXFUSE_FUNCTION(sigmoid)
      ONNXFUSE_FUNCTION(erf)
#endif
#undef ONNXFUSE_FUNCTION
    default:
      return nullptr;
  }
}

static StageFn find_stage(Work work, Op op, const Source* sources) {
  Stage stage = nullptr;
  switch (work) {
    case Work::primitive:
      stage = pick_stage_of_primitive(op, sources);
      break;
    case Work::multiply_add:
      stage = pick_multiply_add(sources);
      break;
    case Work::exp_of_difference:
      stage = pick_exp_of_difference(sources);
      break;
    case Work::load:
      stage = sources[0] == kMemory ? unary_stage<V_identity, kMemory> : unary_stage<V_identity, kElement>;
      break;
    case Work::load_f16:
      stage = load_stage<load_half>;
      break;
    case Work::load_bf16:
      stage = load_stage<convert_loop<float, uint16_t, bfloat_to_float>>;
      break;
    case Work::store:
      stage = store_stage;
      break;
    case Work::store_f16:
      stage = narrow_stage<store_half>;
      break;
    case Work::store_bf16:
      stage = narrow_stage<convert_loop<uint16_t, float, float_to_bfloat>>;
      break;
    case Work::end:
      stage = last_stage;
      break;
    default:
      break;
  }
  return reinterpret_cast<StageFn>(stage);
}

static void run_blocks(const Step* steps, size_t blocks) {
  const Vector z = {};
  for (size_t i = 0; i < blocks; ++i) stage_of(steps)(steps, i * kBlock, z, z, z, z, z, z, z, z);
}
