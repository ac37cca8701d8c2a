// A compiled kernel in a file of its own: written whole or not at all, checked when it is read.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace onnxfuse::cuda {

// Who may have written what is loaded onto the GPU to run with this process's data.
enum class Trust {
  self,           // the process's own user alone: for a cache that nobody named
  administrator,  // or root, and members of the folder's group: for a folder that the user named
};

struct KernelFile {
  std::string made;  // one line for people: for what and by what
  std::vector<char> image;
};

// What write_kernel() stored under the key (hexadecimal digits) in the folder. Where it is missing, altered, truncated,
// no regular file, or not to be trusted: nothing, with the reason in why where that is not null.
std::optional<KernelFile> read_kernel(const std::string& folder, const std::string& key, Trust trust, std::string* why);

// Makes the folder where it is missing (with its parents), for its user alone where trust is `self`. Readers and other
// writers see the old file or the new one, whatever ends this process. False where it cannot be written, or the folder
// is not to be trusted, with the reason in why where that is not null.
bool write_kernel(const std::string& folder, const std::string& key, const KernelFile& kernel, Trust trust,
                  std::string* why);

// Whether the folder can be read and be trusted; else why says what is wrong with it.
bool can_read_kernels(const std::string& folder, Trust trust, std::string* why);

}  // namespace onnxfuse::cuda
