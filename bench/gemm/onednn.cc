// oneDNN as its documentation recommends, with the weight reordered once to its preferred layout;
// and with the weight as given.
#include "onednn_library.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "contenders.h"

namespace plait::bench {
namespace {

using dnnl::matmul;
using dnnl::memory;

class OneDnn {
 public:
  explicit OneDnn(Operands& operands) : operands_(operands) {}

  std::function<void()> linear(const Case& one, bool packed) {
    const ConstTensorView x = operands_.x(one.dtype, one.rows);
    const ConstTensorView weight = operands_.weight(one.dtype);
    const ConstTensorView out = operands_.out(one.dtype, one.rows);
    const memory::desc plain = desc_of(weight, /*transposed=*/true);
    const memory::desc any({weight.cols, weight.rows}, type_of(weight.dtype),
                           memory::format_tag::any);
    const auto way = matmul_of(desc_of(x), packed ? any : plain, desc_of(out), engine_);
    const memory w = in_layout(one.dtype, memory_of(weight, plain), way.weights_desc());
    return call_of(way, memory_of(x, desc_of(x)), w, memory_of(out, desc_of(out)));
  }

  // dW += dYt·X
  std::function<void()> gradient(const Case& one) {
    const ConstTensorView dy = operands_.gradient(one.dtype, one.rows);
    const ConstTensorView x = operands_.x(one.dtype, one.rows);
    const ConstTensorView dw = operands_.weight_gradient();
    dnnl::post_ops adding;
    adding.append_sum(1);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(adding);
    const memory::desc dy_desc = desc_of(dy, /*transposed=*/true);
    const auto way = matmul_of(dy_desc, desc_of(x), desc_of(dw), engine_, attributes);
    return call_of(way, memory_of(dy, dy_desc), memory_of(x, desc_of(x)),
                   memory_of(dw, desc_of(dw)));
  }

 private:
  memory memory_of(const ConstTensorView& view, const memory::desc& desc) const {
    return {desc, engine_, const_cast<void*>(view.data)};
  }

  // Different numbers of rows may need different layouts; each layout is made once.
  memory in_layout(Dtype dtype, const memory& weight, const memory::desc& wanted) {
    if (weight.get_desc() == wanted) return weight;
    for (const auto& [known_dtype, known] : packed_) {
      if (known_dtype == dtype && known.get_desc() == wanted) return known;
    }
    memory from = weight;
    memory to(wanted, engine_);
    dnnl::reorder(from, to).execute(stream_, from, to);
    stream_.wait();
    packed_.emplace_back(dtype, to);
    return to;
  }

  std::function<void()> call_of(const matmul::primitive_desc& way, const memory& x, const memory& w,
                                const memory& y) {
    return [product = matmul(way), stream = stream_,
            arguments = std::unordered_map<int, memory>{
                {DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}}]() mutable {
      product.execute(stream, arguments);
      stream.wait();
    };
  }

  Operands& operands_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<std::pair<Dtype, memory>> packed_;
};

}  // namespace

std::vector<Contender> onednn_contenders(Operands& operands) {
  const auto onednn = std::make_shared<OneDnn>(operands);
  return {
      {"onednn", [onednn](const Case& one) { return onednn->linear(one, /*packed=*/true); }},
      {"onednn_plain", [onednn](const Case& one) { return onednn->linear(one, /*packed=*/false); }},
      {"onednn_gradient", [onednn](const Case& one) { return onednn->gradient(one); }},
  };
}

std::string onednn_version() { return version_of_onednn(); }

}  // namespace plait::bench
