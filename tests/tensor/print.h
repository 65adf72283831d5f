// Makes gtest print our values instead of their bytes.
#pragma once

#include <ostream>

#include "plait/tensor_view.h"
#include "tensor/kernels.h"

// NOLINTBEGIN(readability-identifier-naming): gtest looks for this name
namespace plait {

inline void PrintTo(Dtype dtype, std::ostream* out) { *out << name(dtype); }
inline void PrintTo(Device device, std::ostream* out) { *out << name(device); }

namespace tensor {

inline void PrintTo(const Kernels* set, std::ostream* out) { *out << set->name; }

}  // namespace tensor
}  // namespace plait
// NOLINTEND(readability-identifier-naming)
