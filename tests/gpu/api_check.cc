// The operators of plait/ops.h on a GPU, as programs call them.
//
//   api_check [threads [RANKS]]   ranks are threads; every operator, plan, layout and dtype
//   api_check refusals   what is refused, in words
//   api_check lost       under `plait run -n 2`: rank 1 dies, rank 0 notices within two seconds
//   api_check processes  under `plait run -n 2`: ranks are processes
//
// Exit status: 0 all is right, 1 something is not, 77 there is no GPU.
#include <cuda_runtime.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "plait/plait.h"

namespace {

using namespace plait;

const Device kGpu = Device::cuda(0);

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(status));
  std::fflush(stdout);
  std::_Exit(1);
}

// Memory of the GPU with a copy on the CPU.
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t cols, Dtype dtype)
      : rows_(rows),
        cols_(cols),
        dtype_(dtype),
        bytes_(static_cast<std::size_t>(rows * cols) * size_of(dtype)) {
    check(cudaMalloc(&data_, bytes_ + 16));
    check(cudaMemset(data_, 0xff, bytes_ + 16));
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  ~Matrix() { cudaFree(data_); }

  void set(const std::vector<float>& values) {
    std::vector<char> narrow(bytes_ + 16);
    convert(values.data(), Dtype::f32, narrow.data(), dtype_, values.size());
    check(cudaMemcpy(data_, narrow.data(), bytes_, cudaMemcpyHostToDevice));
  }
  std::vector<float> get() const {
    std::vector<char> narrow(bytes_ + 16);
    std::vector<float> values(static_cast<std::size_t>(rows_ * cols_));
    check(cudaMemcpy(narrow.data(), data_, bytes_, cudaMemcpyDeviceToHost));
    convert(narrow.data(), dtype_, values.data(), Dtype::f32, values.size());
    return values;
  }
  TensorView view() const {
    return {.data = data_,
            .dtype = dtype_,
            .rows = rows_,
            .cols = cols_,
            .row_stride = cols_,
            .device = kGpu};
  }

 private:
  void* data_ = nullptr;
  std::int64_t rows_;
  std::int64_t cols_;
  Dtype dtype_;
  std::size_t bytes_;
};

std::vector<float> integers(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 5) - 2);
  return values;
}

struct Case {
  Operator op;
  std::int64_t m, n, k;
  Dtype x;
  Dtype out;
  Dtype wire;
  WeightLayout layout;
};

std::mutex failures_mutex;
int failures = 0;

void fail(const std::string& sentence) {
  const std::lock_guard lock(failures_mutex);
  if (++failures < 20) std::printf("FAILED %s\n", sentence.c_str());
}

// Row i of x times column j of the weight, which is [n, k] or [k, n].
float product(const std::vector<float>& x, const std::vector<float>& w, const Case& c,
              std::int64_t i, std::int64_t j) {
  float sum = 0;
  for (std::int64_t l = 0; l < c.k; ++l) {
    const std::int64_t at = c.layout == WeightLayout::out_in ? j * c.k + l : l * c.n + j;
    sum += x[static_cast<std::size_t>(i * c.k + l)] * w[static_cast<std::size_t>(at)];
  }
  return sum;
}

std::int64_t shard_begin(std::int64_t m, int world, int rank) {
  return rank * (m / world) + std::min<std::int64_t>(rank, m % world);
}

