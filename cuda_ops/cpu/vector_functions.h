// Functions of vectors of floats. Those for AVX-512 look coefficients up by its permutations, in tables that lie in two
// registers each, on ports of their own, so that short polynomials do. At most 4 ulp from the exact value, like math.h.
// The coefficients are minimax fits of ours. Included once for each instruction set, inside its namespace, after
// vectors.h.
#pragma once

typedef uint32_t Bits __attribute__((vector_size(sizeof(Vector))));

// exp(a) * unit for a power of two as unit, where the result and all that lies between is of ordinary size.
[[maybe_unused]] static inline Vector exp_times_unit(Vector a, float unit) {
  const Vector t = a * splat(kLog2E) + splat(kRounder);
  const Vector p = exp_remainder(a, t - splat(kRounder));
  Bits bits;
  __builtin_memcpy(&bits, &t, sizeof t);
  bits = (bits << 23) + float_to_bits(unit);  // nothing is left of the rounder's own bits
  Vector s;
  __builtin_memcpy(&s, &bits, sizeof s);
  return p * s + s;
}

#if defined(__AVX512F__)
#define ONNXFUSE_VECTOR_FUNCTIONS

// 2^(j / 32) for j in [0, 32): the significands of the numbers between 1 and 2.
alignas(64) static constexpr float kRoots[] = {
    1.0f,        1.0218972f,  1.04427373f, 1.06714046f, 1.09050775f, 1.1143868f,  1.13878858f, 1.1637249f,
    1.18920708f, 1.21524739f, 1.24185777f, 1.26905096f, 1.29683959f, 1.32523668f, 1.35425556f, 1.38390994f,
    1.41421354f, 1.44518077f, 1.47682619f, 1.50916445f, 1.54221082f, 1.5759809f,  1.61049032f, 1.64575553f,
    1.68179286f, 1.71861935f, 1.75625217f, 1.79470909f, 1.8340081f,  1.87416768f, 1.91520655f, 1.95714414f};

// e^r = 1 + kExpLinear * r + kExpQuadratic * r^2, for |r| <= ln(2) / 64
static constexpr float kExpLinear = 1.00001466f, kExpQuadratic = 0.500004530f;

// The entries of a table of 32 that the low bits of t tell.
static inline Vector entries(const float* table, Vector t) {
  return _mm512_maskz_permutex2var_ps(0xffff, load_vector(table), _mm512_castps_si512(t), load_vector(table + kVector));
}

// exp(a) for -2^15 < a < 2^15 (and NaN): a = (k + j / 32) * ln 2 + r, where r is so small that two terms do.
static inline Vector exp_bounded(Vector a) {
  constexpr float rounder = kRounder / 32;  // adding it rounds to 32nds, whose number is in the low bits
  const Vector t = a * splat(kLog2E) + splat(rounder);
  const Vector k = t - splat(rounder);
  // Fused, whatever the compiler makes of products and sums: the product has more bits than a float.
  const Vector r = _mm512_fnmadd_ps(k, splat(-1.90465421e-09f), _mm512_fnmadd_ps(k, splat(0.693147182f), a));
  const Vector root = entries(kRoots, t);
  const Vector p = (splat(kExpQuadratic) * r + splat(kExpLinear)) * r;
  return _mm512_maskz_scalef_ps(0xffff, root * p + root, k);
}

static inline Vector vector_exp(Vector a) {
  return exp_bounded(less(splat(89.5f), greater(splat(-104.5f), a)));  // beyond it is infinity or 0
}

static inline Vector magnitude(Vector a) { return _mm512_andnot_ps(splat(-0.0f), a); }

// The quotient is corrected once, whole: a reciprocal that is rounded before its product with e costs 4.3 ulp.
static inline Vector vector_sigmoid(Vector a) {
  const Vector e = exp_bounded(greater(splat(-104.5f), _mm512_or_ps(a, splat(-0.0f))));
  const Vector d = splat(1) + e;
  const Vector n = _mm512_mask_mov_ps(splat(1), _mm512_cmp_ps_mask(a, splat(0), _CMP_LT_OQ), e);
  const Vector r = _mm512_maskz_rcp14_ps(0xffff, d), q = n * r;
  return _mm512_fmadd_ps(_mm512_fnmadd_ps(d, q, n), r, q);
}

