// Converts plait's matrices to oneDNN's descriptions.
#pragma once

#include <dnnl.hpp>
#include <string>

#include "plait/tensor_view.h"

namespace plait::bench {

inline dnnl::memory::data_type type_of(Dtype dtype) {
  return dtype == Dtype::f32   ? dnnl::memory::data_type::f32
         : dtype == Dtype::f16 ? dnnl::memory::data_type::f16
                               : dnnl::memory::data_type::bf16;
}

// A transposed matrix has its columns as rows.
inline dnnl::memory::desc desc_of(const ConstTensorView& view, bool transposed = false) {
  if (transposed) return {{view.cols, view.rows}, type_of(view.dtype), {1, view.row_stride}};
  return {{view.rows, view.cols}, type_of(view.dtype), {view.row_stride, 1}};
}

// y = x·w, for oneDNN 2 and 3
inline dnnl::matmul::primitive_desc matmul_of(const dnnl::memory::desc& x,
                                              const dnnl::memory::desc& w,
                                              const dnnl::memory::desc& y,
                                              const dnnl::engine& engine,
                                              const dnnl::primitive_attr& attributes = {}) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, x, w, y, attributes};
#else
  return {dnnl::matmul::desc(x, w, y), attributes, engine};
#endif
}

// "2.6.3"
inline std::string version_of_onednn() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

}  // namespace plait::bench