// Seeds depend on the rank for operands that each rank has for itself. Operands of all ranks have
// the same seed everywhere.
void run_case(const Case& c, Communicator& comm, const char* plan, cudaStream_t stream,
              std::vector<float>* first) {
  const int rank = comm.rank();
  const int world = comm.world();
  const bool gathers = c.op == Operator::all_gather_matmul;
  const bool sums = c.op == Operator::matmul_all_reduce || c.op == Operator::matmul_reduce_scatter;
  const std::int64_t begin = shard_begin(c.m, world, rank);
  const std::int64_t own = shard_begin(c.m, world, rank + 1) - begin;
  std::vector<std::vector<float>> xs;
  std::vector<std::vector<float>> ws;
  for (int r = 0; r < world; ++r) {
    xs.push_back(integers(c.m * c.k, 7 + (sums ? static_cast<unsigned>(r) : 0U)));
    ws.push_back(integers(c.n * c.k, 70 + static_cast<unsigned>(r)));
  }
  const auto mine = static_cast<std::size_t>(rank);
  Matrix x(gathers ? own : c.m, c.k, c.x);
  const auto& all = xs[mine];
  x.set(gathers ? std::vector<float>(all.begin() + begin * c.k, all.begin() + (begin + own) * c.k)
                : all);
  const bool out_in = c.layout == WeightLayout::out_in;
  Matrix w(out_in ? c.n : c.k, out_in ? c.k : c.n, c.x);
  w.set(ws[mine]);
  const bool scattered = c.op == Operator::matmul_reduce_scatter;
  Matrix out(scattered ? own : c.m, c.n, c.out);
  Matrix bias(1, c.n, c.x);
  const std::vector<float> bias_values = integers(c.n, 700);
  bias.set(bias_values);
  Matrix gathered(c.m, c.k, c.x);
  OpOptions options = {
      .wire = c.wire, .plan = parse_plan(plan), .bias = bias.view(), .stream = {.handle = stream}};
  if (gathers) options.gathered = gathered.view();
  const WeightView weight = {.view = w.view(), .layout = c.layout};
  // cudaFree waits for all kernels of the GPU, those of the other ranks too: no rank begins before
  // all have freed what they had.
  barrier(comm);
  switch (c.op) {
    case Operator::matmul_all_reduce:
      matmul_all_reduce(x.view(), weight, out.view(), comm, options);
      break;
    case Operator::matmul_reduce_scatter:
      matmul_reduce_scatter(x.view(), weight, out.view(), comm, options);
      break;
    case Operator::all_gather_matmul:
      all_gather_matmul(x.view(), weight, out.view(), comm, options);
      break;
    default:
      options.plan = {};
      matmul(x.view(), weight, out.view(), comm, options);
  }
  const cudaError_t status = cudaStreamSynchronize(stream);
  if (status != cudaSuccess)
    std::printf("in %s ranks=%d rank=%d m=%d n=%d k=%d %s %s %s\n", std::string(name(c.op)).c_str(),
                world, rank, static_cast<int>(c.m), static_cast<int>(c.n), static_cast<int>(c.k),
                std::string(name(c.x)).c_str(), std::string(name(c.layout)).c_str(), plan);
  check(status);
  const std::vector<float> got = out.get();
  const std::string what =
      std::string(name(c.op)) + " ranks=" + std::to_string(world) + ", " + plan;
  if (first->empty()) *first = got;
  if (std::memcmp(first->data(), got.data(), got.size() * sizeof(float)) != 0)
    fail(what + ": other bits than in the first plan");
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < (scattered ? own : c.m); i += 7) {
    for (std::int64_t j = 0; j < c.n; j += 5) {
      float sum = bias_values[static_cast<std::size_t>(j)];
      for (int r = 0; r < world; ++r) {
        const auto s = static_cast<std::size_t>(r);
        if (sums || r == rank) sum += product(xs[s], ws[s], c, i + (scattered ? begin : 0), j);
      }
      float narrow = sum;
      if (c.out == Dtype::bf16) narrow = static_cast<float>(Bf16(sum));
      if (c.out == Dtype::f16) narrow = static_cast<float>(F16(sum));
      wrong += narrow != got[static_cast<std::size_t>(i * c.n + j)] ? 1 : 0;
    }
  }
  if (wrong != 0) fail(what + ": " + std::to_string(wrong) + " elements are wrong");
  if (gathers && gathered.get() != all) fail(what + ": the gathered rows are wrong");
  // No rank frees its matrices before all ranks have queued their calls: cudaFree would hold them
  // up while it waits for kernels that wait for them.
  barrier(comm);
}

// One for each rank, used by all groups: a GPU runs only 32 of a process's streams independently.
cudaStream_t streams[8] = {};

void run_all(Communicator& comm) {
  check(cudaSetDevice(0));
  cudaStream_t stream = streams[comm.rank()];
  for (const Dtype x : {Dtype::bf16, Dtype::f16}) {
    for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
      for (const Operator op : {Operator::matmul_reduce_scatter, Operator::matmul_all_reduce,
                                Operator::all_gather_matmul, Operator::matmul}) {
        for (const auto& [m, n, k] : {std::tuple{300, 264, 136}, std::tuple{5, 512, 64},
                                      std::tuple{1, 8, 0}, std::tuple{777, 40, 520}}) {
          const Case c = {.op = op,
                          .m = m,
                          .n = n,
                          .k = k,
                          .x = x,
                          .out = m == 300 ? Dtype::f32 : x,
                          .wire = m == 777 ? x : Dtype::f32,
                          .layout = layout};
          std::vector<float> first;
          for (const char* plan : {"serial", "fused", "pipelined parts=3"})
            run_case(c, comm, plan, stream, &first);
        }
      }
    }
  }
}

