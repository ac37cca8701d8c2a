// Text with indentation that follows its braces.
#pragma once

#include <string>

namespace onnxfuse::cuda {

class Writer {
 public:
  // A line that ends in "{" opens a block, one that starts with "}" closes one.
  void line(const std::string& text) {
    if (text.front() == '}') --depth_;
    text_ += (text.front() == '#' ? "" : std::string(2 * depth_, ' ')) + text + "\n";
    if (text.back() == '{') ++depth_;
  }
  void unrolled(const std::string& loop) {
    line("#pragma unroll");
    line(loop);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_ = 0;
};

}  // namespace onnxfuse::cuda
