// Checks the CPU engine without Python and ONNX Runtime: for machines that are emulated and for the thread sanitizer.
// Functions against the C library in double, programs of every schedule against plain loops, the same bits with one
// thread and with many, and one engine called from many threads at once. Prints what fails; the exit status tells.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>

#include "engine.h"
#include "program.h"

namespace onnxfuse {
namespace {

using Floats = std::vector<float>;

class Threads final : public RunContext {
 public:
  explicit Threads(size_t count) : count_(count) {}

  void parallel_for(size_t tasks, const std::function<void(size_t)>& body) override {
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next++; i < tasks; i = next++) body(i);
    };
    std::vector<std::thread> threads;
    for (size_t t = 1; t < std::min(count_, tasks); ++t) threads.emplace_back(work);
    work();
    for (std::thread& t : threads) t.join();
  }
  void* stream() override { return nullptr; }
  void* scratch(size_t) override { return nullptr; }

 private:
  size_t count_;
};

// A program whose inputs are floats; outputs come back as bytes.
class Node {
 public:
  explicit Node(const std::string& text) : program_(parse_program(text)), engine_(make_cpu_engine(program_)) {}

  std::vector<std::vector<char>> run(const std::vector<Shape>& shapes, const std::vector<Floats>& inputs,
                                     size_t threads) const {
    const BoundProgram bound = bind(*program_, shapes);
    std::vector<TensorRef> in, out;
    for (const Floats& x : inputs) in.push_back({const_cast<float*>(x.data()), Type::f32});
    std::vector<std::vector<char>> results;
    for (size_t o = 0; o < program_->outputs.size(); ++o) {
      size_t bytes = type_size(program_->outputs[o].type);
      for (int64_t n : bound.output_shapes[o]) bytes *= static_cast<size_t>(n);
      results.emplace_back(bytes);
    }
    for (size_t o = 0; o < results.size(); ++o) out.push_back({results[o].data(), program_->outputs[o].type});
    Threads context(threads);
    engine_->run(bound, in, out, context);
    return results;
  }

 private:
  std::shared_ptr<const Program> program_;
  std::unique_ptr<Engine> engine_;
};

int checks = 0, failures = 0;

void expect(bool right, const std::string& what) {
  ++checks;
  if (right) return;
  ++failures;
  std::printf("FAILED: %s\n", what.c_str());
}

template <class T>
std::vector<T> as(const std::vector<char>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Floats normal(size_t n, double scale = 1) {
  static std::mt19937 random(7);
  std::normal_distribution<float> distribution(0, static_cast<float>(scale));
  Floats x(n);
  for (float& v : x) v = distribution(random);
  return x;
}

double ulps(float actual, double exact) {
  if (std::isnan(exact)) return std::isnan(actual) ? 0 : 1e9;
  if (actual == static_cast<float>(exact)) return 0;
  const int exponent = std::max(std::ilogb(exact), std::numeric_limits<float>::min_exponent - 1);
  return std::fabs(actual - exact) / std::ldexp(1.0, exponent - 23);
}

void check_function(const std::string& name, double (*exact)(double)) {
  Floats x = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 1e-40f, -1e-40f, 88.7f, -87.3f, -103.9f, 3e38f};
  for (double scale : {1e-3, 1.0, 5.0, 40.0})
    for (float v : normal(5000, scale)) x.push_back(v);
  const Node node("onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = " + name + " f32 %0\noutput 0 f32 [d0] %1\n");
  const Floats y = as<float>(node.run({{static_cast<int64_t>(x.size())}}, {x}, 1)[0]);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, ulps(y[i], exact(x[i])));
  expect(worst <= 4, name + " is " + std::to_string(worst) + " units in the last place off");
}

const char* const kProgram = R"(onnxfuse 1
space d0 | d1 | d2
%0 = input 0 f32 [d0, d1, d2]
%1 = reduce_max f32 %0
%2 = sub f32 %0 %1
%3 = exp f32 %2
%4 = reduce_sum f32 %3
%5 = div f32 %3 %4
%6 = scan_sum f32 %5
%7 = scan_sum exclusive f32 %0
%8 = reduce_argmax i64 %0
%9 = reduce_mean f32 %0
output 0 f32 [d0, d1, d2] %5
output 1 f32 [d0, d1, d2] %6
output 2 f32 [d0, d1, d2] %7
output 3 i64 [d0, d2] %8
output 4 f32 [d0, d2] %9
)";

