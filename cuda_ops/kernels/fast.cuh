// Approximations for programs whose outputs are all 16 bits wide. Each comes with the bound of its relative error; the
// generator uses them only where everything behind them keeps relative errors small.

// Below 2^-16 in the worst case (|a| near 88), from the rounding of the exponent; ex2.approx itself is good to 2^-22.
DEVICE float fast_exp(float a) {
  float result;
  asm("ex2.approx.f32 %0, %1;" : "=f"(result) : "f"(a * 1.44269504f));
  return result;
}
// 2^24 times that, as exactly, for exponentials that end up in quotients with their sum: what is below the normal range
// without the factor needs no care, and below 2^-150 it is 0 anyway.
DEVICE float fast_exp_raised(float a) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(__fmaf_rn(a, 1.44269504f, 24.0f)));
  return result;
}
// 2 units in the last place of float, over the full range.
DEVICE float fast_div(float a, float b) {
  float result;
  asm("div.full.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
DEVICE float fast_reciprocal(float a) {
  float result;
  asm("rcp.approx.f32 %0, %1;" : "=f"(result) : "f"(a));
  return result;
}
DEVICE float fast_sigmoid(float a) {
  const float small = fast_exp(-fabsf(a));
  return (a < 0.0f ? small : 1.0f) * fast_reciprocal(1.0f + small);
}
// 2^-15: below 2^-8, tanh(a) is a to 2^-17; above, 1 - exp(-2 a) has lost 8 bits at most.
DEVICE float fast_tanh(float a) {
  const float magnitude = fabsf(a);
  const float small = fast_exp(-2.0f * magnitude);
  const float result = copysignf((1.0f - small) * fast_reciprocal(1.0f + small), a);
  return magnitude < 0x1p-8f ? a : result;
}
