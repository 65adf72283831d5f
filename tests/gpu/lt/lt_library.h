// cuBLASLt's functions, found at run time, so that nothing here is built or linked against it.
//
//   const LtLibrary& lt = lt_library();
//   if (lt.refusal) return lt.refusal;   // it is not on this machine, or is another version
//   lt.create(&handle);
//
// Objects of the library are opaque pointers. Its enumerations have the values of version 13, and
// only those that are used here.
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace plait::gpu {

using LtStatus = int;
inline constexpr LtStatus kLtSuccess = 0;
inline constexpr LtStatus kLtNotSupported = 15;

inline constexpr int kLtComputeF32 = 68;  // f32 sums of products of f16 or bf16
inline constexpr std::int32_t kLtTransposed = 1;

enum class LtDescAttribute : int { transpose_a = 3 };  // int32_t, kLtTransposed

enum class LtPreference : int {
  most_workspace = 1,     // uint64_t
  reduction_schemes = 3,  // uint32_t, a mask; 0: no sum over k is cut into parts
  alignment_a = 5,        // uint32_t, bytes, as the next three
  alignment_b = 6,
  alignment_c = 7,
  alignment_d = 8,
};

enum class LtAlgorithmAttribute : int {
  id = 0,       // int32_t
  tile = 1,     // uint32_t
  k_parts = 2,  // int32_t
  stages = 6,   // uint32_t
};

// One way to compute a product. Opaque, and copied freely.
struct LtAlgorithm {
  std::uint64_t data[8];
};

// The heuristic's answer about an algorithm. `state` is a status: kLtSuccess if the algorithm can
// run.
struct LtHeuristic {
  LtAlgorithm algorithm;
  std::size_t workspace_bytes;
  LtStatus state;
  float waves;
  int reserved[4];
};

struct LtLibrary {
  // Why there is no library, in words; the functions are null then.
  std::optional<std::string> refusal;

  std::size_t (*version)() = nullptr;
  const char* (*status_text)(LtStatus) = nullptr;

  LtStatus (*create)(void** handle) = nullptr;
  LtStatus (*destroy)(void* handle) = nullptr;

  LtStatus (*create_desc)(void** desc, int compute, cudaDataType scale) = nullptr;
  LtStatus (*destroy_desc)(void* desc) = nullptr;
  LtStatus (*set_desc)(void* desc, LtDescAttribute attribute, const void* value,
                       std::size_t bytes) = nullptr;

  // Columns of a layout are contiguous; `stride` elements lie between the starts of two of them.
  LtStatus (*create_layout)(void** layout, cudaDataType type, std::uint64_t rows,
                            std::uint64_t columns, std::int64_t stride) = nullptr;
  LtStatus (*destroy_layout)(void* layout) = nullptr;

  LtStatus (*create_preference)(void** preference) = nullptr;
  LtStatus (*destroy_preference)(void* preference) = nullptr;
  LtStatus (*set_preference)(void* preference, LtPreference attribute, const void* value,
                             std::size_t bytes) = nullptr;

  // Fills `results` with up to `most` algorithms, the quickest by estimate first.
  LtStatus (*heuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d,
                        void* preference, int most, LtHeuristic* results, int* found) = nullptr;
  LtStatus (*describe)(const LtAlgorithm* algorithm, LtAlgorithmAttribute attribute, void* value,
                       std::size_t bytes, std::size_t* written) = nullptr;

  // D = alpha * op(A) * op(B) + beta * C.
  LtStatus (*matmul)(void* handle, void* desc, const void* alpha, const void* a, void* a_layout,
                     const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                     void* d, void* d_layout, const LtAlgorithm* algorithm, void* workspace,
                     std::size_t workspace_bytes, cudaStream_t stream) = nullptr;
};

// The library, loaded by the first call and kept until the process ends: the file that
// PLAIT_CUBLASLT names, otherwise libcublasLt.so.13, wherever the dynamic linker finds it.
const LtLibrary& lt_library();

}  // namespace plait::gpu
