// Two reductions of which the second needs the first, where threads of several warps share a row: one exchange between
// the warps instead of two. Each warp goes on with what its own elements have: with their mean, and takes the squared
// deviations from it; with their maximum, and adds up exponentials relative to it.
//
// Measured on an H200: in fp16, LayerNorm over 4096, 16384 and 131072 gains (0.90 to 0.94, 0.85 to 0.91 and 0.56 to
// 0.63 of a copy's speed), softmax over 16384 and 131072 too (0.88 to 0.93, 0.59 to 0.62). In fp32, LayerNorm gains a
// hundredth over 4096, and loses two over 16384, where the elements fill a thread's registers. Many rows of 131072 are
// taken in turns since (body_rows.cc).
#include <algorithm>

#include "body.h"

namespace onnxfuse::cuda {

bool BodyWriter::shares_row_between_warps() const {
  return row() && stages_.scans.empty() && schedule_.resident && schedule_.splits == 1 && schedule_.group > 32;
}

bool BodyWriter::joins_moments() const { return stages_.moments.variance >= 0 && shares_row_between_warps(); }

// A factor for each warp is one more rounding, and one more exponential's error.
bool BodyWriter::joins_softmax() const {
  const Stages::Softmax& softmax = stages_.softmax;
  return softmax.sum >= 0 && shares_row_between_warps() && fast_.exponential[softmax.exponential];
}

// Exponentials that only end up in quotients with their sum may have a factor, in the sum too.
bool BodyWriter::raises_exponentials() const {
  if (!joins_softmax()) return false;
  const int exponential = stages_.softmax.exponential, sum = stages_.softmax.sum;
  for (size_t i = 0; i < kernel_.statements.size(); ++i) {
    const Statement& s = kernel_.statements[i];
    const bool quotient = s.op == Op::op_div && s.operands[0] == exponential && s.operands[1] == sum;
    if (static_cast<int>(i) == sum || (quotient && fast_.division[i])) continue;
    for (int k = 0; k < s.operand_count; ++k) {
      if (s.operands[k] == exponential) return false;
    }
  }
  return std::none_of(kernel_.outputs.begin(), kernel_.outputs.end(),
                      [&](const Output& output) { return output.value == exponential; });
}

bool BodyWriter::divides_raised(int i) const {
  return statement(i).op == Op::op_div && statement(i).operands[0] == stages_.softmax.exponential &&
         raises_exponentials();
}

// What stands for the first reduction's result until the exchange.
void BodyWriter::write_warp_result() {
  if (joins_moments()) {
    const std::string n = std::to_string(stages_.moments.mean);
    out_.line("const f32 held" + n + " = static_cast<f32>(elements_of_warp<" + slots() + ", " +
              std::to_string(schedule_.group) + ", " + lanes() + ">(t / 32, length));");
    out_.line("f32 v" + n + " = reduce_warp<Sum, 32>(reduce_lanes<Sum>(sum" + n + "));");
    out_.line("v" + n + " = held" + n + " > 0 ? v" + n + " / held" + n + " : 0;");
  } else {
    const std::string n = std::to_string(stages_.softmax.maximum);
    out_.line("const f32 own" + n + " = reduce_warp<Maximum, 32>(reduce_lanes<Maximum>(sum" + n + "));");
    out_.line("f32 v" + n + " = finite_maximum(own" + n + ");");
  }
}

void BodyWriter::write_exchange() {
  const bool moments = joins_moments();
  const int first = moments ? stages_.moments.mean : stages_.softmax.maximum;
  const int second = moments ? stages_.moments.variance : stages_.softmax.sum;
  const std::string m = std::to_string(first), n = std::to_string(second);
  const std::string warps = std::to_string(schedule_.group / 32);
  const std::string parts[2][2] = {{"firsts" + n, (moments ? "v" : "own") + m},
                                   {"seconds" + n, "reduce_warp<Sum, 32>(reduce_lanes<Sum>(sum" + n + "))"}};
  if (in_turns()) {
    out_.line("const u64 pair" + n + " = pair_of(" + parts[0][1] + ", " + parts[1][1] + ");");
    write_messages(second, "reinterpret_cast<u64*>(" + exchanged("pairs" + n) + ") + t / 32", "pair" + n, 8);
    return;
  }
  for (const auto& [name, value] : parts) {
    out_.line("__shared__ f32 " + name + "[" + warps + "];");
    out_.line("const f32 my_" + name + " = " + value + ";");
  }
  if (schedule_.cluster > 1) {
    if (!cluster_ready_) out_.line("cluster_wait();");
    cluster_ready_ = true;
    out_.line("if (threadIdx.x % 32 < " + std::to_string(schedule_.cluster) + ") {");
    for (const auto& part : parts) {
      out_.line("store_cluster(" + part[0] + " + t / 32, threadIdx.x % 32, my_" + part[0] + ");");
    }
    out_.line("}");
    out_.line("cluster_arrive();");
    out_.line("cluster_wait();");
  } else {
    out_.line("if (t % 32 == 0) {");
    for (const auto& part : parts) out_.line(part[0] + "[t / 32] = my_" + part[0] + ";");
    out_.line("}");
    write_block_barrier();
  }
  write_exchanged();
}

// What the warps' parts come to.
void BodyWriter::write_exchanged() {
  const bool moments = joins_moments();
  const int first = moments ? stages_.moments.mean : stages_.softmax.maximum;
  const int second = moments ? stages_.moments.variance : stages_.softmax.sum;
  const std::string m = std::to_string(first), n = std::to_string(second);
  const std::string warps = std::to_string(schedule_.group / 32), stride = in_turns() ? ", 2" : ", 1";
  std::string firsts = "firsts" + n, seconds = "seconds" + n;
  if (in_turns()) {
    write_wait_for_messages(second);
    firsts = exchanged("pairs" + n), seconds = firsts + " + 1";
  }
  // Where that is all the storing pass waits for, clusters that take rows in turns come here with the next row at work.
  const std::string kind = in_turns() && stages_.passes == 2 ? "const f32 v" : "v";
  if (moments) {
    out_.line("const Moments all" + n + " = combine_moments<" + warps + ", " + slots() + ", " +
              std::to_string(schedule_.group) + ", " + lanes() + stride + ">(" + firsts + ", " + seconds +
              ", length);");
    out_.line(kind + m + " = all" + n + ".mean;");
    const bool mean = statement(second).op == Op::op_reduce_mean;
    out_.line("const f32 v" + n + " = all" + n + ".squares" + (mean ? " / static_cast<f32>(length);" : ";"));
  } else {
    out_.line("const Exponentials all" + n + " = combine_exponentials<" + warps + stride + ">(" + firsts + ", " +
              seconds + ");");
    out_.line(kind + m + " = all" + n + ".maximum;");
    out_.line("const f32 v" + n + " = all" + n + ".sum" + (raises_exponentials() ? " * 0x1p-24f;" : ";"));
    if (raises_exponentials()) out_.line("const f32 inverse" + n + " = 1.0f / all" + n + ".sum;");
    out_.line("const f32 factor" + std::to_string(stages_.softmax.exponential) + " = exponential_factor(own" + m +
              ", v" + m + ");");
  }
}

}  // namespace onnxfuse::cuda
