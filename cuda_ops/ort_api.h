// ONNX Runtime's functions with C++ types and errors, over ort_abi.h.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "ort_abi.h"
#include "program.h"

namespace onnxfuse {

// The functions of one ONNX Runtime in this process.
struct Api {
#define ONNXFUSE_DECLARE(slot, name, result, parameters) result(*name) parameters;
  ONNXFUSE_ORT_SLOTS(ONNXFUSE_DECLARE)
  ONNXFUSE_NEWER_ORT_SLOTS(ONNXFUSE_DECLARE)  // null where ONNX Runtime is older
#undef ONNXFUSE_DECLARE

  // newer: the table of kNewerOrtApiVersion, or null.
  Api(const OrtApi* table, const OrtApi* newer);

  // Throws std::runtime_error with the status's message, and releases it.
  void check(OrtStatus* status) const {
    if (status != nullptr) fail(status);
  }
  // The same of a request for memory: the message begins with what what() gives and says what to do where there is
  // none.
  template <class What>
  void check_memory(OrtStatus* status, const What& what) const {
    if (status != nullptr) fail_for_memory(status, what());
  }
  OrtStatus* error(OrtErrorCode code, const std::string& message) const { return CreateStatus(code, message.c_str()); }

 private:
  [[noreturn]] void fail(OrtStatus* status) const;
  [[noreturn]] void fail_for_memory(OrtStatus* status, const std::string& what) const;
};

// Runs a callback's body: what it throws becomes the status that is returned; nothing leaves as an exception.
template <class Body>
OrtStatus* guarded(const Api& api, const Body& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const ProgramError& e) {
    return api.CreateStatus(ORT_INVALID_ARGUMENT, e.what());
  } catch (const std::exception& e) {
    return api.CreateStatus(ORT_FAIL, e.what());
  } catch (...) {
    return api.CreateStatus(ORT_FAIL, "onnxfuse: unknown error");
  }
}

// The element type; throws ProgramError where programs have no such type (strings, 8-bit floats).
Type type_from_ort(ONNXTensorElementDataType type, const std::string& what);
ONNXTensorElementDataType type_to_ort(Type type);

// True where a tensor of the actual type may stand for one that the program declares: the same, or f32 for 16 bits.
inline bool is_compatible(Type declared, Type actual) {
  return declared == actual || (actual == Type::f32 && is_16bit_float(declared));
}

}  // namespace onnxfuse
