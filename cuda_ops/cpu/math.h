// Branch-free float functions that compilers vectorize; at most 4 ulp from the exact value, usually under 2 (measured
// by tests/test_cpu_engine.py). The polynomials are minimax fits of ours (iteratively reweighted least squares,
// coefficients rounded to float one after the other). Included once for each instruction set, inside its namespace.
#pragma once

static inline float bits_to_float(uint32_t u) {
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}

static inline uint32_t float_to_bits(float f) {
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  return u;
}

static constexpr float kInf = __builtin_inff();
static constexpr float kNaN = __builtin_nanf("");
static constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
static constexpr float kLog2E = 1.44269504f;
static constexpr float kLn2Hi = 0.693359375f;  // 10 bits: its product with an exponent is exact
static constexpr float kLn2Lo = -0.00021219444f;

// x = k * ln 2 + r with |r| <= ln(2) / 2; expm1(r) = p. For |x| < 2^15.
struct ExpParts {
  int32_t k;
  float p;
};

// expm1(x - k * ln 2), of a float or of a vector of them
template <class T>
static inline T exp_remainder(T x, T k) {
  const T r = (x - k * kLn2Hi) - k * kLn2Lo;
  T q = 0.000199434522f * r;
  q = q + 0.00139344553f;
  q = q * r + 0.00833320897f;
  q = q * r + 0.0416664742f;
  q = q * r + 0.166666672f;
  q = q * r + 0.5f;
  return r + r * r * q;
}

static inline ExpParts exp_parts(float x) {
  const float t = x * kLog2E + kRounder;
  return {static_cast<int32_t>(float_to_bits(t) - 0x4b400000u), exp_remainder(x, t - kRounder)};
}

// 2^k for -126 <= k <= 127
static inline float power_of_two(int32_t k) { return bits_to_float(static_cast<uint32_t>(k + 127) << 23); }

// 2^k comes in two factors, since the result may be denormal or overflow. Above 2^130, k stops and p goes on to
// infinity.
static inline float of_exp(float a) {
  constexpr int32_t most = 0x4b400000 + 130;
  const float t = a * kLog2E + kRounder;
  const int32_t bits = static_cast<int32_t>(float_to_bits(t));
  const int32_t bounded = bits < most ? bits : most;  // as numbers, since t is positive where it matters
  const float p = exp_remainder(a, bits_to_float(static_cast<uint32_t>(bounded)) - kRounder);
  const int32_t k = bounded - 0x4b400000;
  const int32_t half = k >> 1;
  const float r = (p * power_of_two(half) + power_of_two(half)) * power_of_two(k - half);
  return a < -104.0f ? 0.0f : r;
}

// exp(a) for -87 <= a <= 0 (and NaN); below, some number of at most 2^-125
static inline float exp_nonpositive(float a) {
  const ExpParts e = exp_parts(a < -87.0f ? -87.0f : a);
  const float s = power_of_two(e.k);
  return e.p * s + s;
}

// expm1(a) for a <= 0 (and NaN), keeps -0
static inline float expm1_nonpositive(float a) {
  const ExpParts e = exp_parts(a < -20.0f ? -20.0f : a);
  const float s = power_of_two(e.k);
  const float r = e.p * s + (s - 1.0f);
  return a == 0.0f ? a : r;
}

static inline float of_expm1(float a) {
  const float above = a < -20.0f ? -20.0f : a;
  const ExpParts e = exp_parts(above > 88.9f ? 88.9f : above);
  const float s = power_of_two(e.k - 1);  // half of it: 2^128 would overflow where the result does not
  const float r = 2.0f * (e.p * s + (s - 0.5f));
  return a == 0.0f ? a : r;
}

// u = 2^k * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)]; log(1 + f) = f + p. For normal u > 0.
struct LogParts {
  float k, f, p;
};

static inline LogParts log_parts(float u) {
  const uint32_t bits = float_to_bits(u);
  const int32_t k = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
  const float f = bits_to_float(bits - (static_cast<uint32_t>(k) << 23)) - 1.0f;
  float q = 0.0675261691f;
  q = q * f - 0.117208101f;
  q = q * f + 0.119096838f;
  q = q * f - 0.124000572f;
  q = q * f + 0.142161176f;
  q = q * f - 0.166681647f;
  q = q * f + 0.200022802f;
  q = q * f - 0.250000089f;
  q = q * f + 0.333333105f;
  const float ff = f * f;
  return {static_cast<float>(k), f, ff * (f * q - 0.5f)};
}

