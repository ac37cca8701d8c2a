// The functions of_* that the table of primitives uses, for float, double and the integers.

// Integers are computed in an unsigned type of at least 32 bits, where overflow wraps.
template <class T, bool WIDE = (sizeof(T) > 4)>
struct UnsignedOf {
  using Type = u32;
};
template <class T>
struct UnsignedOf<T, true> {
  using Type = u64;
};
template <class T>
using Unsigned = typename UnsignedOf<T>::Type;
template <class T>
DEVICE constexpr bool is_signed() {
  return T(-1) < T(0);
}

#define BOTH_FLOATS(name, function)                          \
  DEVICE float of_##name(float a) { return function##f(a); } \
  DEVICE double of_##name(double a) { return function(a); }
BOTH_FLOATS(sqrt, sqrt)
BOTH_FLOATS(exp, exp)
BOTH_FLOATS(expm1, expm1)
BOTH_FLOATS(log, log)
BOTH_FLOATS(log1p, log1p)
BOTH_FLOATS(sin, sin)
BOTH_FLOATS(cos, cos)
BOTH_FLOATS(tan, tan)
BOTH_FLOATS(asin, asin)
BOTH_FLOATS(acos, acos)
BOTH_FLOATS(atan, atan)
BOTH_FLOATS(sinh, sinh)
BOTH_FLOATS(cosh, cosh)
BOTH_FLOATS(tanh, tanh)
BOTH_FLOATS(asinh, asinh)
BOTH_FLOATS(acosh, acosh)
BOTH_FLOATS(atanh, atanh)
BOTH_FLOATS(erf, erf)
BOTH_FLOATS(ceil, ceil)
BOTH_FLOATS(floor, floor)
BOTH_FLOATS(rint, rint)
#undef BOTH_FLOATS

DEVICE float of_abs(float a) { return fabsf(a); }
DEVICE double of_abs(double a) { return fabs(a); }
template <class T>
DEVICE T of_abs(T a) {
  return a < T(0) ? static_cast<T>(0 - static_cast<Unsigned<T>>(a)) : a;
}
template <class T>
DEVICE T of_sign(T a) {
  return a > T(0) ? T(1) : a < T(0) ? T(-1) : a == T(0) ? T(0) : a;
}
template <class T>
DEVICE T of_relu(T a) {
  return a < T(0) ? T(0) : a;
}
DEVICE bool of_isinf(float a) { return fabsf(a) == INFINITE; }
DEVICE bool of_isinf(double a) { return fabs(a) == static_cast<double>(INFINITE); }

// exp never overflows here, so that large negative arguments keep their tiny results.
template <class T>
DEVICE T of_sigmoid(T a) {
  const T small = of_exp(-of_abs(a));
  return (a < T(0) ? small : T(1)) / (T(1) + small);
}
template <class T>
DEVICE T of_softplus(T a) {
  return of_relu(a) + of_log1p(of_exp(-of_abs(a)));
}

template <class T>
DEVICE T of_add(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
DEVICE float of_add(float a, float b) { return a + b; }
DEVICE double of_add(double a, double b) { return a + b; }
template <class T>
DEVICE T of_mul(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) * static_cast<Unsigned<T>>(b));
}
DEVICE float of_mul(float a, float b) { return a * b; }
DEVICE double of_mul(double a, double b) { return a * b; }

// Integer division truncates; by zero it gives 0.
template <class T>
DEVICE T of_div(T a, T b) {
  if (b == T(0)) return T(0);
  if constexpr (is_signed<T>()) {
    if (b == T(-1)) return static_cast<T>(0 - static_cast<Unsigned<T>>(a));
  }
  return static_cast<T>(a / b);
}
DEVICE float of_div(float a, float b) { return a / b; }
DEVICE double of_div(double a, double b) { return a / b; }

// The remainder of truncation, with the sign of a; by integer zero it gives 0.
template <class T>
DEVICE T of_fmod(T a, T b) {
  if (b == T(0)) return T(0);
  if constexpr (is_signed<T>()) {
    if (b == T(-1)) return T(0);
  }
  return static_cast<T>(a % b);
}
DEVICE float of_fmod(float a, float b) { return fmodf(a, b); }
DEVICE double of_fmod(double a, double b) { return fmod(a, b); }
// The remainder of flooring, with the sign of b, as in Python.
template <class T>
DEVICE T of_mod(T a, T b) {
  const T r = of_fmod(a, b);
  return r != T(0) && (r < T(0)) != (b < T(0)) ? static_cast<T>(r + b) : r;
}
template <class T>
DEVICE T of_float_mod(T a, T b) {
  const T r = of_fmod(a, b);
  if (r == T(0)) return b < T(0) ? T(-0.0) : T(0);
  return (r < T(0)) != (b < T(0)) ? r + b : r;
}
DEVICE float of_mod(float a, float b) { return of_float_mod(a, b); }
DEVICE double of_mod(double a, double b) { return of_float_mod(a, b); }

DEVICE float of_pow(float a, float b) { return powf(a, b); }
DEVICE double of_pow(double a, double b) { return pow(a, b); }
template <class T>
DEVICE T of_pow(T a, T b) {
  if (b < T(0)) {
    if (a == T(1)) return T(1);
    if (a == T(-1)) return (b & T(1)) != 0 ? a : T(1);
    return T(0);
  }
  Unsigned<T> result = 1, factor = static_cast<Unsigned<T>>(a), exponent = static_cast<Unsigned<T>>(b);
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result *= factor;
    factor *= factor;
  }
  return static_cast<T>(result);
}

// NaN wins.
template <class T>
DEVICE T of_max(T a, T b) {
  return a > b ? a : b;
}
template <class T>
DEVICE T of_min(T a, T b) {
  return a < b ? a : b;
}
DEVICE double of_max(double a, double b) { return a > b || a != a ? a : b; }
DEVICE double of_min(double a, double b) { return a < b || a != a ? a : b; }
#if __CUDA_ARCH__ >= 800
DEVICE float of_max(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
DEVICE float of_min(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
#else
DEVICE float of_max(float a, float b) { return a > b || a != a ? a : b; }
DEVICE float of_min(float a, float b) { return a < b || a != a ? a : b; }
#endif

template <class T>
DEVICE T of_shift_left(T a, T b) {
  return b >= T(8 * sizeof(T)) ? T(0) : static_cast<T>(static_cast<Unsigned<T>>(a) << b);
}
template <class T>
DEVICE T of_shift_right(T a, T b) {
  return b >= T(8 * sizeof(T)) ? T(0) : static_cast<T>(a >> b);
}

// The identities of maximum and minimum.
DEVICE float lowest(float) { return -INFINITE; }
DEVICE float highest(float) { return INFINITE; }
DEVICE double lowest(double) { return -static_cast<double>(INFINITE); }
DEVICE double highest(double) { return static_cast<double>(INFINITE); }
DEVICE bool lowest(bool) { return false; }
DEVICE bool highest(bool) { return true; }
template <class T>
DEVICE T highest(T) {
  const Unsigned<T> ones = static_cast<Unsigned<T>>(-1) >> (8 * (sizeof(Unsigned<T>) - sizeof(T)));
  return static_cast<T>(is_signed<T>() ? ones >> 1 : ones);
}
template <class T>
DEVICE T lowest(T) {
  return is_signed<T>() ? static_cast<T>(~static_cast<Unsigned<T>>(highest(T()))) : T(0);
}
