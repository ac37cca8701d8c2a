// Making kernels ahead of time, without a GPU: for machines that have no NVRTC, or must not wait for it.
//
// A request is a text of lines:
//     onnxfuse-compile 1
//     folder PATH              where the kernels go, one file each (kernel_file.h)
//     report PATH              where to say what was made
//     architectures 80 90      10 * major + minor of the GPUs
//     node NAME                then, for each fused node:
//     shapes 8,128,768 768 -   the shape of each input, "-" without dimensions; one line for each set of shapes
//     onnxfuse 1 ...           the node's program, up to a line
//     end
// The report has a line of tab-separated fields for each kernel, "kernel KEY ARCHITECTURE BYTES made|present NODE", and
// "failed NODE REASON" for each node for which not all could be made. `made` says which ones were not there before.
#pragma once

#include <istream>
#include <ostream>

#include "nvrtc.h"

namespace onnxfuse::cuda {

// Throws std::runtime_error where the request is not in order or a file cannot be written.
void make_kernels(std::istream& request, const Nvrtc& compiler);

}  // namespace onnxfuse::cuda
