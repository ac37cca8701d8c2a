// An array whose size is known when it is made, in place where it is small: a node that runs for a microsecond asks no
// allocator for memory.
#pragma once

#include <cstddef>
#include <memory>

namespace onnxfuse {

// The elements are not initialized.
template <class T, size_t kInline>
class InlineBuffer {
 public:
  explicit InlineBuffer(size_t size) : size_(size), more_(size > kInline ? new T[size] : nullptr) {}

  T* data() { return more_ ? more_.get() : few_; }
  T& operator[](size_t i) { return data()[i]; }
  size_t size() const { return size_; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }

 private:
  size_t size_;
  T few_[kInline];
  std::unique_ptr<T[]> more_;
};

}  // namespace onnxfuse
