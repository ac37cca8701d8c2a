# Fuzzing of the program parser, verifier, binding and engines (`make fuzz-programs`); needs clang with libFuzzer. Not
# part of the library or the wheel; included by the CMakeLists.txt of the root where ONNXFUSE_FUZZ is set.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "ONNXFUSE_FUZZ needs clang: -DCMAKE_CXX_COMPILER=clang++")
endif()
set(sanitizers -g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer
    -fno-sanitize-recover=undefined -fno-sanitize=float-cast-overflow,float-divide-by-zero)
add_executable(onnxfuse-fuzz-program EXCLUDE_FROM_ALL
  ${ops}/fuzz/fuzz_program.cc ${ops}/fuzz/mutator.cc
  ${program_sources} ${ops}/program_cache.cc ${cpu_sources} ${cuda_sources}
  ${generated}/primitives.inc ${generated}/embedded_kernels.h ${generated}/embedded_kernels.cc)
target_include_directories(onnxfuse-fuzz-program PRIVATE ${ops} ${generated})
target_compile_options(onnxfuse-fuzz-program PRIVATE ${sanitizers})
target_link_options(onnxfuse-fuzz-program PRIVATE ${sanitizers})
target_link_libraries(onnxfuse-fuzz-program PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
