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
#undef ONNXFUSE_DECLARE

  explicit Api(const OrtApi* table);

  // Throws std::runtime_error with the status's message, and releases it.
  void check(OrtStatus* status) const;
  // The same of a request for memory: the message begins with `what` and says what to do where there is none.
  void check_memory(OrtStatus* status, const std::string& what) const;
  OrtStatus* error(OrtErrorCode code, const std::string& message) const { return CreateStatus(code, message.c_str()); }
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
