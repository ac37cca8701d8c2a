#include "horizontal.h"

#include <algorithm>
#include <map>
#include <utility>

#include "body.h"
#include "embedded_kernels.h"
#include "writer.h"

namespace onnxfuse::cuda {
namespace {

constexpr int kElementwiseThreads = 256;  // of a block where nothing else decides
constexpr int kMostElementwiseThreads = 512;
// Points of an element-wise part that may take over the launch of a reduction, with its registers: a launch costs more
// than the threads that have no room.
constexpr int64_t kFewPoints = 1 << 20;
constexpr size_t kMostSharedBytes = 40 * 1024;  // of the 48 KB there always are
constexpr int64_t kMostTiles = (int64_t{1} << 31) - 1;
constexpr int kResidentThreads = 2048;  // of a multiprocessor
constexpr int kResidentBlocks = 8;      // of a launch with a queue: two did half as well (H200)

bool is_elementwise(const Part& part) { return part.schedule.kind == ScheduleKind::elementwise; }

bool can_share(const Part& part) {
  const Schedule& s = part.schedule;
  const bool known =
      s.kind == ScheduleKind::elementwise || s.kind == ScheduleKind::row || s.kind == ScheduleKind::column;
  return known && s.cluster == 1 && !s.launches_apart() && part.stages.scans.empty();
}

// Of the combinations of a row schedule, each of which has an array of its own.
size_t row_shared_bytes(const Part& part) {
  if (part.schedule.kind != ScheduleKind::row || part.schedule.group <= 32) return 0;
  size_t reductions = 0;
  for (const auto& pass : part.stages.reductions) reductions += pass.size();
  return reductions * 16 * static_cast<size_t>(part.schedule.group / 32);
}

size_t parameter_bytes(const Part& part) {
  Parameters parameters;
  Accesses accesses(part.plan, part.schedule, parameters);
  declare_parameters(*part.kernel, part.plan, accesses, parameters);
  return parameters.bytes().size() + sizeof(uint32_t);
}

struct Sharing {
  std::vector<size_t> parts;
  size_t parameters = 2 * sizeof(uint32_t), shared = 0;
  int64_t tiles = 0;