// erf(c + d) = sum of kErf[k][j] * d^k for c = j / 8 and |d| <= 1 / 16.
alignas(64) static constexpr float kErf[5][32] = {
    {0.0f,         0.140316203f, 0.276326388f, 0.404116899f, 0.520499885f, 0.623240888f, 0.711155653f, 0.784075081f,
     0.842700779f, 0.888388216f, 0.92290014f,  0.948170066f, 0.966105163f, 0.978443742f, 0.986671686f, 0.99199003f,
     0.995322287f, 0.997345984f, 0.998537302f, 0.999217033f, 0.999593019f, 0.999794602f, 0.999899387f, 0.999952137f,
     0.999977887f, 0.999990106f, 0.999995708f, 0.999998212f, 0.999999285f, 0.999999702f, 0.999999881f, 1.0f},
    {1.12837911f,     1.11088479f,     1.06001377f,     0.980352819f,
     0.87878257f,     0.763499558f,    0.642931044f,    0.524745047f,
     0.415107489f,    0.318273962f,    0.236521125f,    0.170359775f,
     0.118930288f,    0.0804722607f,   0.0527749956f,   0.0335458294f,
     0.0206669848f,   0.0123408204f,   0.00714231888f,  0.00400647754f,
     0.00217828224f,  0.00114787265f,  0.000586277165f, 0.00029022785f,
     0.000139251162f, 6.47586203e-05f, 2.91884244e-05f, 1.27514222e-05f,
     5.39926714e-06f, 2.21584355e-06f, 8.81396375e-07f, 0.0f},
    {2.16872668e-05f,  -0.138858482f,    -0.265000761f,    -0.367617458f,
     -0.439404786f,    -0.477195174f,    -0.482229352f,    -0.459183186f,
     -0.415091276f,    -0.358036757f,    -0.29566887f,     -0.234235585f,
     -0.178427264f,    -0.130784586f,    -0.0923857167f,   -0.0628436059f,
     -0.0413769335f,   -0.0262496136f,   -0.0161064584f,   -0.00945901312f,
     -0.00538882846f,  -0.00296943868f,  -0.00163066422f,  -0.000819063513f,
     -0.000371658185f, -0.000207072881f, -0.000117579213f, -9.78803946e-05f,
     -7.51578409e-05f, -2.20711649e-06f, 7.77208152e-06f,  0.0f},
    {-0.377345622f,   -0.358221054f,   -0.3087897f,     -0.234743729f,
     -0.146444276f,   -0.0557604991f,  0.0266649332f,   0.0927419662f,
     0.138155401f,    0.16227302f,     0.167399064f,    0.157845274f,
     0.138721868f,    0.114835389f,    0.0901707932f,   0.0674637109f,
     0.0482498594f,   0.0330635533f,   0.0217463095f,   0.0137474267f,
     0.00836420152f,  0.00490169507f,  0.00276595261f,  0.00150633533f,
     0.00079304754f,  0.000401220022f, 0.000197036992f, 9.32260082e-05f,
     4.26179977e-05f, 1.88291506e-05f, 8.04183492e-06f, 0.0f},
    {0.0214920156f,  0.0681638718f,   0.126247257f,    0.163286045f,
     0.186146006f,   0.177948445f,    0.157270089f,    0.119032033f,
     0.0659354627f,  0.0235402752f,   -0.00239320076f, -0.0322923884f,
     -0.0368410647f, -0.0453392044f,  -0.0407415219f,  -0.0558880754f,
     -0.023865981f,  -0.0202558562f,  -0.0101628127f,  -0.0272816215f,
     -0.0229863431f, -0.016490791f,   0.00134899036f,  -0.00575408852f,
     -0.012813448f,  0.000623688451f, 0.00551056396f,  0.0138577996f,
     0.0142938998f,  -0.00151844497f, -0.00284174993f, 0.0f},
};

static inline Vector vector_erf(Vector a) {
  constexpr float rounder = kRounder / 8;              // adding it rounds to eighths, whose number is in the low bits
  const Vector x = less(splat(3.937f), magnitude(a));  // from 3.8125 on, the result is 1
  const Vector t = x + splat(rounder);
  const Vector d = x - (t - splat(rounder));
  Vector r = entries(kErf[4], t);
  for (int k = 3; k >= 0; --k) r = r * d + entries(kErf[k], t);
  return _mm512_or_ps(r, _mm512_and_ps(a, splat(-0.0f)));
}

