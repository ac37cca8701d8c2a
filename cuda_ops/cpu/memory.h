// Registers, buffers and addresses of a plan, handed out while its code is written.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "analysis.h"
#include "plan.h"

namespace onnxfuse::cpu {

class Memory {
 public:
  explicit Memory(KernelPlan& plan) : plan_(plan) {}

  uint16_t constant(uint64_t bits);
  uint16_t buffer(size_t size, Form form);  // for elements of this size
  uint16_t bytes(size_t count) { return new_register(Register::Kind::arena, reserve(count)); }
  // Buffers that are given back; of the code written since forget_temporaries.
  uint16_t take_temporary(size_t size, Form form);
  void give_back(uint16_t reg, size_t size, Form form) { free_[{size, form}].push_back(reg); }
  void forget_temporaries() { free_.clear(); }

  // Return an index of the plan's addresses.
  uint16_t address(const Access& access, Address::Base base, int tensor, size_t size);
  uint16_t kept_address(size_t size);  // memory for a value at all points of an item
  uint16_t register_of(uint16_t address) const { return plan_.addresses[address].reg; }

  // Copies from a tensor into a tile's order, or back from it; in the tile only the dimensions of the form. Return an
  // index of the plan's patterns.
  uint16_t gather(const Access& access, size_t size, Form form);
  uint16_t scatter(const Access& access, size_t size, Form form);

  size_t kept_bytes() const { return kept_bytes_; }

 private:
  uint16_t new_register(Register::Kind kind, size_t offset);
  size_t reserve(size_t bytes);
  uint16_t pattern(const Access& access, size_t size, Form form, bool into_tile);

  KernelPlan& plan_;
  std::map<std::pair<size_t, Form>, std::vector<uint16_t>> free_;
  size_t kept_bytes_ = 0;
};

}  // namespace onnxfuse::cpu
