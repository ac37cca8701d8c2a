// Copies from global to shared memory that go on while the thread does other work (before sm_80, they do not). A thread
// reads only what it has copied itself: so waiting for its own copies is enough.

template <int BYTES>
DEVICE void copy_ahead(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  const u32 address = static_cast<u32>(__cvta_generic_to_shared(shared));
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(address), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" : : "r"(address), "l"(global), "n"(BYTES) : "memory");
  }
#else
  store<BYTES>(shared, load<BYTES>(global));
#endif
}
// Those since the last call make a group.
DEVICE void end_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}
// Until all groups but the newest GROUPS are there.
template <int GROUPS>
DEVICE void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" : : "n"(GROUPS) : "memory");
#endif
}
