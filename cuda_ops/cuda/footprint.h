// What a schedule has to reckon with: how many neighbouring elements fit into one access, and how many registers the
// elements take that a thread holds.
#pragma once

#include "schedule.h"

namespace onnxfuse::cuda {

// The largest number of lanes such that every access with unit stride along the lanes is one aligned access.
int choose_lanes(const Plan& plan, bool lanes_reduced, const Alignments& alignments);

// Bytes of the widest access of a vector with `lanes` lanes.
int vector_bytes(const Plan& plan, bool lanes_reduced, int lanes);

// Of a vector that a block which takes tiles in turns copies ahead into shared memory; 0: it loads it where it needs
// it.
int staged_bytes(const Plan& plan, const PlanAccess& access, bool lanes_reduced, int lanes);

// The same of what all rows share.
int common_bytes(const PlanAccess& access, int lanes);

// Of what such a block notes about a scan in a tile that is that many columns wide.
int column_record_bytes(const Statement& scan, int threads, int columns);

// 32-bit registers for each vector of points that a thread visits, in a schedule that visits them once.
struct Footprint {
  int held = 1;          // the most that is alive between two passes, as the compiler may keep it
  int least = 1;         // the same with every element as it was loaded or computed
  int kept = 0;          // the most that a pass leaves to those behind it
  int constant = 0;      // of what only the storing pass reads and all rows share, such as a scale
  int scan_bytes = 0;    // that threads exchange for each column
  bool reduces = false;  // a reduction needs all of a row before anything of it can be stored
};
// The type in which a scan combines values: doubles keep products of floats from overflowing.
Type scan_type(const Statement& scan);

// In which the parts of a long row are combined.
Type scan_total_type(const Statement& scan);

// Scans in both directions: no order of the points suits all.
bool scans_both_ways(const Kernel& kernel);

Footprint footprint(const Kernel& kernel, const Plan& plan, const Stages& stages, bool lanes_reduced, int lanes);

}  // namespace onnxfuse::cuda
