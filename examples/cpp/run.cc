// Runs an optimized model: run LIBRARY MODEL, where LIBRARY is what `onnxfuse library` prints.
// Build: g++ -std=c++17 run.cc -I.../onnxruntime/include -L.../onnxruntime/lib -lonnxruntime -o run
#include <onnxruntime_cxx_api.h>

#include <cstdint>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: run LIBRARY MODEL\n"), 2;
  try {
    Ort::Env env(ORT_LOGGING_LEVEL_WARNING, "run");
    Ort::SessionOptions options;
    options.RegisterCustomOpsLibrary(argv[1]);  // once a session; all the rest is as always
    Ort::Session session(env, argv[2], options);

    std::vector<float> x(64);
    for (int i = 0; i < 64; ++i) x[i] = -2 + 4 * i / 63.f;
    const std::vector<int64_t> shape = {1, 64};
    auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    Ort::Value input = Ort::Value::CreateTensor<float>(memory, x.data(), x.size(), shape.data(), shape.size());
    Ort::AllocatorWithDefaultOptions allocator;
    auto input_name = session.GetInputNameAllocated(0, allocator);
    auto output_name = session.GetOutputNameAllocated(0, allocator);
    const char* inputs[] = {input_name.get()};
    const char* outputs[] = {output_name.get()};
    auto results = session.Run(Ort::RunOptions{}, inputs, &input, 1, outputs, 1);
    const float* y = results[0].GetTensorData<float>();
    std::printf("%.5f %.5f %.5f %.5f\n", y[0], y[1], y[2], y[3]);
  } catch (const Ort::Exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
  return 0;
}