// tanh(c + d) = sum of kTanh[k][j] * d^k, where 1 + c has three significant bits behind its first one and |d| is half a
// step of them at most: j are those bits with the last two of the exponent.
alignas(64) static constexpr float kTanh[5][32] = {
    {0.7615941f,  0.84828365f, 0.90514827f, 0.94137555f, 0.9640276f,  0.9780261f, 0.9866143f,  0.99185973f,
     0.9950548f,  0.9981779f,  0.9993293f,  0.99975324f, 0.9999092f,  0.9999666f, 0.9999877f,  0.99999547f,
     0.99999833f, 0.99999976f, 1.0f,        1.0f,        1.0f,        1.0f,       1.0f,        1.0f,
     0.0f,        0.124353f,   0.24491866f, 0.3583574f,  0.46211717f, 0.5545997f, 0.63514894f, 0.7039056f},
    {0.4199743f,     0.28041628f,   0.18070664f,    0.1138121f,     0.07065051f,    0.043464918f,   0.026592214f,
     0.016214287f,   0.00986604f,   0.0036403723f,  0.0013409507f,  4.9351744e-04f, 1.8158322e-04f, 6.680455e-05f,
     2.4576539e-05f, 9.040968e-06f, 3.3258646e-06f, 4.4995667e-07f, 0.0f,           0.0f,           0.0f,
     0.0f,           0.0f,          0.0f,           1.0f,           0.9845358f,     0.94001454f,    0.87157995f,
     0.78644776f,    0.6924191f,    0.5965858f,     0.5045169f},
    {-0.3198029f,
     -0.23787569f,
     -0.16357088f,
     -0.10714303f,
     -0.06810989f,
     -0.042503264f,
     -0.026234051f,
     -0.016084548f,
     -0.009825619f,
     -0.0036333886f,
     -0.0013417152f,
     -4.9604545e-04f,
     -1.8361122e-04f,
     -6.979441e-05f,
     -2.5787644e-05f,
     -7.87014e-06f,
     -3.1380725e-06f,
     -3.0462232e-08f,
     0.0f,
     0.0f,
     0.0f,
     0.0f,
     0.0f,
     0.0f,
     5.943292e-06f,
     -0.12242292f,
     -0.23022203f,
     -0.3123372f,
     -0.3634443f,
     -0.38398474f,
     -0.37891173f,
     -0.3550979f},
    {0.10346929f,    0.1079388f,     0.087781f,      0.06297116f,    0.04219843f,   0.027139543f,   0.017060772f,
     0.010572252f,   0.0064948495f,  0.002449806f,   9.014898e-04f,  3.313216e-04f, 1.2206252e-04f, 4.500106e-05f,
     1.6556452e-05f, 6.0976754e-06f, 2.1515352e-06f, 3.1396385e-07f, 0.0f,          0.0f,           0.0f,
     0.0f,           0.0f,           0.0f,           -0.33391094f,   -0.31239933f,  -0.25661162f,   -0.17852567f,
     -0.094297074f,  -0.017956343f,  0.04159343f,    0.08166422f},
    {0.020326944f,
     -0.012101162f,
     -0.02461656f,
     -0.023351818f,
     -0.017873049f,
     -0.012667989f,
     -0.008155337f,
     -0.004999205f,
     -0.0028268343f,
     -0.0012185983f,
     -4.2930126e-04f,
     -1.2958185e-04f,
     -3.0264573e-05f,
     2.4883793e-05f,
     1.0914344e-05f,
     -2.1598667e-05f,
     -1.5302659e-06f,
     -1.8173416e-06f,
     0.0f,
     0.0f,
     0.0f,
     0.0f,
     0.0f,
     0.0f,
     0.015964964f,
     0.07767122f,
     0.13820308f,
     0.1677491f,
     0.16763178f,
     0.13134782f,
     0.098028414f,
     0.05350809f}};

static inline Vector vector_tanh(Vector a) {
  constexpr int half = 1 << 19, step = 20;            // of a float's bits, below the three
  const Vector x = less(splat(9.25f), magnitude(a));  // from 8.5 on, the result is 1
  const Vector rounded = x + splat(1);
  const __m512i t = _mm512_add_epi32(_mm512_castps_si512(rounded), _mm512_set1_epi32(half));
  const Vector c = _mm512_castsi512_ps(_mm512_and_si512(t, _mm512_set1_epi32(-2 * half))) - splat(1);
  const Vector j = _mm512_castsi512_ps(_mm512_maskz_srli_epi32(0xffff, t, step));
  const Vector d = x - c;
  Vector r = entries(kTanh[4], j);
  for (int k = 3; k >= 0; --k) r = r * d + entries(kTanh[k], j);
  return _mm512_or_ps(r, _mm512_and_ps(a, splat(-0.0f)));
}

static inline Vector exp_of_difference(Vector a, Vector b) { return vector_exp(a - b); }

template <Vector (*f)(Vector)>
static void vector_loop(void* out, const void* a, const void*, const void*, size_t n) {
  auto* po = static_cast<float*>(out);
  auto* pa = static_cast<const float*>(a);
  size_t i = 0;
  for (; i + kVector <= n; i += kVector) store_vector(po + i, f(load_vector(pa + i)));
  if (i == n) return;
  Vector rest = {};
  __builtin_memcpy(&rest, pa + i, (n - i) * sizeof(float));
  rest = f(rest);
  __builtin_memcpy(po + i, &rest, (n - i) * sizeof(float));
}
#endif
