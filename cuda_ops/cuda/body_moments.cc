// A mean and the mean of the squared deviations from it, where threads of several warps share a row: one exchange
// between them instead of two. Each warp takes the deviations from the mean of what it holds.
#include "body.h"

namespace onnxfuse::cuda {

// Measured on an H200: LayerNorm over 4096, 16384 and 131072 in fp16 gains (0.90 to 0.94, 0.85 to 0.91 and 0.56 to 0.63
// of a copy's speed). In fp32 it gains a hundredth over 4096; over 16384, where a thread's registers are full of
// elements, the correction for rounded means costs two.
bool BodyWriter::joins_moments() const {
  const bool shared = row() && schedule_.resident && schedule_.splits == 1 && schedule_.group > 32;
  return shared && stages_.moments.variance >= 0 && (schedule_.slots <= 4 || !corrects_moments());
}

std::string BodyWriter::moments_template() const {
  return slots() + ", " + std::to_string(schedule_.group) + ", " + lanes();
}

// The deviations of 16-bit elements need no correction for the rounding of the warp's mean: 2^-24 of it is little
// beside the rounding of the elements themselves.
bool BodyWriter::corrects_moments() const {
  const int deviation = stages_.moments.deviation;
  for (int k = 0; k < 2; ++k) {
    const int operand = statement(deviation).operands[k];
    if (statement(operand).op == Op::input && is_16bit_float(plan_.inputs[operand].storage)) return false;
  }
  return true;
}

// The mean of the warp's elements stands for the row's until the exchange.
void BodyWriter::write_warp_mean() {
  const std::string n = std::to_string(stages_.moments.mean);
  out_.line("const f32 warp" + n + " = static_cast<f32>(elements_of_warp<" + moments_template() +
            ">(t / 32, length));");
  out_.line("f32 v" + n + " = reduce_warp<Sum, 32>(reduce_lanes<Sum>(sum" + n + "));");
  out_.line("v" + n + " = warp" + n + " > 0 ? v" + n + " / warp" + n + " : 0;");
}

void BodyWriter::declare_rests() {
  const std::string n = std::to_string(stages_.moments.variance);
  out_.line("f32 rest" + n + " = 0;");
}

void BodyWriter::write_moments() {
  const Stages::Moments& moments = stages_.moments;
  const std::string m = std::to_string(moments.mean), n = std::to_string(moments.variance);
  const bool rests = corrects_moments();
  struct Part {
    std::string name, value;
  };
  std::vector<Part> parts = {{"means" + n, "v" + m},
                             {"squares" + n, "reduce_warp<Sum, 32>(reduce_lanes<Sum>(sum" + n + "))"}};
  if (rests) parts.push_back({"rests" + n, "reduce_warp<Sum, 32>(rest" + n + ")"});
  const std::string warps = std::to_string(schedule_.group / 32);
  for (const Part& part : parts) {
    out_.line("__shared__ f32 " + part.name + "[" + warps + "];");
    out_.line("const f32 own_" + part.name + " = " + part.value + ";");
  }
  if (schedule_.cluster > 1) {
    if (!cluster_ready_) out_.line("cluster_wait();");
    cluster_ready_ = true;
    out_.line("if (threadIdx.x % 32 < " + std::to_string(schedule_.cluster) + ") {");
    for (const Part& part : parts) {
      out_.line("store_cluster(" + part.name + " + t / 32, threadIdx.x % 32, own_" + part.name + ");");
    }
    out_.line("}");
    out_.line("cluster_arrive();");
    out_.line("cluster_wait();");
  } else {
    out_.line("if (t % 32 == 0) {");
    for (const Part& part : parts) out_.line(part.name + "[t / 32] = own_" + part.name + ";");
    out_.line("}");
    out_.line("__syncthreads();");
  }
  out_.line("const Moments all" + n + " = combine_moments<" + warps + ", " + moments_template() +
            (rests ? ", true>(" : ", false>(") + "means" + n + ", squares" + n + ", " +
            (rests ? "rests" + n : "nullptr") + ", length);");
  out_.line("v" + m + " = all" + n + ".mean;");
  const bool mean = statement(moments.variance).op == Op::op_reduce_mean;
  out_.line("const f32 v" + n + " = all" + n + ".squares" + (mean ? " / static_cast<f32>(length);" : ";"));
}

}  // namespace onnxfuse::cuda
