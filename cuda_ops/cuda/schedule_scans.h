// Schedules of scans that no block has all at a time.
#pragma once

#include "footprint.h"

namespace onnxfuse::cuda {

// Of rows. schedule: what is settled for all rows; few: too few of them to fill the GPU.
Schedule scan_long_rows(const Kernel& kernel, const Plan& plan, Schedule schedule, const Footprint& footprint, bool few,
                        const DeviceModel& device);

// Of columns that are scanned and no more; bytes: of a vector of neighbouring columns.
Schedule scan_columns(const Kernel& kernel, const Plan& plan, int lanes, int bytes, const Footprint& footprint,
                      const DeviceModel& device);

}  // namespace onnxfuse::cuda
