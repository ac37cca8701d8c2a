#include "ahead.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "../engine.h"
#include "../runtime_axes.h"
#include "generate_kernels.h"
#include "images.h"

namespace onnxfuse {
namespace cuda {
namespace {

struct Node {
  std::string name;
  std::vector<std::vector<Shape>> shapes;
  std::string program;
};

struct Request {
  std::string folder, report;
  std::vector<int> architectures;
  std::vector<Node> nodes;
};

struct Job {
  std::string key, source, node;
  int architecture = 0;
  size_t bytes = 0;
  bool made = false;
  std::string failure;
};

Shape parse_shape(const std::string& word) {
  Shape shape;
  std::istringstream extents(word == "-" ? "" : word);
  for (std::string extent; std::getline(extents, extent, ',');) shape.push_back(std::stoll(extent));
  return shape;
}

// The rest of the line, if it begins with that word.
bool take(const std::string& line, const std::string& word, std::string* rest) {
  if (line.compare(0, word.size() + 1, word + " ") != 0) return false;
  *rest = line.substr(word.size() + 1);
  return true;
}

Node read_node(std::istream& in, std::string name) {
  Node node{std::move(name), {}, ""};
  for (std::string line, rest; std::getline(in, line);) {
    if (line == "end") return node;
    if (node.program.empty() && take(line, "shapes", &rest)) {
      std::istringstream words(rest);
      std::vector<Shape> shapes;
      for (std::string word; words >> word;) shapes.push_back(parse_shape(word));
      node.shapes.push_back(std::move(shapes));
    } else {
      node.program += line + "\n";
    }
  }
  throw std::runtime_error("the node " + node.name + " has no end");
}

Request read_request(std::istream& in) {
  Request request;
  std::string line, rest;
  if (!std::getline(in, line) || line != "onnxfuse-compile 1") throw std::runtime_error("it does not begin as one");
  while (std::getline(in, line)) {
    if (take(line, "folder", &rest)) {
      request.folder = rest;
    } else if (take(line, "report", &rest)) {
      request.report = rest;
    } else if (take(line, "architectures", &rest)) {
      std::istringstream words(rest);
      for (int architecture = 0; words >> architecture;) request.architectures.push_back(architecture);
    } else if (take(line, "node", &rest)) {
      request.nodes.push_back(read_node(in, rest));
    } else {
      throw std::runtime_error("unknown line: " + line);
    }
  }
  if (request.folder.empty() || request.report.empty()) throw std::runtime_error("it names no folder or no report");
  return request;
}

// Where a source for tensors of any alignment is the same as for aligned ones, there is one.
std::set<std::string> sources(const Program& program, const std::vector<Shape>& shapes, int architecture) {
  const BoundProgram bound = bind(program, shapes);
  ActualTypes types;
  for (const TensorInfo& input : program.inputs) types.inputs.push_back(input.type);
  for (const TensorInfo& output : program.outputs) types.outputs.push_back(output.type);
  std::set<std::string> result;
  for (const uint8_t alignment : {uint8_t{16}, uint8_t{1}}) {
    const Alignments alignments{std::vector<uint8_t>(types.inputs.size(), alignment),
                                std::vector<uint8_t>(types.outputs.size(), alignment)};
    for (std::string& source : sources_for_architecture(program, bound, types, alignments, architecture))
      result.insert(std::move(source));
  }
  return result;
}

std::string one_line(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return text;
}

// Equal nodes share their kernels.
std::vector<Job> jobs_of(const Request& request, std::ostream& report) {
  std::vector<Job> jobs;
  std::set<std::string> seen;
  for (const Node& node : request.nodes) {
    try {
      const auto program = parse_program(node.program);
      for (const int architecture : request.architectures) {
        for (const std::vector<Shape>& shapes : node.shapes) {
          for (const auto& runnable : possible_programs(program, shapes)) {
            for (const std::string& source : sources(*runnable, shapes, architecture)) {
              std::string key = kernel_key(source, architecture);
              if (seen.insert(key).second)
                jobs.push_back({std::move(key), source, node.name, architecture, 0, false, ""});
            }
          }
        }
      }
    } catch (const std::runtime_error& error) {  // of the program, or its shapes
      report << "failed\t" << one_line(node.name) << "\t" << one_line(error.what()) << "\n";
    }
  }
  return jobs;
}

void make(Job& job, const std::string& folder, const Nvrtc& compiler) {
  try {
    if (const auto present = read_kernel(folder, job.key, Trust::administrator, nullptr)) {
      job.bytes = present->image.size();
      return;
    }
    KernelFile kernel{"for sm_" + std::to_string(job.architecture) + " by NVRTC " + compiler.version(),
                      compiler.compile(job.source, job.architecture).image};
    std::string why;
    if (!write_kernel(folder, job.key, kernel, Trust::administrator, &why)) throw std::runtime_error(why);
    job.bytes = kernel.image.size();
    job.made = true;
  } catch (const std::exception& error) {
    job.failure = error.what();
  }
}

void make_all(std::vector<Job>& jobs, const std::string& folder, const Nvrtc& compiler) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++) make(jobs[i], folder, compiler);
  };
  std::vector<std::thread> threads;
  const size_t most = std::min<size_t>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u), jobs.size());
  try {
    while (threads.size() + 1 < most) threads.emplace_back(work);
  } catch (const std::system_error&) {  // then with fewer
  }
  work();
  for (std::thread& thread : threads) thread.join();
}

void check_architectures(const std::vector<int>& architectures, const Nvrtc& compiler) {
  const std::vector<int>& known = compiler.architectures();
  for (const int architecture : architectures) {
    if (std::find(known.begin(), known.end(), architecture) != known.end()) continue;
    std::string names;
    for (const int each : known) names += (names.empty() ? "sm_" : ", sm_") + std::to_string(each);
    throw std::runtime_error("NVRTC " + compiler.version() + " compiles for " + names + ", not for sm_" +
                             std::to_string(architecture));
  }
}

}  // namespace

void make_kernels(std::istream& in, const Nvrtc& compiler) {
  const Request request = read_request(in);
  check_architectures(request.architectures, compiler);
  std::ofstream report(request.report);
  std::vector<Job> jobs = jobs_of(request, report);
  make_all(jobs, request.folder, compiler);
  for (const Job& job : jobs) {
    if (job.failure.empty()) {
      report << "kernel\t" << job.key << "\tsm_" << job.architecture << "\t" << job.bytes << "\t"
             << (job.made ? "made" : "present") << "\t" << one_line(job.node) << "\n";
    } else {
      report << "failed\t" << one_line(job.node) << "\t" << one_line(job.failure) << "\n";
    }
  }
  report << "compiler\t" << compiler.version() << "\n";
  if (!report.flush()) throw std::runtime_error("cannot write " + request.report);
}

}  // namespace cuda

void make_kernels_ahead(const std::string& request_path, const CudaOptions& options) {
  std::string why;
  const cuda::Nvrtc* compiler = cuda::Nvrtc::get(options.nvrtc_path, 0, &why);
  if (compiler == nullptr) throw std::runtime_error(why);
  std::ifstream request(request_path);
  if (!request) throw std::runtime_error("cannot read the request " + request_path);
  cuda::make_kernels(request, *compiler);
}

}  // namespace onnxfuse
