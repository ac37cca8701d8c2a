// Conversions between float and the 16-bit floats, to nearest, ties to even; NaN stays NaN. Included once for each
// instruction set, inside its namespace, after math.h.
#pragma once

static inline float half_to_float(uint16_t h) {
  uint32_t o = static_cast<uint32_t>(h & 0x7fff) << 13;
  const uint32_t exponent = o & 0x0f800000u;
  o += 0x38000000u;                                 // the bias, 127 - 15
  o += exponent == 0x0f800000u ? 0x38000000u : 0u;  // infinity and NaN
  const float denormal = bits_to_float(o + 0x00800000u) - bits_to_float(0x38800000u);
  const uint32_t magnitude = exponent == 0 ? float_to_bits(denormal) : o;
  return bits_to_float(magnitude | static_cast<uint32_t>(h & 0x8000) << 16);
}

// |a| rounded to a multiple of 2^-24: for |a| below the least normal half, 2^-14
static inline float round_denormal_half(uint32_t magnitude) { return bits_to_float(magnitude) + 0.5f; }

static inline uint16_t float_to_half(float a) {
  const uint32_t u = float_to_bits(a);
  const uint32_t magnitude = u & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1) - 0x38000000u) >> 13;
  const uint32_t denormal = float_to_bits(round_denormal_half(magnitude)) - 0x3f000000u;
  uint32_t h = magnitude < 0x38800000u ? denormal : normal;
  h = magnitude >= 0x47800000u ? 0x7c00u : h;
  h = magnitude > 0x7f800000u ? (0x7e00u | (magnitude >> 13 & 0x3ffu)) : h;
  return static_cast<uint16_t>(h | (u >> 16 & 0x8000u));
}

static inline float of_round_f16(float a) {
  const uint32_t u = float_to_bits(a);
  const uint32_t magnitude = u & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1)) & 0xffffe000u;
  const uint32_t denormal = float_to_bits(round_denormal_half(magnitude) - 0.5f);
  uint32_t r = magnitude < 0x38800000u ? denormal : normal;
  r = r >= 0x47800000u ? 0x7f800000u : r;
  r = magnitude > 0x7f800000u ? (magnitude | 0x00400000u) : r;
  return bits_to_float(r | (u & 0x80000000u));
}

static inline float bfloat_to_float(uint16_t h) { return bits_to_float(static_cast<uint32_t>(h) << 16); }

static inline uint16_t float_to_bfloat(float a) {
  const uint32_t u = float_to_bits(a);
  const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16 | 0x40u) : rounded);
}

static inline float of_round_bf16(float a) { return bfloat_to_float(float_to_bfloat(a)); }
