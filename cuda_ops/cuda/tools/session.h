// Plays a session of several nodes: what becomes of kernels that are compiled in the background.
#pragma once

#include <string>
#include <vector>

#include "cases.h"

namespace onnxfuse::cuda {

// Makes engines of the cases, which do not know the shapes, and then takes the steps:
//     wait   for all that is compiled in the background
//     run    all cases; what one throws goes to stderr
//     last   runs the last case alone
//     fork   a child that takes the steps that follow, and wait for it
//     pause  for 50 ms
//     leave  without destroying the engines
// Prints the name of each step and the milliseconds it took. False where something failed.
bool play_session(const std::vector<Case>& cases, const std::vector<std::string>& steps);

}  // namespace onnxfuse::cuda
