// Checks products by 8-bit weights on a GPU, and measures them. Needs nothing but the GPU.
//
//   w8_check          checks, then measures
//   w8_check check    only checks
//   w8_check time     only measures
//
// 1. Small whole numbers, whose sums f32 has exactly: every bit must be right, for every tile.
// 2. Random numbers: within the bound that follows from the number of terms; every row has the same
//    bits for every number of rows and every tile.
// A wait that does not end stops the program with exit status 3.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gemm/cuda/w8.h"

namespace {

using plait::Dtype;
using plait::gemm::cuda::W8Call;
using plait::gemm::cuda::W8Weight;

int failures = 0;
int passed = 0;

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED: %s: %s\n", what, cudaGetErrorString(error));
  std::fflush(stdout);
  std::_Exit(2);
}

void expect(bool good, const std::string& what) {
  good ? ++passed : ++failures;
  if (!good) std::printf("WRONG: %s\n", what.c_str());
  std::fflush(stdout);
}

void on_alarm(int) {
  constexpr char kText[] = "FAILED: a kernel does not end\n";
  [[maybe_unused]] const auto written = write(1, kText, sizeof(kText) - 1);
  std::_Exit(3);
}

template <class T>
struct Device {
  T* data = nullptr;
  std::size_t count = 0;
  explicit Device(std::size_t n) : count(n) {
    must(cudaMalloc(&data, std::max<std::size_t>(n, 1) * sizeof(T)), "cudaMalloc");
  }
  ~Device() { cudaFree(data); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  std::vector<T> host() const {
    std::vector<T> copy(count);
    must(cudaMemcpy(copy.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost), "copy back");
    return copy;
  }
};

__host__ __device__ std::uint32_t mixed(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return static_cast<std::uint32_t>(x ^ (x >> 33));
}

struct Scheme {
  int group;  // 0: per channel
  bool offsets;
  bool per_tensor;
};

struct Numbers {
  bool whole;  // small whole numbers and powers of two
  std::uint64_t seed;
};

__global__ void fill_values(std::int8_t* to, std::size_t count, Numbers numbers) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  const std::uint32_t r = mixed(i + numbers.seed);
  to[i] = static_cast<std::int8_t>(numbers.whole ? static_cast<int>(r % 15) - 7
                                                 : static_cast<int>(r % 256) - 128);
}

__global__ void fill_scales(float* to, std::size_t count, Numbers numbers, bool same) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  const std::uint32_t r = mixed((same ? 0 : i) + numbers.seed + 77);
  to[i] = numbers.whole ? ldexpf(1, static_cast<int>(r % 3)) : 0.001F + r * 1e-12F;
  if (r % 5 == 0) to[i] = -to[i];
}

template <class T>
__global__ void fill_rows(T* to, std::size_t count, Numbers numbers) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  const std::uint32_t r = mixed(i + numbers.seed + 991);
  to[i] = T(numbers.whole ? static_cast<float>(static_cast<int>(r % 5) - 2)
                          : static_cast<float>(static_cast<int>(r)) * 4.6e-10F);
}

struct Problem {
  const void* x;
  const std::int8_t* values;
  const float* scales;
  const std::int8_t* offsets;
  const float* bias;
  int m, n, k, x_stride, group;
  bool bf16;
};

// The sum in f64, and the sum of magnitudes that its bound needs.
__global__ void reference(Problem p, double* sum, double* size) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y;
  if (n >= p.n) return;
  double total = 0;
  double magnitudes = 0;
  for (int k = 0; k < p.k; ++k) {
    const std::size_t at = static_cast<std::size_t>(m) * p.x_stride + k;
    const double x = p.bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(p.x)[at])
                            : __half2float(static_cast<const __half*>(p.x)[at]);
    const std::size_t part = (p.group == 0 ? 0 : k / p.group) * std::size_t(p.n) + n;
    const int offset = p.offsets == nullptr ? 0 : p.offsets[part];
    const double w = (p.values[static_cast<std::size_t>(n) * p.k + k] + offset) *
                     static_cast<double>(p.scales[part]);
    total += x * w;
    magnitudes += fabs(x * w);
  }
  const double bias = p.bias == nullptr ? 0 : p.bias[n];
  sum[static_cast<std::size_t>(m) * p.n + n] = total + bias;
  size[static_cast<std::size_t>(m) * p.n + n] = magnitudes + fabs(bias);
}

unsigned grid_of(std::size_t count) { return static_cast<unsigned>((count + 255) / 256); }

