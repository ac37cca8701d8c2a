// Division by numbers that are known on the host only: quotient of n < 2^31 by a divisor of at least 2.
struct Divisor {
  u32 value;
  u32 factor;
  u32 shift;
};
DEVICE u32 operator/(u32 n, const Divisor& d) { return __umulhi(n, d.factor) >> d.shift; }
