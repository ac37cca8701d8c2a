// Division of many numbers by one: a product with the reciprocal, corrected by the exact remainder, is the correctly
// rounded quotient (Brisebarre, Muller and Raina, "Accelerating correctly rounded floating-point division when the
// divisor is known in advance", 2004). Where an intermediate could leave the normal range, plain division takes over.

struct Denominator {
  float value;
  float inverse;
  bool usual;  // in the range that lets most dividends take the short way
};
DEVICE Denominator denominator(float value) {
  const float magnitude = fabsf(value);
  return {value, 1.0f / value, magnitude >= 0x1p-60f && magnitude <= 0x1p60f};
}
DEVICE bool usual_dividend(float a) { return fabsf(a) >= 0x1p-60f & fabsf(a) <= 0x1p60f; }
DEVICE float corrected_quotient(float a, const Denominator& d) {
  const float quotient = a * d.inverse;
  return __fmaf_rn(__fmaf_rn(-quotient, d.value, a), d.inverse, quotient);
}
DEVICE float divide(float a, const Denominator& d) {
  if (d.usual && usual_dividend(a)) return corrected_quotient(a, d);
  return d.usual && a == 0.0f ? a * d.inverse : a / d.value;
}
// All of a vector; what is unusual is looked for only once.
template <int LANES>
DEVICE void divide_all(float (&a)[LANES], const Denominator (&d)[LANES]) {
  float quotient[LANES];
  bool usual = true;
#pragma unroll
  for (int w = 0; w < LANES; ++w) {
    quotient[w] = corrected_quotient(a[w], d[w]);
    usual = usual & usual_dividend(a[w]) & d[w].usual;
  }
  if (!usual) {
#pragma unroll
    for (int w = 0; w < LANES; ++w) quotient[w] = divide(a[w], d[w]);
  }
#pragma unroll
  for (int w = 0; w < LANES; ++w) a[w] = quotient[w];
}
template <int LANES>
DEVICE void divide_all(float (&a)[LANES], const Denominator& d) {
  float quotient[LANES];
  bool usual = d.usual;
#pragma unroll
  for (int w = 0; w < LANES; ++w) {
    quotient[w] = corrected_quotient(a[w], d);
    usual = usual & usual_dividend(a[w]);
  }
  if (!usual) {
#pragma unroll
    for (int w = 0; w < LANES; ++w) quotient[w] = divide(a[w], d);
  }
#pragma unroll
  for (int w = 0; w < LANES; ++w) a[w] = quotient[w];
}

// Within 2 units in the last place of float. Divisors whose reciprocals are out of range are scaled first.
struct FastDenominator {
  float inverse, scale;
};
DEVICE FastDenominator fast_denominator(float value) {
  const float magnitude = fabsf(value);
  const float scale = magnitude >= 0x1p126f ? 0x1p-64f : magnitude <= 0x1p-126f ? 0x1p64f : 1.0f;
  return {1.0f / (value * scale), scale};
}
DEVICE float divide_fast(float a, const FastDenominator& d) { return a * d.inverse * d.scale; }
