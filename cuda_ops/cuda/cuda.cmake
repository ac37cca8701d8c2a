# Test tool, not installed: compiles the kernels of a program for any architecture, without a GPU.
add_executable(onnxfuse-nvcompile EXCLUDE_FROM_ALL
  ${ops}/cuda/tools/nvcompile.cc ${ops}/cuda/tools/cases.cc ${ops}/cuda/tools/run_case.cc ${ops}/cuda/tools/session.cc
  ${program_sources} ${cuda_sources}
  ${generated}/primitives.inc ${generated}/embedded_kernels.h ${generated}/embedded_kernels.cc)
target_include_directories(onnxfuse-nvcompile PRIVATE ${ops} ${generated})
target_compile_options(onnxfuse-nvcompile PRIVATE -Wall -Wextra)
target_link_libraries(onnxfuse-nvcompile PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