static inline float of_log(float a) {
  const bool denormal = a < 1.17549435e-38f;
  const LogParts l = log_parts(denormal ? a * 8388608.0f : a);
  const float k = denormal ? l.k - 23.0f : l.k;
  float r = k * kLn2Hi + (l.f + (l.p + k * kLn2Lo));
  r = a == kInf ? a : r;
  r = a == 0.0f ? -kInf : r;
  return a >= 0.0f ? r : kNaN;
}

// log1p(a) for 0 <= a <= 1 (and NaN)
static inline float log1p_unit(float a) {
  const float u = 1.0f + a;
  const LogParts l = log_parts(u);
  return l.k * kLn2Hi + (l.f + (l.p + (l.k * kLn2Lo + (a - (u - 1.0f)) / u)));
}

static inline float of_log1p(float a) {
  const float u = 1.0f + a;
  const LogParts l = log_parts(u);
  const float lost = a < 16777216.0f ? a - (u - 1.0f) : 0.0f;  // what u has rounded away
  float r = l.k * kLn2Hi + (l.f + (l.p + (l.k * kLn2Lo + lost / u)));
  r = a == kInf || a == 0.0f ? a : r;
  r = a == -1.0f ? -kInf : r;
  return a >= -1.0f ? r : kNaN;
}

static inline float of_tanh(float a) {
  const float t = expm1_nonpositive(-2.0f * __builtin_fabsf(a));
  return __builtin_copysignf(t / (t + 2.0f), a);
}

static inline float of_sigmoid(float a) {
  const float magnitude = __builtin_fabsf(a);
  const float e = of_exp(-magnitude);
  return (a < 0.0f ? e : 1.0f) / (1.0f + e);
}

static inline float of_softplus(float a) {
  const float e = of_exp(-__builtin_fabsf(a));
  const float positive = a < 0.0f ? 0.0f : a;
  return positive + log1p_unit(e);
}

static inline float of_erf(float a) {
  const float x = __builtin_fabsf(a);
  // near zero: x + x * p(x^2)
  const float z = x * x;
  float p = 8.00277485e-05f;
  p = p * z - 0.000805080403f;
  p = p * z + 0.00519246049f;
  p = p * z - 0.0268557407f;
  p = p * z + 0.112836257f;
  p = p * z - 0.376126289f;
  p = p * z + 0.128379166f;
  // beyond: 1 - exp(q(x)), where q = log(erfc)
  const float y = x > 4.0f ? 4.0f : x;
  float q = -2.08235724e-05f;
  q = q * y + 0.000431344641f;
  q = q * y - 0.00415606424f;
  q = q * y + 0.0250802319f;
  q = q * y - 0.108219959f;
  q = q * y - 0.633401096f;
  q = q * y - 1.12948835f;
  q = q * y + 0.000169205188f;
  const float far = 1.0f - exp_nonpositive(q);
  return __builtin_copysignf(x < 0.94f ? x + x * p : far, a);
}

// Sine and cosine of |a| <= kTrigLimit, reduced by pi/2 in double: hi has 33 bits, so its products are exact.
static constexpr float kTrigLimit = 1048576.0f;

struct TrigParts {
  uint32_t quadrant;
  float r;
};

static inline TrigParts trig_parts(float a) {
  constexpr double rounder = 6755399441055744.0;  // 1.5 * 2^52
  const double x = a;
  const double t = x * 0.6366197723675814 + rounder;
  const double k = t - rounder;
  const double r = (x - k * 1.5707963267341256) - k * 6.077100506506192e-11;
  return {static_cast<uint32_t>(static_cast<int32_t>(k)), static_cast<float>(r)};
}

static inline float trig_value(uint32_t quadrant, float r) {
  const float z = r * r;
  float s = 2.82641486e-06f;
  s = s * z - 0.000198525653f;
  s = s * z + 0.00833337847f;
  s = s * z - 0.166666672f;
  const float sine = r + r * z * s;
  float c = -2.87680592e-07f;
  c = c * z + 2.48209744e-05f;
  c = c * z - 0.00138889777f;
  c = c * z + 0.0416666679f;
  const float cosine = (1.0f - 0.5f * z) + z * z * c;
  const float v = quadrant & 1 ? cosine : sine;
  return bits_to_float(float_to_bits(v) ^ ((quadrant & 2) << 30));
}

static inline float small_sin(float a) {
  const TrigParts t = trig_parts(a);
  const float r = trig_value(t.quadrant, t.r);
  return a == 0.0f ? a : r;
}

static inline float small_cos(float a) {
  const TrigParts t = trig_parts(a);
  return trig_value(t.quadrant + 1, t.r);
}