double value_of(const unsigned char* at, Dtype dtype) {
  if (dtype == Dtype::f32) {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, 2);
  if (dtype == Dtype::bf16) {
    const std::uint32_t wide = std::uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }
  __half_raw raw;
  raw.x = bits;
  return __half2float(__half(raw));
}

struct Shape {
  int m, n, k;
};

// A weight, rows and everything to multiply them.
struct Setting {
  Shape shape;
  Scheme scheme;
  Dtype in;
  int x_stride;
  Device<std::int8_t> values;
  Device<float> scales;
  Device<std::int8_t> offsets;
  Device<float> bias;
  Device<std::uint16_t> x;
  W8Weight weight;
  Device<unsigned char> packed;

  static std::size_t parts(const Shape& s, const Scheme& scheme) {
    return scheme.group == 0 ? s.n : std::size_t(s.n) * ((s.k + scheme.group - 1) / scheme.group);
  }

  Setting(Shape s, Scheme q, Dtype dtype, Numbers numbers)
      : shape(s),
        scheme(q),
        in(dtype),
        x_stride((s.k + 7) / 8 * 8),
        values(std::size_t(s.n) * s.k),
        scales(parts(s, q)),
        offsets(parts(s, q)),
        bias(s.n),
        x(std::size_t(s.m) * x_stride),
        weight{.n = s.n, .k = s.k, .group = q.group},
        packed(plait::gemm::cuda::w8_bytes(weight)) {
    fill_values<<<grid_of(values.count), 256>>>(values.data, values.count, numbers);
    fill_scales<<<grid_of(scales.count), 256>>>(scales.data, scales.count, numbers, q.per_tensor);
    fill_values<<<grid_of(offsets.count), 256>>>(offsets.data, offsets.count,
                                                 {numbers.whole, numbers.seed + 5});
    fill_scales<<<grid_of(bias.count), 256>>>(bias.data, bias.count,
                                              {numbers.whole, numbers.seed + 6}, false);
    if (in == Dtype::bf16) {
      fill_rows<<<grid_of(x.count), 256>>>(reinterpret_cast<__nv_bfloat16*>(x.data), x.count,
                                           numbers);
    } else {
      fill_rows<<<grid_of(x.count), 256>>>(reinterpret_cast<__half*>(x.data), x.count, numbers);
    }
    // Memory that packing must overwrite wherever the kernel reads.
    must(cudaMemset(packed.data, 0x7F, packed.count), "memset");
    weight.memory = packed.data;
    must(plait::gemm::cuda::pack_w8({.values = values.data,
                                     .scales = scales.data,
                                     .offsets = q.offsets ? offsets.data : nullptr},
                                    weight, nullptr),
         "pack_w8");
    must(cudaDeviceSynchronize(), "packing");
  }

  // The first `rows` rows of the product, with `guard` bytes of 0xA5 behind.
  std::vector<unsigned char> product(int rows, int tile, Dtype out, bool with_bias,
                                     const std::string& what) const {
    constexpr std::size_t kGuard = 256;
    const std::size_t bytes = std::size_t(rows) * shape.n * plait::size_of(out);
    Device<unsigned char> y(bytes + kGuard);
    must(cudaMemset(y.data, 0xA5, y.count), "memset");
    const W8Call call = {.x = x.data,
                         .m = rows,
                         .out = y.data,
                         .x_stride = x_stride,
                         .bias = with_bias ? bias.data : nullptr,
                         .in = in,
                         .out_dtype = out};
    const char* refusal = plait::gemm::cuda::w8_refusal(call, weight);
    if (refusal != nullptr) expect(false, what + ": refused: " + refusal);
    must(plait::gemm::cuda::multiply_w8(call, weight, tile, nullptr), what.c_str());
    alarm(20);
    must(cudaDeviceSynchronize(), what.c_str());
    alarm(0);
    std::vector<unsigned char> result = y.host();
    bool untouched = true;
    for (std::size_t i = bytes; i < result.size(); ++i) untouched &= result[i] == 0xA5;
    if (!untouched) expect(false, what + ": wrote behind the result");
    result.resize(bytes);
    return result;
  }

