#include "memory.h"

#include <stdexcept>

namespace onnxfuse::cpu {
namespace {

constexpr size_t kAlignment = 64;

// Adds the next dimension outwards, merged with the last one where both strides allow.
void add_dim(CopyPattern& p, CopyDim outer) {
  if (!p.dims.empty()) {
    CopyDim& inner = p.dims.front();
    if (outer.out_stride == inner.out_stride * inner.extent && outer.in_stride == inner.in_stride * inner.extent) {
      inner.extent *= outer.extent;
      return;
    }
  }
  p.dims.insert(p.dims.begin(), outer);
}

}  // namespace

uint16_t Memory::new_register(Register::Kind kind, size_t offset) {
  if (plan_.registers.size() >= 0xffff) throw std::runtime_error("the program needs too many registers");
  plan_.registers.push_back({kind, offset});
  return static_cast<uint16_t>(plan_.registers.size() - 1);
}

size_t Memory::reserve(size_t bytes) {
  const size_t offset = plan_.arena_bytes;
  plan_.arena_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

uint16_t Memory::constant(uint64_t bits) {
  plan_.constants.push_back(bits);
  return new_register(Register::Kind::constant, plan_.constants.size() - 1);
}

uint16_t Memory::buffer(size_t size, Form form) {
  int64_t elements = 1;
  if (form & kRows) elements *= plan_.layout.block;
  if (form & kInner) elements *= plan_.layout.inner;
  return new_register(Register::Kind::arena, reserve(size * static_cast<size_t>(elements)));
}

uint16_t Memory::take_temporary(size_t size, Form form) {
  std::vector<uint16_t>& free = free_[{size, form}];
  if (free.empty()) {
    const uint16_t reg = buffer(size, form);
    plan_.registers[reg].temporary = true;
    return reg;
  }
  const uint16_t reg = free.back();
  free.pop_back();
  return reg;
}

uint16_t Memory::address(const Access& access, Address::Base base, int tensor, size_t size) {
  const Layout& layout = plan_.layout;
  const int64_t bytes = static_cast<int64_t>(size);
  const auto stride = [&](const Dim& d) {
    return d.extent == 1 ? 0 : access.strides[static_cast<size_t>(d.innermost)] * bytes;
  };
  Address a;
  a.base = base;
  a.tensor = tensor;
  a.offset = access.offset * bytes;
  a.reg = new_register(Register::Kind::address, 0);
  if (!layout.tile.empty()) a.block = stride(layout.tile[0]) * layout.block;
  for (const Dim& d : layout.grid) a.grid.push_back(stride(d));
  for (const Dim& d : layout.loop) a.loop.push_back(stride(d));
  plan_.addresses.push_back(a);
  return static_cast<uint16_t>(plan_.addresses.size() - 1);
}

uint16_t Memory::kept_address(size_t size) {
  const Layout& layout = plan_.layout;
  Address a;
  a.base = Address::Base::arena;
  a.reg = new_register(Register::Kind::address, 0);
  int64_t bytes = static_cast<int64_t>(size) * layout.inner;
  if (layout.item_is_point()) {
    a.block = bytes * layout.block;
    bytes *= layout.tile_extent;
  } else {
    bytes *= layout.block;
  }
  a.grid.assign(layout.grid.size(), 0);
  a.loop.resize(layout.loop.size());
  for (size_t d = a.loop.size(); d-- > 0;) {
    a.loop[d] = bytes;
    bytes *= layout.loop[d].extent;
  }
  a.offset = static_cast<int64_t>(reserve(static_cast<size_t>(bytes)));
  kept_bytes_ += static_cast<size_t>(bytes);
  plan_.addresses.push_back(a);
  return static_cast<uint16_t>(plan_.addresses.size() - 1);
}

uint16_t Memory::pattern(const Access& access, size_t size, Form form, bool into_tile) {
  const Layout& layout = plan_.layout;
  CopyPattern p;
  p.size = size;
  p.per_block = false;
  int64_t compact = static_cast<int64_t>(size);
  for (size_t d = layout.tile.size(); d-- > 0;) {
    const Dim& dim = layout.tile[d];
    if ((form & (d == 0 ? kRows : kInner)) == 0) continue;
    const int64_t stride = access.strides[static_cast<size_t>(dim.innermost)] * static_cast<int64_t>(size);
    const int64_t extent = d == 0 ? 1 : dim.extent;  // of the first, the executor knows the indices in a block
    if (into_tile) {
      add_dim(p, {extent, compact, stride});
    } else if (stride != 0) {  // along a dimension that the tensor lacks, index 0 is stored
      add_dim(p, {extent, stride, compact});
    }
    if (d == 0) p.per_block = into_tile || stride != 0;
    compact *= dim.extent;
  }
  plan_.patterns.push_back(p);
  return static_cast<uint16_t>(plan_.patterns.size() - 1);
}

uint16_t Memory::gather(const Access& access, size_t size, Form form) { return pattern(access, size, form, true); }

uint16_t Memory::scatter(const Access& access, size_t size, Form form) { return pattern(access, size, form, false); }

}  // namespace onnxfuse::cpu
