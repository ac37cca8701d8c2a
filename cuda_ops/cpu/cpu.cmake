# Compiler options of the CPU engine's tile kernels; included by the CMakeLists.txt of the root.
set(tile_options -O3 -fwrapv -fno-math-errno -fno-trapping-math)
if(ONNXFUSE_SANITIZE)
  list(APPEND tile_options -O1)  # else they take a quarter of an hour
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND tile_options -Wno-pass-failed)  # loops that it cannot vectorize are asked for all the same
endif()
set_source_files_properties(${ops}/cpu/kernels_baseline.cc PROPERTIES COMPILE_OPTIONS "${tile_options}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(${ops}/cpu/kernels_avx2.cc PROPERTIES
    COMPILE_OPTIONS "${tile_options};-mavx2;-mfma;-mf16c;-mbmi;-mbmi2")
  set_source_files_properties(${ops}/cpu/kernels_avx512.cc PROPERTIES
    COMPILE_OPTIONS "${tile_options};-mavx2;-mfma;-mf16c;-mbmi;-mbmi2;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512")
  set_source_files_properties(${ops}/cpu/dispatch.cc PROPERTIES COMPILE_DEFINITIONS ONNXFUSE_X86_KERNELS)
endif()

# Test tool, not installed: the engine without ONNX Runtime.
add_executable(onnxfuse-cpucheck EXCLUDE_FROM_ALL
  ${ops}/cpu/tools/check.cc
  ${program_sources} ${cpu_sources} ${generated}/primitives.inc)
target_include_directories(onnxfuse-cpucheck PRIVATE ${ops} ${generated})
target_compile_options(onnxfuse-cpucheck PRIVATE -Wall -Wextra $<$<BOOL:${ONNXFUSE_WERROR}>:-Werror>)
target_link_libraries(onnxfuse-cpucheck PRIVATE Threads::Threads)
