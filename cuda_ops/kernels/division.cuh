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

// A divisor that only a run shows. No branch stands in the way of loads, so that they can go ahead; the price:
// quotients of dividends below 2^-98, and quotients below the normal range, may be off by 2 units in the last place.
// All others are rounded correctly. Divisors whose reciprocals are out of range are scaled together with the dividends.
struct ScaledDenominator {
  float scale, value, inverse;
};
DEVICE ScaledDenominator scaled_denominator(float value) {
  const float magnitude = fabsf(value);
  const float scale = magnitude >= 0x1p126f ? 0x1p-64f : magnitude <= 0x1p-126f ? 0x1p64f : 1.0f;
  return {scale, value * scale, 1.0f / (value * scale)};
}
// The same for a square root, which is 0, infinite, NaN or in range: nothing is to be scaled.
DEVICE ScaledDenominator root_denominator(float value) { return {1.0f, value, 1.0f / value}; }
DEVICE float divide_scaled(float a, const ScaledDenominator& d) {
  const float dividend = a * d.scale, first = dividend * d.inverse;
  const float quotient = __fmaf_rn(__fmaf_rn(-first, d.value, dividend), d.inverse, first);
  // Where something is infinite or NaN, the correction is NaN; where the quotient is 0, it has lost the sign.
  return fabsf(quotient) < INFINITE ? copysignf(quotient, first) : first;
}
// Without the correction: within 2 units.
DEVICE float divide_fast(float a, const ScaledDenominator& d) { return a * d.scale * d.inverse; }
