// Arguments: reductions of pairs of a value and its index.

template <class V, class I>
struct Indexed {
  V value;
  I index;
};
template <class V, class I>
DEVICE Indexed<V, I> shuffle(Indexed<V, I> pair, int mask) {
  return {shuffle(pair.value, mask), shuffle(pair.index, mask)};
}
template <class V, class I>
DEVICE void store_cluster(Indexed<V, I>* address, u32 rank, Indexed<V, I> pair) {
  store_cluster(&address->value, rank, pair.value);
  store_cluster(&address->index, rank, pair.index);
}

struct Greatest {
  template <class V>
  DEVICE V worst(V) {
    return lowest(V());
  }
  template <class V>
  DEVICE bool at_most(V a, V b) {
    return a <= b;
  }
};
struct Smallest {
  template <class V>
  DEVICE V worst(V) {
    return highest(V());
  }
  template <class V>
  DEVICE bool at_most(V a, V b) {
    return a >= b;
  }
};

// The best value with its index; a NaN is better than any number. LAST: of equal ones the last, else the first.
template <class Order, bool LAST>
struct Argument {
  template <class T>
  DEVICE T identity() {
    T nothing;
    nothing.value = Order::worst(nothing.value);
    nothing.index = LAST ? -1 : highest(nothing.index);
    return nothing;
  }
  template <class T>
  DEVICE T apply(T a, T b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool equal = a.value == b.value || (a_nan && b_nan);
    const bool later = LAST ? b.index > a.index : b.index < a.index;
    return (equal ? later : !a_nan && !Order::at_most(b.value, a.value)) ? b : a;
  }
  // The same for a b that stands behind a, at less cost. A first one that is no better than nothing is not noted: as
  // all are equal then, result() knows its index.
  template <class T>
  DEVICE T append(T a, T b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (LAST) return b_nan || (!a_nan && Order::at_most(a.value, b.value)) ? b : a;
    return !a_nan && !Order::at_most(b.value, a.value) ? b : a;
  }
  template <class T>
  DEVICE i64 result(T best) {
    return best.index < 0 || best.index == highest(best.index) ? 0 : best.index;
  }
};