  void exact(bool with_bias, std::vector<double>& sum, std::vector<double>& size) const {
    Device<double> s(std::size_t(shape.m) * shape.n);
    Device<double> z(s.count);
    const Problem p = {x.data,
                       values.data,
                       scales.data,
                       scheme.offsets ? offsets.data : nullptr,
                       with_bias ? bias.data : nullptr,
                       shape.m,
                       shape.n,
                       shape.k,
                       x_stride,
                       scheme.group,
                       in == Dtype::bf16};
    reference<<<dim3((shape.n + 127) / 128, shape.m), 128>>>(p, s.data, z.data);
    must(cudaDeviceSynchronize(), "reference");
    sum = s.host();
    size = z.host();
  }

  std::string text() const {
    std::string result = std::string(in == Dtype::bf16 ? "bf16" : "f16") + " m " +
                         std::to_string(shape.m) + " n " + std::to_string(shape.n) + " k " +
                         std::to_string(shape.k);
    result += scheme.group != 0   ? " group " + std::to_string(scheme.group)
              : scheme.per_tensor ? " tensor"
                                  : " channel";
    return result + (scheme.offsets ? " offsets" : "");
  }
};

std::string with_tile(const Setting& s, int tile) {
  return s.text() + " tile " + (tile < 0 ? "best" : plait::gemm::cuda::w8_tile_name(tile));
}

void check_within(const Setting& s, const std::vector<unsigned char>& got, Dtype out,
                  bool with_bias, double per_size, const std::string& what) {
  std::vector<double> sum;
  std::vector<double> size;
  s.exact(with_bias, sum, size);
  const double u = per_size == 0 ? 0 : plait::unit_roundoff(out);
  double worst = 0;
  std::size_t where = 0;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double y = value_of(&got[i * plait::size_of(out)], out);
    const double limit = per_size * size[i] * (1 + u) + u * std::abs(sum[i]);
    const double error = std::abs(y - sum[i]);
    if (error <= limit) continue;
    ++wrong;
    if (!(error - limit <= worst)) {
      worst = error - limit;
      where = i;
    }
  }
  if (wrong == 0) return expect(true, what);
  char text[200];
  std::snprintf(text, sizeof(text), "%s: %zu of %zu; row %zu column %zu is %.9g, exact %.9g",
                what.c_str(), wrong, sum.size(), where / s.shape.n, where % s.shape.n,
                value_of(&got[where * plait::size_of(out)], out), sum[where]);
  expect(false, text);
}

// Whole numbers: |sum| < 2^24 at every step, so f32 is exact whatever the order.
void check_exact(Shape shape, Scheme scheme, Dtype in) {
  const Setting s(shape, scheme, in, {true, 1});
  for (int tile = 0; tile < plait::gemm::cuda::w8_tiles(); ++tile) {
    const std::string what = "exact, " + with_tile(s, tile);
    check_within(s, s.product(shape.m, tile, Dtype::f32, true, what), Dtype::f32, true, 0, what);
  }
}

void check_random(Shape shape, Scheme scheme, Dtype in, Dtype out) {
  const Setting s(shape, scheme, in, {false, 2});
  // Tensor cores cut off what f32 cannot hold instead of rounding it: twice the unit roundoff for
  // each of k additions; and for each group a multiplication and an addition, and the bias.
  const int groups = scheme.group == 0 ? 1 : (shape.k + scheme.group - 1) / scheme.group;
  const double nu = (2.0 * shape.k + 2.0 * groups + 1) * 0x1p-24;
  const std::string what = "random, " + with_tile(s, -1) + " out " +
                           (out == Dtype::f32    ? "f32"
                            : out == Dtype::bf16 ? "bf16"
                                                 : "f16");
  const auto all = s.product(shape.m, -1, out, true, what);
  check_within(s, all, out, true, nu / (1 - nu), what);
  const std::size_t row = std::size_t(shape.n) * plait::size_of(out);
  for (int tile = -1; tile < plait::gemm::cuda::w8_tiles(); ++tile) {
    for (int rows : {1, 3, 17, 64, 100, shape.m}) {
      if (rows > shape.m) continue;
      const std::string name = "bits, " + with_tile(s, tile) + " rows " + std::to_string(rows);
      const auto some = s.product(rows, tile, out, true, name);
      expect(std::memcmp(some.data(), all.data(), rows * row) == 0, name);
    }
  }
}

