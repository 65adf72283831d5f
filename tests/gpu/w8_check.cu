// Checks products by 8-bit weights on a GPU, and measures them. Needs nothing but the GPU.
//
//   w8_check          checks, then measures
//   w8_check check    only checks
//   w8_check time     only measures
//
// 1. Small whole numbers, whose sums f32 has exactly: every bit must be right, for every tile.
// 2. Random numbers: within the bound that follows from the number of terms; every row has the same
//    bits for every number of rows and every tile.
//
// Exit status: 0 all is right, 1 something is not, 2 a call of CUDA failed, 3 a kernel did not end,
// 77 there is no GPU.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>

#include "gpu/w8_case.cuh"

namespace plait::gpu {
namespace {

void on_alarm(int) {
  constexpr char kText[] = "FAILED: a kernel does not end\n";
  [[maybe_unused]] const auto written = write(1, kText, sizeof(kText) - 1);
  std::_Exit(3);
}

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

std::string with_tile(const W8Case& s, int tile) {
  return s.text() + " tile " + (tile < 0 ? "best" : w8_tile_name(tile));
}

void check_within(const W8Case& s, const std::vector<unsigned char>& got, Dtype out, bool with_bias,
                  double per_size, const std::string& what) {
  std::vector<double> sum;
  std::vector<double> size;
  s.exact(with_bias, sum, size);
  const double u = per_size == 0 ? 0 : unit_roundoff(out);
  double worst = 0;
  std::size_t where = 0;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double y = value_of(&got[i * size_of(out)], out);
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
                value_of(&got[where * size_of(out)], out), sum[where]);
  expect(false, text);
}

// Whole numbers: |sum| < 2^24 at every step, so f32 is exact whatever the order.
void check_exact(Shape shape, Scheme scheme, Dtype in) {
  const W8Case s(shape, scheme, in, {true, 1});
  for (int tile = 0; tile < w8_tiles(); ++tile) {
    const std::string what = "exact, " + with_tile(s, tile);
    check_within(s, s.product(shape.m, tile, Dtype::f32, true, what), Dtype::f32, true, 0, what);
  }
}

void check_random(Shape shape, Scheme scheme, Dtype in, Dtype out) {
  const W8Case s(shape, scheme, in, {false, 2});
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
  const std::size_t row = std::size_t(shape.n) * size_of(out);
  for (int tile = -1; tile < w8_tiles(); ++tile) {
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
    must(multiply_w8(call, other, tile, stream), "multiply");
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
  const W8Case s({4096, n, k}, {group, false, false}, Dtype::bf16, {false, 3});
  DeviceBuffer<std::uint16_t> out(std::size_t(4096) * n);
  const std::size_t bytes = s.packed.count();
  const std::size_t number = std::max<std::size_t>(3, (std::size_t{160} << 20) / bytes + 1);
  DeviceBuffer<unsigned char> more(number * bytes);
  std::vector<void*> copies;
  for (std::size_t i = 0; i < number; ++i) {
    copies.push_back(more.data() + i * bytes);
    must(cudaMemcpy(copies.back(), s.packed.data(), bytes, cudaMemcpyDeviceToDevice), "copy");
  }
  for (int m : {1, 16, 64, 128, 512, 2048, 4096}) {
    const W8Call call = {.x = s.x.data(), .m = m, .out = out.data()};
    const int best = w8_best_tile(m, n, 132);
    for (int tile = 0; tile < w8_tiles(); ++tile) {
      const bool few = m <= 64 && (tile == best || tile == best + 1);
      const bool many = m > 64 && tile >= 3;
      if (!few && !many) continue;
      const double t = seconds(call, s.weight, copies, tile);
      std::printf("k %5d n %5d group %3d m %4d tile %-8s%s %8.2f us %7.1f TFLOP/s %7.0f GB/s\n", k,
                  n, group, m, w8_tile_name(tile), tile == best ? "*" : " ", t * 1e6,
                  2.0 * m * n * k / t * 1e-12, bytes / t * 1e-9);
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
}  // namespace plait::gpu

int main(int argc, char** argv) {
  using namespace plait::gpu;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("there is no GPU");
    return 77;
  }
  std::signal(SIGALRM, on_alarm);
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaDeviceProp properties;
  must(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("%s, %d multiprocessors\n", properties.name, properties.multiProcessorCount);
  if (what != "time") check();
  std::printf("%d right, %d wrong\n", passed, failures);
  if (what != "check") time_all();
  return failures == 0 ? 0 : 1;
}
