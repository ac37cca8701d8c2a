// Which statements of a kernel are computed when. A reduction needs a pass over the reduced dimensions; what depends on
// its result needs another one. Scans come after all reductions, in a pass of their own and the one that stores.
#pragma once

#include <vector>

#include "plan.h"

namespace onnxfuse::cuda {

// How often a thread computes a value: once, once for each of its neighbouring parallel points (lanes), or once for
// every point that it visits.
enum class Scope : uint8_t { once, lane, point };

struct Stages {
  int passes = 0;                            // passes over the reduced dimensions, besides the one that stores
  std::vector<int> scans;                    // the storing pass computes them
  int scan_pass = -1;                        // the pass before it, which combines their operands; -1: there is none
  int fresh = 0;                             // no pass from this one on uses what earlier ones have kept
  std::vector<int> level;                    // by statement: number of passes before the value is known
  std::vector<Scope> scope;                  // by statement
  std::vector<std::vector<int>> reductions;  // by pass: reductions that it computes
  std::vector<std::vector<int>> needed;      // by pass, the storing one last: statements of scope point that it uses
  std::vector<bool> needed_once;             // by statement: of scope once or lane, and used
  std::vector<int> first_pass;               // by statement of scope point: the first pass that uses it, or -1
  std::vector<bool> kept;                    // by statement: computed in one pass and used again in a later one
  std::vector<bool> repeated;                // by statement: computed anew in every pass that uses it
  bool stores_points = false;                // some output is stored for every point

  // The mean of a row of 16-bit elements, and the mean or sum of the squared deviations from it, where that is all that
  // the first two passes are for.
  struct Moments {
    int mean = -1, variance = -1;  // statements
  };
  Moments moments;
  // The maximum of a row, exponentials relative to it, and their sum, where the first two passes are for that alone.
  struct Softmax {
    int maximum = -1, exponential = -1, sum = -1;  // statements
  };
  Softmax softmax;
};

// Whether threads that hold parts of a reduced block have to exchange what their parts of the scans add up to.
enum class ScanParts : uint8_t { combined, single };

// lanes_reduced: neighbouring elements of a vector lie along the last reduced dimension (else the last parallel one).
// resident: a thread has all of its points at a time. Else the passes from the scans on have some of the points at a
// time, and nothing of the passes before.
Stages make_stages(const Kernel& kernel, const Plan& plan, bool lanes_reduced, bool resident = true,
                   ScanParts parts = ScanParts::combined);

// Calls use(statement) for everything that a pass reads: operands of what it computes first, of its reductions, and
// in the storing pass the outputs' values.
template <class Use>
void for_each_use(const Kernel& kernel, const Stages& stages, int pass, Use use) {
  for (const int i : stages.needed[pass]) {
    if (stages.first_pass[i] != pass) continue;
    for (int k = 0; k < kernel.statements[i].operand_count; ++k) use(kernel.statements[i].operands[k]);
  }
  if (pass < stages.passes) {
    for (const int i : stages.reductions[pass]) use(kernel.statements[i].operands[0]);
    if (pass == stages.scan_pass) {
      for (const int i : stages.scans) use(kernel.statements[i].operands[0]);
    }
  } else {
    for (const Output& output : kernel.outputs) use(output.value);
  }
}

}  // namespace onnxfuse::cuda