int check_threads(int only) {
  for (cudaStream_t& stream : streams)
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const int world : {1, 2, 3, 5, 8}) {
    if (only > 0 && world != only) continue;
    alarm(120);
    run_in_threads(world, run_all, {.timeout = std::chrono::seconds(5)});
    std::printf("%d ranks: %d failures\n", world, failures);
    std::fflush(stdout);
  }
  return failures == 0 ? 0 : 1;
}

template <class Call>
void expect_refusal(const char* what, Call&& call) {
  try {
    call();
    fail(std::string(what) + " was not refused");
  } catch (const Error& error) {
    std::printf("%s: %s\n", what, error.what());
  }
}

int check_refusals() {
  run_in_threads(1, [](Communicator& comm) {
    Matrix x(16, 64, Dtype::bf16);
    Matrix w(32, 64, Dtype::bf16);
    Matrix out(16, 32, Dtype::bf16);
    const WeightView weight = {.view = w.view(), .layout = WeightLayout::out_in};
    std::vector<Bf16> on_cpu(16 * 64);
    TensorView host = x.view();
    host.data = on_cpu.data();
    expect_refusal("a host pointer", [&] { matmul(host, weight, out.view(), comm); });
    TensorView as_cpu = x.view();
    as_cpu.device = kCpu;
    expect_refusal("a device pointer on the CPU",
                   [&] { matmul(as_cpu, weight, out.view(), comm); });
    TensorView other = x.view();
    other.device = Device::cuda(7);
    expect_refusal("another device", [&] { matmul(other, weight, out.view(), comm); });
    TensorView odd = x.view().column_range(1, 63);
    const WeightView narrow = {.view = w.view().column_range(0, 62),
                               .layout = WeightLayout::out_in};
    expect_refusal("unaligned rows", [&] { matmul(odd, narrow, out.view(), comm); });
    expect_refusal("another operator",
                   [&] { matmul_all_gather(x.view(), weight, out.view(), comm); });
  });
  run_in_threads(2, [](Communicator& comm) {
    const OpDesc huge = {
        .op = Operator::matmul_reduce_scatter, .m = 1 << 21, .n = 1 << 15, .k = 64, .device = kGpu};
    expect_refusal("too little memory", [&] { prepare(huge, comm); });
  });
  return failures == 0 ? 0 : 1;
}

int check_lost() {
  alarm(60);
  Communicator comm = Communicator::connect();
  check(cudaSetDevice(0));
  Matrix x(512, 256, Dtype::bf16);
  Matrix w(512, 256, Dtype::bf16);
  Matrix out(256, 512, Dtype::bf16);
  const WeightView weight = {.view = w.view(), .layout = WeightLayout::out_in};
  matmul_reduce_scatter(x.view(), weight, out.view(), comm);
  check(cudaDeviceSynchronize());
  if (comm.rank() == 1) {
    usleep(300000);
    raise(SIGKILL);
  }
  matmul_reduce_scatter(x.view(), weight, out.view(), comm);
  const auto begin = std::chrono::steady_clock::now();
  check(cudaDeviceSynchronize());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  try {
    matmul_reduce_scatter(x.view(), weight, out.view(), comm);
    fail("no error after a rank was lost");
  } catch (const Error& error) {
    std::printf("the GPU was free after %.2f s; %s\n", seconds, error.what());
    if (error.culprit() != 1) fail("another culprit than rank 1");
  }
  if (seconds > 2.3) fail("it took too long");
  return failures == 0 ? 0 : 1;
}

int check_processes() {
  alarm(120);
  Communicator comm = Communicator::connect();
  check(cudaSetDevice(0));
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const Operator op : {Operator::matmul_reduce_scatter, Operator::matmul_all_reduce,
                            Operator::all_gather_matmul}) {
    std::vector<float> first;
    const Case c = {.op = op,
                    .m = 300,
                    .n = 264,
                    .k = 136,
                    .x = Dtype::bf16,
                    .out = Dtype::f32,
                    .wire = Dtype::f32,
                    .layout = WeightLayout::out_in};
    for (const char* plan : {"serial", "fused", "pipelined parts=3"})
      run_case(c, comm, plan, stream, &first);
  }
  if (comm.rank() == 0) std::printf("%d processes: %d failures\n", comm.world(), failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("there is no GPU");
    return 77;
  }
  const std::string verb = argc > 1 ? argv[1] : "threads";
  try {
    if (verb == "threads") return check_threads(argc > 2 ? std::atoi(argv[2]) : 0);
    if (verb == "refusals") return check_refusals();
    if (verb == "lost") return check_lost();
    if (verb == "processes") return check_processes();
  } catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
  }
  std::printf("there is no check %s\n", verb.c_str());
  return 2;
}
