// Sums of 1 and a function that may be near -1, without the cancellation that their spelling has: erf and tanh
// activations.

DEVICE float exp2_flushed(float a) {  // 2 units in the last place; 0 below the normal range
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(a));
  return result;
}

// 1 + erf(a) = erfc(-a), where erfc(t) = 2^(t P(t)) for t >= 0. The coefficients are a weighted least maximum fit to
// log2(erfc(t)) over [0, 4.2]; beyond, the exponent falls on, and erfc is below 2^-28. The error is at most 2^-23 of
// the result for a > 0 and 2^-24 in all, as of the sum itself when erf is correctly rounded, and 2^-17 of the result
// where that is tiny (which the sum loses).
DEVICE float of_one_plus_erf(float a) {
  const float t = fabsf(a);
  float p = -8.897253565010033e-07f;
  p = __fmaf_rn(p, t, 1.8921875380328856e-05f);
  p = __fmaf_rn(p, t, -0.00017209789075423032f);
  p = __fmaf_rn(p, t, 0.0008522534044459462f);
  p = __fmaf_rn(p, t, -0.002206417266279459f);
  p = __fmaf_rn(p, t, -4.8985759349307045e-05f);
  p = __fmaf_rn(p, t, 0.02783547341823578f);
  p = __fmaf_rn(p, t, -0.1483522206544876f);
  p = __fmaf_rn(p, t, -0.9184350967407227f);
  p = __fmaf_rn(p, t, -1.6279077529907227f);
  const float tail = exp2_flushed(p * t);
  return a < 0.0f ? tail : 2.0f - tail;
}
// The same within 2^-17 of the result.
DEVICE float fast_one_plus_erf(float a) {
  const float t = fabsf(a);
  float p = -2.0270026652724482e-05f;
  p = __fmaf_rn(p, t, 0.00048551609506830573f);
  p = __fmaf_rn(p, t, -0.005220969207584858f);
  p = __fmaf_rn(p, t, 0.033904366195201874f);
  p = __fmaf_rn(p, t, -0.15242327749729156f);
  p = __fmaf_rn(p, t, -0.9170847535133362f);
  p = __fmaf_rn(p, t, -1.6280627250671387f);
  const float tail = exp2_flushed(p * t);
  return a < 0.0f ? tail : 2.0f - tail;
}
// 1 + tanh(a) = 2 / (1 + exp(-2 a)), within 2^-16 of the result while that is above 2^-126.
DEVICE float fast_one_plus_tanh(float a) { return 2.0f * fast_reciprocal(1.0f + exp2_flushed(a * -2.88539008f)); }
