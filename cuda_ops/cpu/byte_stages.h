// Stages of what is a byte in memory: bools, which are masks in a block, and integers of 8 bits, which are floats
// there. Included once for each instruction set, inside its namespace, after stages.h.
#pragma once

// Integers of 32 bits, one for each float of a vector. A mask has all bits of an element set, or none.
typedef int32_t Integers __attribute__((vector_size(sizeof(Vector))));

template <class Byte>
static inline Integers load_bytes(const char* p) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return reinterpret_cast<Integers>(is_signed<Byte> ? _mm512_maskz_cvtepi8_epi32(0xffff, bytes)
                                                    : _mm512_maskz_cvtepu8_epi32(0xffff, bytes));
#elif defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return reinterpret_cast<Integers>(is_signed<Byte> ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
#else
  Integers v = {};
  for (size_t j = 0; j < kVector; ++j) v[j] = reinterpret_cast<const Byte*>(p)[j];
  return v;
#endif
}

// The lowest byte of each.
static inline void store_bytes(char* p, Integers v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_maskz_cvtepi32_epi8(0xffff, reinterpret_cast<__m512i>(v)));
#elif defined(__AVX2__)
  const __m256i first = _mm256_set1_epi32(0x0c080400);  // of each half, its four bytes
  const __m256i halves = _mm256_shuffle_epi8(reinterpret_cast<__m256i>(v), first);
  const __m128i bytes = _mm_unpacklo_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), bytes);
#else
  for (size_t j = 0; j < kVector; ++j) p[j] = static_cast<char>(v[j]);
#endif
}

// As convert<int32_t>.
static inline Integers truncated(Vector v) {
#if defined(__AVX512F__)
  return reinterpret_cast<Integers>(_mm512_maskz_cvttps_epi32(0xffff, v));
#elif defined(__AVX2__)
  return reinterpret_cast<Integers>(_mm256_cvttps_epi32(v));
#else
  Integers result = {};
  for (size_t j = 0; j < kVector; ++j) result[j] = static_cast<int32_t>(v[j]);
  return result;
#endif
}

template <Source source>
static inline Integers mask_operand(const Step* step, int number, size_t at, size_t j, const Block& block) {
  static_assert(source != Source::element);  // such bools are copied out into a tile
  if constexpr (source == Source::block)
    return reinterpret_cast<Integers>(block.v[j]);
  else
    return load_bytes<uint8_t>(step->operand[number] + at + j * kVector) != 0;
}

// second: of which operand the second source is; 0 in operations of one.
template <class F, Source a, Source b_, int second = 1>
static void comparison_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  for (size_t j = 0; j < kVectors; ++j)
    b.v[j] = reinterpret_cast<Vector>(F::value(operand<a>(step, 0, at, j, b), operand<b_>(step, second, at, j, b)));
  ONNXFUSE_NEXT(b);
}

// Of integers, which are never in the block: through memory, by loops that the compiler vectorizes.
template <class P, class T, bool a_element, bool b_element>
static void integer_comparison_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  const T* pa = reinterpret_cast<const T*>(step->operand[0]) + (a_element ? 0 : at);
  const T* pb = reinterpret_cast<const T*>(step->operand[1]) + (b_element ? 0 : at);
  const T a0 = *pa, b0 = *pb;
  alignas(64) int32_t t[kBlock];
  ONNXFUSE_VECTORIZE
  for (size_t i = 0; i < kBlock; ++i) t[i] = P::value(a_element ? a0 : pa[i], b_element ? b0 : pb[i], T()) ? -1 : 0;
  __builtin_memcpy(&b, t, sizeof t);
  ONNXFUSE_NEXT(b);
}

template <class F, Source a, Source b_, int second = 1>
static void logic_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  for (size_t j = 0; j < kVectors; ++j)
    b.v[j] = reinterpret_cast<Vector>(
        F::value(mask_operand<a>(step, 0, at, j, b), mask_operand<b_>(step, second, at, j, b)));
  ONNXFUSE_NEXT(b);
}

template <Source condition, Source a, Source b_>
static void where_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  for (size_t j = 0; j < kVectors; ++j)
    b.v[j] =
        mask_operand<condition>(step, 0, at, j, b) ? operand<a>(step, 1, at, j, b) : operand<b_>(step, 2, at, j, b);
  ONNXFUSE_NEXT(b);
}

template <Source a>
static void load_bool_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  const Integers one = reinterpret_cast<Integers>(splat(1));
  for (size_t j = 0; j < kVectors; ++j) b.v[j] = reinterpret_cast<Vector>(mask_operand<a>(step, 0, at, j, b) & one);
  ONNXFUSE_NEXT(b);
}

static void store_bool_stage(ONNXFUSE_STAGE_PARAMETERS) {
  const Block b = ONNXFUSE_BLOCK;
  for (size_t j = 0; j < kVectors; ++j)
    store_bytes(step->operand[0] + at + j * kVector, reinterpret_cast<Integers>(b.v[j]) & 1);
  ONNXFUSE_NEXT(b);
}

template <class Byte>
static void load_byte_stage(ONNXFUSE_STAGE_PARAMETERS) {
  Block b = ONNXFUSE_BLOCK;
  for (size_t j = 0; j < kVectors; ++j)
    b.v[j] = __builtin_convertvector(load_bytes<Byte>(step->operand[0] + at + j * kVector), Vector);
  ONNXFUSE_NEXT(b);
}

static void store_byte_stage(ONNXFUSE_STAGE_PARAMETERS) {
  const Block b = ONNXFUSE_BLOCK;
  for (size_t j = 0; j < kVectors; ++j) store_bytes(step->operand[0] + at + j * kVector, truncated(b.v[j]));
  ONNXFUSE_NEXT(b);
}

#define ONNXFUSE_VECTOR_OPERATION(name, T, ...)                                                      \
  struct V_##name {                                                                                  \
    static inline Integers value([[maybe_unused]] T a, [[maybe_unused]] T b) { return __VA_ARGS__; } \
  };
ONNXFUSE_VECTOR_OPERATION(equal, Vector, a == b)
ONNXFUSE_VECTOR_OPERATION(less, Vector, a < b)
ONNXFUSE_VECTOR_OPERATION(less_equal, Vector, a <= b)
ONNXFUSE_VECTOR_OPERATION(greater, Vector, a > b)
ONNXFUSE_VECTOR_OPERATION(greater_equal, Vector, a >= b)
ONNXFUSE_VECTOR_OPERATION(isnan, Vector, a != a)
ONNXFUSE_VECTOR_OPERATION(isinf, Vector, (a == splat(kInf)) | (a == splat(-kInf)))
ONNXFUSE_VECTOR_OPERATION(not, Integers, ~a)
ONNXFUSE_VECTOR_OPERATION(and, Integers, a& b)
ONNXFUSE_VECTOR_OPERATION(or, Integers, a | b)
ONNXFUSE_VECTOR_OPERATION(xor, Integers, a ^ b)
#undef ONNXFUSE_VECTOR_OPERATION
