// Conversion of f16 and bf16, and loads and stores of 1 to 16 bytes that hold several elements of a tensor.

DEVICE float f16_to_float(u16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
DEVICE float bf16_to_float(u16 bits) { return __uint_as_float(static_cast<u32>(bits) << 16); }

DEVICE u16 float_to_f16(float value) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
DEVICE u16 float_to_bf16(float value) {
#if __CUDA_ARCH__ >= 800
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  if (value != value) return 0x7fff;
  const u32 word = __float_as_uint(value);
  return static_cast<u16>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
#endif
}
// Two values in one word, the first in its lower half.
DEVICE u32 floats_to_f16x2(float first, float second) {
#if __CUDA_ARCH__ >= 800
  u32 word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
#else
  return float_to_f16(first) | static_cast<u32>(float_to_f16(second)) << 16;
#endif
}
DEVICE u32 floats_to_bf16x2(float first, float second) {
#if __CUDA_ARCH__ >= 800
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
#else
  return float_to_bf16(first) | static_cast<u32>(float_to_bf16(second)) << 16;
#endif
}
DEVICE float of_round_f16(float value) { return f16_to_float(float_to_f16(value)); }
DEVICE float of_round_bf16(float value) { return bf16_to_float(float_to_bf16(value)); }

// BYTES (1, 2, 4, 8 or 16) of a tensor in registers.
template <int BYTES>
struct Raw {
  u32 word[BYTES < 4 ? 1 : BYTES / 4] = {};
};

// Makes the compiler forget what it knows of the elements, so that it converts them again rather than keeps them twice.
template <int BYTES>
DEVICE void forget(Raw<BYTES>& raw) {
#pragma unroll
  for (u32& word : raw.word) asm("" : "+r"(word));
}

template <int BYTES>
DEVICE Raw<BYTES> load(const void* address) {
  Raw<BYTES> raw;
  if constexpr (BYTES == 16) {
    const uint4 v = *static_cast<const uint4*>(address);
    raw.word[0] = v.x, raw.word[1] = v.y, raw.word[2] = v.z, raw.word[3] = v.w;
  } else if constexpr (BYTES == 8) {
    const uint2 v = *static_cast<const uint2*>(address);
    raw.word[0] = v.x, raw.word[1] = v.y;
  } else if constexpr (BYTES == 4) {
    raw.word[0] = *static_cast<const u32*>(address);
  } else if constexpr (BYTES == 2) {
    raw.word[0] = *static_cast<const u16*>(address);
  } else {
    raw.word[0] = *static_cast<const u8*>(address);
  }
  return raw;
}
// The same through the read-only path, for what no thread of the kernel writes.
template <int BYTES>
DEVICE Raw<BYTES> load_constant(const void* address) {
  Raw<BYTES> raw;
  if constexpr (BYTES == 16) {
    const uint4 v = __ldg(static_cast<const uint4*>(address));
    raw.word[0] = v.x, raw.word[1] = v.y, raw.word[2] = v.z, raw.word[3] = v.w;
  } else if constexpr (BYTES == 8) {
    const uint2 v = __ldg(static_cast<const uint2*>(address));
    raw.word[0] = v.x, raw.word[1] = v.y;
  } else if constexpr (BYTES == 4) {
    raw.word[0] = __ldg(static_cast<const u32*>(address));
  } else if constexpr (BYTES == 2) {
    raw.word[0] = __ldg(static_cast<const u16*>(address));
  } else {
    raw.word[0] = __ldg(static_cast<const u8*>(address));
  }
  return raw;
}
template <int BYTES>
DEVICE void store(void* address, const Raw<BYTES>& raw) {
  if constexpr (BYTES == 16) {
    *static_cast<uint4*>(address) = make_uint4(raw.word[0], raw.word[1], raw.word[2], raw.word[3]);
  } else if constexpr (BYTES == 8) {
    *static_cast<uint2*>(address) = make_uint2(raw.word[0], raw.word[1]);
  } else if constexpr (BYTES == 4) {
    *static_cast<u32*>(address) = raw.word[0];
  } else if constexpr (BYTES == 2) {
    *static_cast<u16*>(address) = static_cast<u16>(raw.word[0]);
  } else {
    *static_cast<u8*>(address) = static_cast<u8>(raw.word[0]);
  }
}

// How an element type stands in words: get(words, lane) reads one element, put(words, values) writes all.
template <class S>
struct Element {
  using Value = S;
  DEVICE Value get(const u32* word, int lane) {
    if constexpr (sizeof(S) == 8) {
      const u64 bits = word[2 * lane] | static_cast<u64>(word[2 * lane + 1]) << 32;
      return from_bits(bits);
    } else if constexpr (sizeof(S) == 4) {
      return from_bits(word[lane]);
    } else if constexpr (sizeof(S) == 2) {
      return static_cast<S>(word[lane / 2] >> (16 * (lane % 2)));
    } else {
      return static_cast<S>((word[lane / 4] >> (8 * (lane % 4))) & 0xff);
    }
  }
  template <int LANES>
  DEVICE void put(u32* word, const Value (&value)[LANES]) {
    constexpr int PER_WORD = sizeof(S) < 4 ? 4 / sizeof(S) : 1;
    if constexpr (sizeof(S) < 4) {
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) {
        const u32 bits = sizeof(S) == 1 ? static_cast<u8>(value[lane]) : static_cast<u16>(value[lane]);
        word[lane / PER_WORD] |= bits << (8 * sizeof(S) * (lane % PER_WORD));
      }
    } else {
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) {
        const auto bits = to_bits(value[lane]);
        word[lane * (sizeof(S) / 4)] = static_cast<u32>(bits);
        if constexpr (sizeof(S) == 8) word[2 * lane + 1] = static_cast<u32>(bits >> 32);
      }
    }
  }

 private:
  template <class B>
  DEVICE S from_bits(B bits) {
    if constexpr (sizeof(S) == 4 && S(0.5f) != S(0)) {
      return __uint_as_float(bits);
    } else if constexpr (sizeof(S) == 8 && S(0.5f) != S(0)) {
      return __longlong_as_double(bits);
    } else {
      return static_cast<S>(bits);
    }
  }
  DEVICE auto to_bits(S value) {
    if constexpr (sizeof(S) == 4 && S(0.5f) != S(0)) {
      return __float_as_uint(value);
    } else if constexpr (sizeof(S) == 8 && S(0.5f) != S(0)) {
      return static_cast<u64>(__double_as_longlong(value));
    } else {
      return static_cast<u64>(value);
    }
  }
};
template <>
struct Element<bool> {
  using Value = bool;
  DEVICE bool get(const u32* word, int lane) { return ((word[lane / 4] >> (8 * (lane % 4))) & 0xff) != 0; }
  template <int LANES>
  DEVICE void put(u32* word, const bool (&value)[LANES]) {
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) word[lane / 4] |= static_cast<u32>(value[lane]) << (8 * (lane % 4));
  }
};
template <>
struct Element<f16> {
  using Value = float;
  DEVICE float get(const u32* word, int lane) {
    return f16_to_float(static_cast<u16>(word[lane / 2] >> (16 * (lane % 2))));
  }
  template <int LANES>
  DEVICE void put(u32* word, const float (&value)[LANES]) {
    if constexpr (LANES == 1) {
      word[0] = float_to_f16(value[0]);
    } else {
#pragma unroll
      for (int lane = 0; lane < LANES; lane += 2) word[lane / 2] = floats_to_f16x2(value[lane], value[lane + 1]);
    }
  }
};
template <>
struct Element<bf16> {
  using Value = float;
  DEVICE float get(const u32* word, int lane) {
    return bf16_to_float(static_cast<u16>(word[lane / 2] >> (16 * (lane % 2))));
  }
  template <int LANES>
  DEVICE void put(u32* word, const float (&value)[LANES]) {
    if constexpr (LANES == 1) {
      word[0] = float_to_bf16(value[0]);
    } else {
#pragma unroll
      for (int lane = 0; lane < LANES; lane += 2) word[lane / 2] = floats_to_bf16x2(value[lane], value[lane + 1]);
    }
  }
};