const char* const kReverse = R"(onnxfuse 1
space d0 | d1 | d2
%0 = input 0 f32 [d0, d1, d2]
%1 = relu f32 %0
%2 = scan_sum reverse f32 %1
%3 = scan_min reverse f32 %0
output 0 f32 [d0, d1, d2] %2
output 1 f32 [d0, d1, d2] %3
)";

// Reductions alone, which columns may take in another order.
const char* const kColumns = R"(onnxfuse 1
space d0 | d1 | d2
%0 = input 0 f32 [d0, d1, d2]
%1 = reduce_max f32 %0
%2 = sub f32 %0 %1
%3 = exp f32 %2
%4 = reduce_sum f32 %3
%5 = div f32 %3 %4
%6 = reduce_mean f32 %0
output 0 f32 [d0, d1, d2] %5
output 1 f32 [d0, d2] %6
output 2 f32 [d0, d2] %1
)";

// Bools, and integers of 8 bits of floats.
const char* const kBytes = R"(onnxfuse 1
space d0
%0 = input 0 f32 [d0]
%1 = const f32 0.5
%2 = less bool %0 %1
%3 = neg f32 %0
%4 = greater bool %3 %1
%5 = or bool %2 %4
%6 = not bool %5
%7 = where f32 %6 %0 %3
%8 = cast f32 %6
%9 = sub f32 %7 %8
%10 = const f32 30.0
%11 = mul f32 %9 %10
%12 = round f32 %11
%13 = cast i8 %12
%14 = cast f32 %13
%15 = cast u8 %14
%16 = cast f32 %15
output 0 bool [d0] %6
output 1 f32 [d0] %7
output 2 i8 [d0] %13
output 3 f32 [d0] %16
)";

bool near(double a, double b) { return std::fabs(a - b) <= 2e-5 * std::max(1.0, std::fabs(b)); }

void check_rows(int64_t outer, int64_t n, int64_t inner) {
  const std::string shape = std::to_string(outer) + " x " + std::to_string(n) + " x " + std::to_string(inner);
  const Floats x = normal(static_cast<size_t>(outer * n * inner));
  const std::vector<Shape> shapes = {{outer, n, inner}};
  const Node forward(kProgram), backward(kReverse);
  const auto found = forward.run(shapes, {x}, 1), back = backward.run(shapes, {x}, 1);
  for (int repeat = 0; repeat < 3; ++repeat) {
    expect(forward.run(shapes, {x}, 6) == found, "other bits with several threads, " + shape);
    expect(backward.run(shapes, {x}, 6) == back, "other bits with several threads, backwards, " + shape);
  }
  const Floats softmax = as<float>(found[0]), sums = as<float>(found[1]), before = as<float>(found[2]);
  const auto best = as<int64_t>(found[3]);
  const Floats mean = as<float>(found[4]), after = as<float>(back[0]), least = as<float>(back[1]);
  bool right[6] = {true, true, true, true, true, true};
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      const auto at = [&](int64_t k) { return static_cast<size_t>((o * n + k) * inner + i); };
      const size_t row = static_cast<size_t>(o * inner + i);
      int64_t first = 0;
      double total = 0, exps = 0, sum = 0, shares = 0, rest = 0;
      float lowest = INFINITY;
      for (int64_t k = 1; k < n; ++k)
        if (x[at(k)] > x[at(first)]) first = k;
      for (int64_t k = 0; k < n; ++k) total += x[at(k)], exps += std::exp(double(x[at(k)]) - x[at(first)]);
      right[0] &= best[row] == first;
      right[1] &= near(mean[row], total / double(n));
      for (int64_t k = 0; k < n; ++k) {
        const double share = std::exp(double(x[at(k)]) - x[at(first)]) / exps;
        right[2] &= near(softmax[at(k)], share);
        right[3] &= near(sums[at(k)], shares += share);
        right[4] &= near(before[at(k)], sum);
        sum += x[at(k)];
      }
      for (int64_t k = n; k-- > 0;) {
        lowest = std::min(lowest, x[at(k)]);
        right[5] &= near(after[at(k)], rest += std::max(x[at(k)], 0.0f)) && least[at(k)] == lowest;
      }
    }
  const char* const names[] = {"argmax", "mean", "softmax", "scan", "exclusive scan", "reverse scans"};
  for (int k = 0; k < 6; ++k) expect(right[k], std::string(names[k]) + " of " + shape);
}