  bool takes(const Part& part, size_t bytes) const {
    return parameters + bytes + 8 <= kMaxParameterBytes && shared + row_shared_bytes(part) <= kMostSharedBytes / 4 &&
           tiles + blocks_of(part.plan, part.schedule) <= kMostTiles;
  }
  void add(size_t number, const Part& part, size_t bytes) {
    parts.push_back(number);
    parameters += bytes;
    shared += row_shared_bytes(part);
    tiles += blocks_of(part.plan, part.schedule);
  }
};

// Parts with the same text: their code stands once, for an array of parameters.
struct Body {
  std::string text;
  std::vector<std::pair<const Part*, Parameters>> parts;
};

std::vector<Body> bodies_of(const std::vector<const Part*>& parts, size_t* shared) {
  std::vector<Body> bodies;
  for (const Part* part : parts) {
    Parameters parameters;
    Accesses accesses(part->plan, part->schedule, parameters);
    declare_parameters(*part->kernel, part->plan, accesses, parameters);
    BodyWriter writer(*part->kernel, part->plan, part->stages, part->schedule, accesses);
    *shared = std::max(*shared, writer.shared_bytes());
    const std::string text = parameters.struct_text() + writer.write_part("run");
    auto body = std::find_if(bodies.begin(), bodies.end(), [&](const Body& b) { return b.text == text; });
    if (body == bodies.end()) body = bodies.insert(body, Body{text, {}});
    body->parts.emplace_back(part, std::move(parameters));
  }
  return bodies;
}

// Calls the code of the part that tile `block` belongs to.
void write_dispatch(Writer& out, const std::vector<Body>& bodies) {
  size_t first = 0;
  for (size_t b = 0; b < bodies.size(); ++b) {
    const size_t end = first + bodies[b].parts.size();
    const std::string own = "part" + std::to_string(b), begin = std::to_string(first);
    const std::string condition = b + 1 < bodies.size() ? "if (block < p.first[" + std::to_string(end) + "]) {" : "{";
    out.line(b == 0 ? condition : "} else " + condition);
    if (end - first == 1) {
      out.line("Part" + std::to_string(b) + "::run(p." + own + "[0], block - p.first[" + begin + "], shared);");
    } else {
      out.line("u32 k = " + begin + ";");
      out.unrolled("for (int i = " + std::to_string(first + 1) + "; i < " + std::to_string(end) +
                   "; ++i) k += block >= p.first[i] ? 1 : 0;");
      out.line("Part" + std::to_string(b) + "::run(p." + own + "[k - " + begin + "], block - p.first[k], shared);");
    }
    first = end;
  }
  out.line("}");
}

}  // namespace

std::vector<std::vector<size_t>> share_launches(std::vector<Part>& parts) {
  std::vector<std::vector<size_t>> alone;
  std::map<std::pair<int, int>, std::vector<Sharing>> shared;  // by threads and blocks
  const auto place = [&](size_t number, std::vector<Sharing>& list) {
    const size_t bytes = parameter_bytes(parts[number]);
    for (Sharing& sharing : list) {
      if (sharing.takes(parts[number], bytes)) return sharing.add(number, parts[number], bytes);
    }
    list.emplace_back();
    list.back().add(number, parts[number], bytes);
  };
  for (size_t k = 0; k < parts.size(); ++k) {
    if (!can_share(parts[k])) {
      alone.push_back({k});
    } else if (!is_elementwise(parts[k])) {
      place(k, shared[{parts[k].schedule.threads, parts[k].schedule.blocks}]);
    }
  }
  // Reductions need the threads that they have; element-wise parts take what there is.
  const auto host = std::find_if(shared.begin(), shared.end(),
                                 [](const auto& entry) { return entry.first.first <= kMostElementwiseThreads; });
  const bool found = host != shared.end();
  for (size_t k = 0; k < parts.size(); ++k) {
    if (!can_share(parts[k]) || !is_elementwise(parts[k])) continue;
    const bool joins = found && parts[k].plan.parallel_points <= kFewPoints;
    parts[k].schedule.threads = joins ? host->first.first : kElementwiseThreads;
    place(k, joins ? host->second : shared[{kElementwiseThreads, 0}]);
  }
  std::vector<std::vector<size_t>> launches = std::move(alone);
  for (auto& [key, list] : shared) {
    for (Sharing& sharing : list) {
      std::sort(sharing.parts.begin(), sharing.parts.end());
      launches.push_back(std::move(sharing.parts));
    }
  }
  std::sort(launches.begin(), launches.end());
  return launches;
}

Generated generate_shared(const std::vector<const Part*>& parts, bool queue, const DeviceModel& device) {
  Generated result;
  size_t shared = 0;
  const std::vector<Body> bodies = bodies_of(parts, &shared);
  int blocks = 1;
  std::vector<const Kernel*> kernels;
  for (const Part* part : parts) {
    blocks = std::max(blocks, part->schedule.blocks);
    kernels.push_back(part->kernel);
  }
  const int threads = parts.front()->schedule.threads;
  result.source = source_head(kernels, parts.front()->schedule) + (queue ? embedded_kernel("queue.cuh") : "");

  std::string members;
  std::vector<uint32_t> first = {0};
  for (size_t b = 0; b < bodies.size(); ++b) {
    const std::string number = std::to_string(b), type = "Part" + number;
    result.source += "struct " + type + " {\n" + bodies[b].text + "};\n";
    members += "  " + type + "::Parameters part" + number + "[" + std::to_string(bodies[b].parts.size()) + "];\n";
    for (const auto& [part, parameters] : bodies[b].parts) {
      for (Parameters::Pointer pointer : parameters.pointers()) {
        pointer.position += result.parameters.size();
        result.pointers.push_back(pointer);
      }
      const std::vector<uint8_t> bytes = parameters.bytes();
      result.parameters.insert(result.parameters.end(), bytes.begin(), bytes.end());
      first.push_back(first.back() + blocks_of(part->plan, part->schedule));
    }
  }
  const uint8_t* numbers = reinterpret_cast<const uint8_t*>(first.data());
  result.parameters.insert(result.parameters.end(), numbers, numbers + first.size() * sizeof(uint32_t));
  members += "  u32 first[" + std::to_string(first.size()) + "];\n";
  if (queue) {
    members += "  i32 queue;\n";
    result.pointers.push_back({result.parameters.size(), ParameterKind::queue, -1, 0});
    result.parameters.resize(result.parameters.size() + sizeof(int32_t));
  }
  result.parameters.resize((result.parameters.size() + 7) / 8 * 8);
  result.source += "struct Parameters {\n" + members + "};\n";

  Writer out;
  const std::string bounds = std::to_string(threads) + (blocks > 1 ? ", " + std::to_string(blocks) : "");
  out.line("extern \"C\" __global__ void __launch_bounds__(" + bounds +
           ") onnxfuse_kernel(const __grid_constant__ Parameters p) {");
  if (shared > 0) {
    out.line("alignas(16) __shared__ char shared[" + std::to_string(shared) + "];");
  } else {
    out.line("constexpr char* shared = nullptr;");
  }
  out.line("wait_for_earlier_kernels();");
  result.grids = {LaunchGrid{first.back(), 1, static_cast<uint32_t>(threads)}};
  if (queue) {
    const int resident = std::min(kResidentBlocks, kResidentThreads / threads);
    result.grids[0].x = std::min(result.grids[0].x, static_cast<uint32_t>(device.multiprocessors * resident));
    const std::string tiles = "p.first[" + std::to_string(first.size() - 1) + "]";
    out.line("__shared__ u32 next;");
    out.line("for (u32 block = blockIdx.x; block < " + tiles + "; block = next) {");
    // The next number is on its way while the tile is computed; what the tile has in shared memory must be read first.
    out.line("const u32 drawn = threadIdx.x == 0 ? draw_tile(p.queue, block, " + tiles + ") : 0;");
    write_dispatch(out, bodies);
    out.line("__syncthreads();");
    out.line("if (threadIdx.x == 0) next = drawn;");
    out.line("__syncthreads();");
    out.line("}");
  } else {
    out.line("const u32 block = blockIdx.x;");
    write_dispatch(out, bodies);
  }
  out.line("}");
  result.source += out.text();
  result.functions = {"onnxfuse_kernel"};
  return result;
}

}  // namespace onnxfuse::cuda