// The first `lanes` of LANES elements from address on, the rest zero; LANES of them in one access.
template <class S, int LANES>
DEVICE Raw<int(sizeof(S)) * LANES> load_first(const S* address, int lanes) {
  if (lanes >= LANES) return load<int(sizeof(S)) * LANES>(address);
  Raw<int(sizeof(S)) * LANES> raw;
  constexpr int WORDS = sizeof(S) < 4 ? 1 : sizeof(S) / 4;
#pragma unroll
  for (int lane = 0; lane < LANES; ++lane) {
    if (lane < lanes) {
      const auto one = load<sizeof(S)>(address + lane);
      if constexpr (sizeof(S) < 4) {
        constexpr int PER_WORD = 4 / sizeof(S);
        raw.word[lane / PER_WORD] |= one.word[0] << (8 * sizeof(S) * (lane % PER_WORD));
      } else {
#pragma unroll
        for (int k = 0; k < WORDS; ++k) raw.word[lane * WORDS + k] = one.word[k];
      }
    }
  }
  return raw;
}
template <class S, int BYTES>
DEVICE auto get(const Raw<BYTES>& raw, int lane) {
  return Element<S>::get(raw.word, lane);
}
template <class S>
DEVICE auto load_one(const S* address) {
  return get<S>(load<sizeof(S)>(address), 0);
}
template <class S>
DEVICE auto load_one_constant(const S* address) {
  return get<S>(load_constant<sizeof(S)>(address), 0);
}
template <class S>
DEVICE void store_one(S* address, typename Element<S>::Value value) {
  const typename Element<S>::Value values[1] = {value};
  Raw<sizeof(S)> raw;
  Element<S>::put(raw.word, values);
  store<sizeof(S)>(address, raw);
}
template <class S, int LANES>
DEVICE void store_all(S* address, const typename Element<S>::Value (&values)[LANES]) {
  Raw<int(sizeof(S)) * LANES> raw;
  Element<S>::put(raw.word, values);
  store<int(sizeof(S)) * LANES>(address, raw);
}
template <class S, int LANES>
DEVICE void store_first(S* address, const typename Element<S>::Value (&values)[LANES], int lanes) {
  if (lanes >= LANES) {
    store_all<S, LANES>(address, values);
  } else {
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) {
      if (lane < lanes) store_one<S>(address + lane, values[lane]);
    }
  }
}
