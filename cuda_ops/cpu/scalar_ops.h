// The functions of_* that the table of primitives names, for the types that math.h and half.h leave. Included once for
// each instruction set, inside its namespace: no standard templates here, whose one shared copy might be compiled for
// more than the machine has.
#pragma once

template <class T>
inline constexpr bool is_floating = false;
template <>
inline constexpr bool is_floating<float> = true;
template <>
inline constexpr bool is_floating<double> = true;

template <class A, class B>
inline constexpr bool is_same = false;
template <class A>
inline constexpr bool is_same<A, A> = true;

template <class T>
inline constexpr bool is_signed = static_cast<T>(-1) < static_cast<T>(0);

#define ONNXFUSE_LIBM(name)                                                 \
  static inline float of_##name(float a) { return __builtin_##name##f(a); } \
  static inline double of_##name(double a) { return __builtin_##name(a); }
#define ONNXFUSE_LIBM_DOUBLE(name) \
  static inline double of_##name(double a) { return __builtin_##name(a); }

ONNXFUSE_LIBM(sqrt)
ONNXFUSE_LIBM(tan)
ONNXFUSE_LIBM(asin)
ONNXFUSE_LIBM(acos)
ONNXFUSE_LIBM(atan)
ONNXFUSE_LIBM(sinh)
ONNXFUSE_LIBM(cosh)
ONNXFUSE_LIBM(asinh)
ONNXFUSE_LIBM(acosh)
ONNXFUSE_LIBM(atanh)
ONNXFUSE_LIBM(ceil)
ONNXFUSE_LIBM(floor)
ONNXFUSE_LIBM(rint)
ONNXFUSE_LIBM(sin)
ONNXFUSE_LIBM(cos)
ONNXFUSE_LIBM_DOUBLE(exp)
ONNXFUSE_LIBM_DOUBLE(expm1)
ONNXFUSE_LIBM_DOUBLE(log)
ONNXFUSE_LIBM_DOUBLE(log1p)
ONNXFUSE_LIBM_DOUBLE(tanh)
ONNXFUSE_LIBM_DOUBLE(erf)
#undef ONNXFUSE_LIBM
#undef ONNXFUSE_LIBM_DOUBLE

static inline double of_sigmoid(double a) {
  const double e = __builtin_exp(-__builtin_fabs(a));
  return (a < 0 ? e : 1.0) / (1.0 + e);
}

static inline double of_softplus(double a) {
  return (a < 0 ? 0.0 : a) + __builtin_log1p(__builtin_exp(-__builtin_fabs(a)));
}

static inline float of_abs(float a) { return __builtin_fabsf(a); }
static inline double of_abs(double a) { return __builtin_fabs(a); }
template <class T>
static inline T of_abs(T a) {
  return static_cast<T>(a < 0 ? 0 - a : a);
}

template <class T>
static inline T of_sign(T a) {
  const T s = static_cast<T>((a > 0) - (a < 0));
  if constexpr (is_floating<T>) return a != a ? a : s;
  return s;
}

template <class T>
static inline bool of_isinf(T a) {
  return of_abs(a) == static_cast<T>(kInf);
}

// NaN and -0 pass
template <class T>
static inline T of_relu(T a) {
  return a < 0 ? static_cast<T>(0) : a;
}

template <class T>
static inline T of_mul(T a, T b) {
  if constexpr (sizeof(T) == 2 && !is_floating<T>)
    return static_cast<T>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));  // u16 promotes to int, which overflows
  else
    return static_cast<T>(a * b);
}

// True where the machine's integer division would trap.
template <class T>
static inline bool cannot_divide(T a, T b) {
  if (b == 0) return true;
  if constexpr (is_signed<T>) return b == static_cast<T>(-1) && static_cast<T>(0 - a) == a;
  (void)a;
  return false;
}

// Integers: by 0 gives 0; the least number by -1 wraps to itself.
template <class T>
static inline T of_div(T a, T b) {
  if constexpr (is_floating<T>) {
    return a / b;
  } else {
    if (cannot_divide(a, b)) return b == 0 ? static_cast<T>(0) : a;
    return static_cast<T>(a / b);
  }
}

static inline float of_fmod(float a, float b) { return __builtin_fmodf(a, b); }
static inline double of_fmod(double a, double b) { return __builtin_fmod(a, b); }
template <class T>
static inline T of_fmod(T a, T b) {
  return cannot_divide(a, b) ? static_cast<T>(0) : static_cast<T>(a % b);
}

// The remainder with the sign of the divisor.
template <class T>
static inline T of_mod(T a, T b) {
  const T r = of_fmod(a, b);
  if constexpr (is_floating<T>) {
    if (r == 0) return b < 0 ? static_cast<T>(-0.0) : static_cast<T>(0.0);
    return (r < 0) != (b < 0) ? r + b : r;
  } else {
    return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
  }
}

static inline float of_pow(float a, float b) { return __builtin_powf(a, b); }
static inline double of_pow(double a, double b) { return __builtin_pow(a, b); }
// Through double, as ONNX Runtime.
template <class T>
static inline T of_pow(T a, T b) {
  const double r = __builtin_pow(static_cast<double>(a), static_cast<double>(b));
  if constexpr (sizeof(T) == 8 && !is_signed<T>)
    return r >= 9223372036854775808.0
               ? static_cast<T>(static_cast<int64_t>(r - 9223372036854775808.0)) ^ (static_cast<T>(1) << 63)
               : static_cast<T>(static_cast<int64_t>(r));
  else if constexpr (sizeof(T) == 4 && is_signed<T>)
    return static_cast<T>(r);
  else
    return static_cast<T>(static_cast<int64_t>(r));
}

// NaN wins; of equal values (zeros) the second, as ONNX Runtime.
template <class T>
static inline T of_max(T a, T b) {
  const T m = a > b ? a : b;
  if constexpr (is_floating<T>) return a != a ? a : m;
  return m;
}

template <class T>
static inline T of_min(T a, T b) {
  const T m = a < b ? a : b;
  if constexpr (is_floating<T>) return a != a ? a : m;
  return m;
}

template <class T>
static inline T of_shift_left(T a, T b) {
  constexpr T width = sizeof(T) * 8;
  return b < width ? static_cast<T>(a << (b & (width - 1))) : static_cast<T>(0);
}

template <class T>
static inline T of_shift_right(T a, T b) {
  constexpr T width = sizeof(T) * 8;
  return b < width ? static_cast<T>(a >> (b & (width - 1))) : static_cast<T>(0);
}

// What does not fit becomes what the machine's conversion makes of it.
template <class To, class From>
static inline To convert(From a) {
  if constexpr (is_same<To, bool>) {
    return a != 0;
  } else if constexpr (is_floating<From> && !is_floating<To>) {
    if constexpr (sizeof(To) == 8 && !is_signed<To>) {
      const From top = static_cast<From>(9223372036854775808.0);
      return a >= top ? static_cast<To>(static_cast<int64_t>(a - top)) ^ (static_cast<To>(1) << 63)
                      : static_cast<To>(static_cast<int64_t>(a));
    } else if constexpr (sizeof(To) == 4 && !is_signed<To>) {
      return static_cast<To>(static_cast<int64_t>(a));
    } else if constexpr (sizeof(To) < 4) {
      return static_cast<To>(static_cast<int32_t>(a));
    } else {
      return static_cast<To>(a);
    }
  } else {
    return static_cast<To>(a);
  }
}
