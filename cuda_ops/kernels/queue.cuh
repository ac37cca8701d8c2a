// The work queue of a launch whose blocks outlive their first tile.

// Numbers of the tiles that no block has taken yet, one queue for each stream that uses the kernel. All are 0 between
// launches: as many numbers are drawn as there are tiles, and whoever draws the last one begins anew.
constexpr int QUEUES = 64;
__device__ u32 queue_heads[QUEUES];
DEVICE u32 draw_tile(int queue, u32 tile, u32 tiles) {
  if (queue < 0) return tile + gridDim.x;  // every stream beyond QUEUES: tiles in turns
  const u32 drawn = atomicAdd(queue_heads + queue, 1u);
  if (drawn == tiles - 1) queue_heads[queue] = 0;
  return gridDim.x + drawn;
}