void check() {
  const Scheme schemes[] = {{0, false, true},   {0, true, false},   {32, true, false},
                            {64, false, false}, {128, true, false}, {256, true, false}};
  const Shape small[] = {{1, 64, 64},     {8, 64, 128},   {3, 64, 1024}, {17, 130, 520},
                         {100, 200, 344}, {130, 333, 72}, {40, 100, 77}, {300, 1638, 1024}};
  for (const Dtype in : {Dtype::bf16, Dtype::f16}) {
    for (const Scheme& scheme : schemes) {
      for (const Shape& shape : small) check_exact(shape, scheme, in);
      std::printf("exact: %d right, %d wrong\n", passed, failures);
      if (failures > 20) return;
    }
  }
  for (const Dtype in : {Dtype::bf16, Dtype::f16}) {
    for (const Scheme& scheme : schemes) {
      check_random({512, 1638, 4112}, scheme, in, Dtype::f32);
      check_random({1023, 704, 1024}, scheme, in, in);
      std::printf("random: %d right, %d wrong\n", passed, failures);
      if (failures > 20) return;
    }
  }
  check_random({64, 4096, 8192}, schemes[1], Dtype::bf16, Dtype::f16);
}

// Seconds of one product: a graph of products with weights that are too many for the cache,
// median of replays.
double seconds(const W8Call& call, const W8Weight& weight, const std::vector<void*>& copies,
               int tile) {
  cudaStream_t stream;
  must(cudaStreamCreate(&stream), "stream");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (void* copy : copies) {
    W8Weight other = weight;
    other.memory = copy;
    must(plait::gemm::cuda::multiply_w8(call, other, tile, stream), "multiply");
  }
  must(cudaStreamEndCapture(stream, &graph), "capture");
  must(cudaGraphInstantiate(&exec, graph, 0), "graph");
  cudaEvent_t start;
  cudaEvent_t end;
  must(cudaEventCreate(&start), "event");
  must(cudaEventCreate(&end), "event");
  std::vector<float> times;
  alarm(30);
  for (int i = 0; i < 13; ++i) {
    must(cudaEventRecord(start, stream), "record");
    must(cudaGraphLaunch(exec, stream), "launch");
    must(cudaEventRecord(end, stream), "record");
    must(cudaStreamSynchronize(stream), "products");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, start, end), "elapsed");
    if (i >= 2) times.push_back(ms);
  }
  alarm(0);
  std::sort(times.begin(), times.end());
  cudaEventDestroy(start);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return times[times.size() / 2] * 1e-3 / copies.size();
}

void time_shape(int n, int k, int group) {
  const Setting s({4096, n, k}, {group, false, false}, Dtype::bf16, {false, 3});
  Device<std::uint16_t> out(std::size_t(4096) * n);
  const std::size_t bytes = s.packed.count;
  const std::size_t number = std::max<std::size_t>(3, (std::size_t{160} << 20) / bytes + 1);
  Device<unsigned char> more(number * bytes);
  std::vector<void*> copies;
  for (std::size_t i = 0; i < number; ++i) {
    copies.push_back(more.data + i * bytes);
    must(cudaMemcpy(copies.back(), s.packed.data, bytes, cudaMemcpyDeviceToDevice), "copy");
  }
  for (int m : {1, 16, 64, 128, 512, 2048, 4096}) {
    const W8Call call = {.x = s.x.data, .m = m, .out = out.data};
    const int best = plait::gemm::cuda::w8_best_tile(m, n, 132);
    for (int tile = 0; tile < plait::gemm::cuda::w8_tiles(); ++tile) {
      const bool few = m <= 64 && (tile == best || tile == best + 1);
      const bool many = m > 64 && tile >= 3;
      if (!few && !many) continue;
      const double t = seconds(call, s.weight, copies, tile);
      std::printf("k %5d n %5d group %3d m %4d tile %-8s%s %8.2f us %7.1f TFLOP/s %7.0f GB/s\n", k,
                  n, group, m, plait::gemm::cuda::w8_tile_name(tile), tile == best ? "*" : " ",
                  t * 1e6, 2.0 * m * n * k / t * 1e-12, bytes / t * 1e-9);
      std::fflush(stdout);
    }
  }
}

void time_all() {
  const int sizes[][2] = {{7168, 8192}, {8192, 1024}, {14336, 7168}};
  for (const auto& size : sizes) time_shape(size[0], size[1], 0);
  time_shape(7168, 8192, 128);
  time_shape(7168, 8192, 64);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGALRM, on_alarm);
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaDeviceProp properties;
  must(cudaGetDeviceProperties(&properties, 0), "no GPU");
  std::printf("%s, %d multiprocessors\n", properties.name, properties.multiProcessorCount);
  if (what != "time") check();
  std::printf("%d right, %d wrong\n", passed, failures);
  if (what != "check") time_all();
  return failures == 0 ? 0 : 1;
}
