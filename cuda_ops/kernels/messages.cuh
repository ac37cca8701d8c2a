// Messages between the blocks of a cluster that take rows in turns (sm_90 and later). A message counts the bytes that
// it brings at a barrier of the receiver, so that nobody waits for more than what it needs: the cluster's own barrier
// would also wait for all that its threads have stored, down to the results of the row before.

DEVICE u32 shared_address(const void* address) { return static_cast<u32>(__cvta_generic_to_shared(address)); }
DEVICE u32 in_block(u32 address, u32 rank) {
  u32 other;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(address), "r"(rank));
  return other;
}

// By one thread of each block; then the cluster has to meet before the first message.
DEVICE void prepare_arrivals(u64* barriers, int count) {
  for (int i = 0; i < count; ++i) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(shared_address(barriers + i)) : "memory");
  }
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}
// By one thread of each block: how many bytes this turn's messages bring. Some may have come already.
DEVICE void expect_arrivals(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// Until they are there. A barrier's turns have parity 0, 1, 0, ...
DEVICE void wait_for_arrivals(u64* barrier, u32 parity) {
  u32 complete = 0;
  while (complete == 0) {
    asm volatile(
        "{\n"
        "  .reg .pred done;\n"
        "  mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "  selp.u32 %0, 1, 0, done;\n"
        "}"
        : "=r"(complete)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}
// Stores where `address`, in this block's shared memory, would be in that of block `rank`, and counts it at its
// barrier.
template <class T>
DEVICE void send(T* address, u32 rank, T value, u64* barrier) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a message has 4 or 8 bytes");
  const u32 other = in_block(shared_address(address), rank), counter = in_block(shared_address(barrier), rank);
  const T values[1] = {value};
  Raw<sizeof(T)> raw;
  Element<T>::put(raw.word, values);
  if constexpr (sizeof(T) == 8) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];"
                 :
                 : "r"(other), "r"(raw.word[0]), "r"(raw.word[1]), "r"(counter)
                 : "memory");
  } else {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                 :
                 : "r"(other), "r"(raw.word[0]), "r"(counter)
                 : "memory");
  }
}
DEVICE u64 pair_of(f32 first, f32 second) {
  return static_cast<u64>(__float_as_uint(second)) << 32 | __float_as_uint(first);
}
