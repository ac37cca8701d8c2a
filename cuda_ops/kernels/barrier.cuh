// Barriers that only some warps of a block take part in, numbered from 1 to 15; 0 is that of __syncthreads().

// Waits until `threads` threads, this warp's own among them, have arrived.
DEVICE void sync_at(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}
// Arrives, after what it has written to shared memory, and goes on.
DEVICE void arrive_at(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}
