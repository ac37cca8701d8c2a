// Exchange between the blocks of a cluster, through each other's shared memory (sm_90 and later).

// All threads of all blocks arrive before any passes the wait; what they stored before is visible behind it.
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Stores where `address`, in this block's shared memory, would be in that of block `rank`.
template <class T>
DEVICE void store_cluster(T* address, u32 rank, T value) {
  const u32 own = static_cast<u32>(__cvta_generic_to_shared(address));
  u32 other;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(own), "r"(rank));
  const Raw<sizeof(T)> raw = [&] {
    const T values[1] = {value};
    Raw<sizeof(T)> bits;
    Element<T>::put(bits.word, values);
    return bits;
  }();
  if constexpr (sizeof(T) == 8) {
    asm volatile("st.shared::cluster.v2.b32 [%0], {%1, %2};"
                 :
                 : "r"(other), "r"(raw.word[0]), "r"(raw.word[1])
                 : "memory");
  } else {
    asm volatile("st.shared::cluster.b32 [%0], %1;" : : "r"(other), "r"(raw.word[0]) : "memory");
  }
}