void check_columns(int64_t outer, int64_t n, int64_t inner) {
  const std::string shape = std::to_string(outer) + " x " + std::to_string(n) + " x " + std::to_string(inner);
  const Floats x = normal(static_cast<size_t>(outer * n * inner));
  const std::vector<Shape> shapes = {{outer, n, inner}};
  const Node node(kColumns);
  const auto found = node.run(shapes, {x}, 1);
  for (int repeat = 0; repeat < 3; ++repeat)
    expect(node.run(shapes, {x}, 6) == found, "other bits with several threads, columns of " + shape);
  const Floats softmax = as<float>(found[0]), mean = as<float>(found[1]), most = as<float>(found[2]);
  bool right[3] = {true, true, true};
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      const auto at = [&](int64_t k) { return static_cast<size_t>((o * n + k) * inner + i); };
      const size_t column = static_cast<size_t>(o * inner + i);
      float greatest = x[at(0)];
      double total = 0, exps = 0;
      for (int64_t k = 0; k < n; ++k) greatest = std::max(greatest, x[at(k)]), total += x[at(k)];
      for (int64_t k = 0; k < n; ++k) exps += std::exp(double(x[at(k)]) - greatest);
      right[0] &= most[column] == greatest;
      right[1] &= near(mean[column], total / double(n));
      for (int64_t k = 0; k < n; ++k) right[2] &= near(softmax[at(k)], std::exp(double(x[at(k)]) - greatest) / exps);
    }
  const char* const names[] = {"greatest", "mean", "softmax"};
  for (int k = 0; k < 3; ++k) expect(right[k], std::string(names[k]) + " of columns of " + shape);
}

void check_bytes(int64_t n) {
  const Floats x = normal(static_cast<size_t>(n));
  const auto found = Node(kBytes).run({{n}}, {x}, 1);
  const auto flags = as<uint8_t>(found[0]);
  const Floats chosen = as<float>(found[1]), back = as<float>(found[3]);
  const auto bytes = as<int8_t>(found[2]);
  bool right[4] = {true, true, true, true};
  for (size_t i = 0; i < x.size(); ++i) {
    const bool flag = !(x[i] < 0.5f || -x[i] > 0.5f);
    const float value = flag ? x[i] : -x[i];
    const auto byte = static_cast<int8_t>(static_cast<int32_t>(std::nearbyint((value - (flag ? 1.0f : 0.0f)) * 30.0f)));
    right[0] &= flags[i] == (flag ? 1 : 0);
    right[1] &= chosen[i] == value;
    right[2] &= bytes[i] == byte;
    right[3] &= back[i] == static_cast<float>(static_cast<uint8_t>(static_cast<int32_t>(byte)));
  }
  const char* const names[] = {"bools", "choices", "bytes", "floats of bytes"};
  for (int k = 0; k < 4; ++k) expect(right[k], std::string(names[k]) + " of " + std::to_string(n));
}

void check_calls_at_once() {
  const Node node(kProgram);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      for (int64_t n = 1; n < 40; ++n) {
        Floats x(static_cast<size_t>(n * 20));
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 7 + static_cast<size_t>(t)) % 11);
        if (node.run({{20, n, 1}}, {x}, 1) != node.run({{20, n, 1}}, {x}, 2)) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  expect(wrong == 0, "calls from 16 threads at once");
}

double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

int run() {
  check_function("exp", std::exp);
  check_function("expm1", std::expm1);
  check_function("log", std::log);
  check_function("log1p", std::log1p);
  check_function("tanh", std::tanh);
  check_function("erf", std::erf);
  check_function("sin", std::sin);
  check_function("cos", std::cos);
  check_function("sqrt", std::sqrt);
  check_function("sigmoid", sigmoid);
  check_function("softplus", softplus);
  check_rows(5, 300, 1);
  check_rows(2, 30000, 1);
  check_rows(3, 40, 20);
  check_rows(4, 5, 3);
  check_rows(1, 400001, 1);
  check_rows(3, 200000, 1);
  check_columns(2, 300, 7);
  check_columns(20, 40, 49);
  check_columns(1, 20000, 30);
  check_columns(2, 3000, 1000);
  check_columns(1, 400, 3001);
  check_bytes(7);
  check_bytes(1000);
  check_calls_at_once();
  std::printf("%d of %d checks passed\n", checks - failures, checks);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace onnxfuse

int main() { return onnxfuse::run(); }
