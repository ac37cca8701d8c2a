// Division of many numbers by one: a product with the reciprocal, corrected by the exact remainder, is the correctly
// rounded quotient (Brisebarre, Muller and Raina, "Accelerating correctly rounded floating-point division when the
// divisor is known in advance", 2004). Where an intermediate could leave the normal range, plain division takes over.

struct Denominator {
  float value;
  float inverse;
  float limit;  // largest magnitude of a dividend; negative: no dividend will do
};
DEVICE Denominator denominator(float value) {
  const float magnitude = fabsf(value);
  const bool usual = magnitude >= 0x1p-60f && magnitude <= 0x1p60f;
  return {value, 1.0f / value, usual ? 0x1p60f : -1.0f};
}
DEVICE float divide(float a, const Denominator& d) {
  const float quotient = a * d.inverse;
  const float magnitude = fabsf(a);
  if (magnitude >= 0x1p-60f && magnitude <= d.limit) {
    return __fmaf_rn(__fmaf_rn(-quotient, d.value, a), d.inverse, quotient);
  }
  return a == 0.0f && d.limit > 0.0f ? quotient : a / d.value;
}
// Within 2 units in the last place of float.
DEVICE float divide_fast(float a, const Denominator& d) { return d.limit > 0.0f ? a * d.inverse : a / d.value; }
