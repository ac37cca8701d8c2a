// Exchange of values between the threads of a warp, all of which take part. GROUP neighbours, a power of two up to 32,
// keep to themselves.

template <class T>
DEVICE T shuffle(T value, int mask) {
  if constexpr (sizeof(T) < 4) {
    return static_cast<T>(__shfl_xor_sync(0xffffffffu, static_cast<int>(value), mask));
  } else {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  }
}
// The value of the thread that comes `distance` earlier (REVERSE: later) in the group, where there is one.
template <int GROUP, bool REVERSE, class T>
DEVICE T shuffle_earlier(T value, int distance) {
  if constexpr (sizeof(T) < 4) {
    return static_cast<T>(shuffle_earlier<GROUP, REVERSE>(static_cast<int>(value), distance));
  } else if constexpr (REVERSE) {
    return __shfl_down_sync(0xffffffffu, value, distance, GROUP);
  } else {
    return __shfl_up_sync(0xffffffffu, value, distance, GROUP);
  }
}
// The value of one thread of the group.
template <int GROUP, class T>
DEVICE T shuffle_from(T value, int thread) {
  if constexpr (sizeof(T) < 4) {
    return static_cast<T>(__shfl_sync(0xffffffffu, static_cast<int>(value), thread, GROUP));
  } else {
    return __shfl_sync(0xffffffffu, value, thread, GROUP);
  }
}
