#include "rival.h"

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "mpi_library.h"
#include "onednn_library.h"
#include "plait/collectives.h"

namespace plait::bench {
namespace {

using dnnl::matmul;
using dnnl::memory;

class OneDnn {
 public:
  // out = x·weightᵀ
  std::function<void()> linear(const ConstTensorView& x, const ConstTensorView& weight,
                               const TensorView& out) {
    const memory::desc plain = desc_of(weight, /*transposed=*/true);
    const memory::desc any({weight.cols, weight.rows}, type_of(weight.dtype),
                           memory::format_tag::any);
    const auto way = matmul_of(desc_of(x), any, desc_of(out), engine_);
    memory from = memory_of(weight, plain);
    memory packed(way.weights_desc(), engine_);
    dnnl::reorder(from, packed).execute(stream_, from, packed);
    stream_.wait();
    return call_of(matmul(way), {{DNNL_ARG_SRC, memory_of(x, desc_of(x))},
                                 {DNNL_ARG_WEIGHTS, packed},
                                 {DNNL_ARG_DST, memory_of(out, desc_of(out))}});
  }

  std::function<void()> rounding(const ConstTensorView& from, const TensorView& to) {
    const memory source = memory_of(from, desc_of(from));
    const memory target = memory_of(to, desc_of(to));
    return call_of(dnnl::reorder(source, target), {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}});
  }

 private:
  memory memory_of(const ConstTensorView& view, const memory::desc& desc) const {
    return {desc, engine_, const_cast<void*>(view.data)};
  }

  std::function<void()> call_of(dnnl::primitive primitive,
                                std::unordered_map<int, memory> arguments) {
    return [primitive = std::move(primitive), arguments = std::move(arguments),
            stream = stream_]() mutable {
      primitive.execute(stream, arguments);
      stream.wait();
    };
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
};

// The number of elements in each rank's rows.
std::vector<int> counts_of(std::int64_t rows, std::int64_t columns, int world) {
  std::vector<int> counts;
  for (int rank = 0; rank < world; ++rank) {
    const Shard shard = balanced_shard(static_cast<std::size_t>(rows), rank, world);
    counts.push_back(static_cast<int>(static_cast<std::int64_t>(shard.count) * columns));
  }
  return counts;
}

// Computes a partial product in f32, then its sum, then converts it to the result's dtype.
std::function<void()> summed(const RivalProblem& problem, const Communicator& comm,
                             OneDnn& onednn) {
  const std::int64_t n = problem.weight.rows;
  const bool everywhere = traits_of(problem.op).gathers;
  struct Sums {
    Buffer partial;
    Buffer sum;
  };
  const auto kept = std::make_shared<Sums>();
  kept->partial = Buffer::for_tensor(Dtype::f32, problem.m, n, {.huge_pages = true});
  const TensorView partial = kept->partial.view(Dtype::f32, problem.m, n);
  TensorView sum = problem.out;
  const bool rounds = problem.out.dtype != Dtype::f32;
  if (rounds) {
    kept->sum = Buffer::for_tensor(Dtype::f32, problem.out.rows, n, {.huge_pages = true});
    sum = kept->sum.view(Dtype::f32, problem.out.rows, n);
  }
  const auto multiply = onednn.linear(problem.x, problem.weight, partial);
  const auto round = rounds ? onednn.rounding(sum, problem.out) : std::function<void()>([] {});
  const std::vector<int> counts = counts_of(problem.m, n, comm.world());
  return [=] {
    multiply();
    if (everywhere) {
      MPI_Allreduce(partial.data, sum.data, static_cast<int>(partial.rows * n), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    } else {
      MPI_Reduce_scatter(partial.data, sum.data, counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    round();
    static_cast<void>(kept);
  };
}

std::function<void()> gathered(const RivalProblem& problem, const Communicator& comm,
                               OneDnn& onednn) {
  const ConstTensorView& x = problem.x;
  const auto kept = std::make_shared<Buffer>(
      Buffer::for_tensor(x.dtype, problem.m, x.cols, {.huge_pages = true}));
  const TensorView all = kept->view(x.dtype, problem.m, x.cols);
  const std::vector<int> counts =
      counts_of(problem.m, x.cols * static_cast<std::int64_t>(size_of(x.dtype)), comm.world());
  std::vector<int> places = {0};
  for (const int count : counts) places.push_back(places.back() + count);
  const auto multiply = onednn.linear(all, problem.weight, problem.out);
  return [=, mine = counts[static_cast<std::size_t>(comm.rank())]] {
    MPI_Allgatherv(x.data, mine, MPI_BYTE, all.data, counts.data(), places.data(), MPI_BYTE,
                   MPI_COMM_WORLD);
    multiply();
    static_cast<void>(kept);
  };
}

}  // namespace

void check_has_rival(Operator op) {
  PLAIT_CHECK(traits_of(op).gathers_x() || traits_of(op).shares_k, name(op),
              " has no rival; matmul_all_reduce, matmul_reduce_scatter and ",
              "all_gather_matmul have one");
}

std::string refusal_of_rival(Operator op, Dtype dtype) {
  constexpr memory::dim kSide = 64;
  const auto square = [](Dtype of) {
    return memory::desc({kSide, kSide}, type_of(of), memory::format_tag::ab);
  };
  const Dtype out = traits_of(op).gathers_x() ? dtype : Dtype::f32;
  try {
    matmul_of(square(dtype), square(dtype), square(out), {dnnl::engine::kind::cpu, 0});
    return "";
  } catch (const dnnl::error&) {
    return base::sentence("oneDNN ", version_of_onednn(), " has no product of ", name(dtype),
                          " on this processor");
  }
}

std::function<void()> make_rival(const RivalProblem& problem, const Communicator& comm) {
  check_has_rival(problem.op);
  const bool gathers = traits_of(problem.op).gathers_x();
  const auto onednn = std::make_shared<OneDnn>();
  return [onednn, run = gathers ? gathered(problem, comm, *onednn)
                                : summed(problem, comm, *onednn)] { run(); };
}

std::string rival_name() { return "oneDNN " + version_of_onednn() + ", " + mpi_library(); }

}  // namespace plait::bench
