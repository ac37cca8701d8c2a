// What every launch begins with.

// Programmatic dependent launch (sm_90 and later) starts the blocks while the kernels before still run: until they are
// complete and what they wrote can be seen, nothing may touch memory. Every thread of every kernel waits, so a kernel
// is complete only after all that came before it.
DEVICE void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}
