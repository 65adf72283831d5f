// The plugin: the GPUs of this host, as CUDA's runtime knows them.
#include <cuda_runtime.h>

#include "base/check.h"
#include "comm/core/build_name.h"
#include "comm/core/plugin.h"
#include "overlap/cuda/cuda_op.h"
#include "overlap/cuda/driver.h"
#include "overlap/device.h"
#include "plait/export.h"

namespace plait::overlap {
namespace {

class CudaDevices final : public Devices {
 public:
  std::string refusal() const override;
  std::vector<DeviceInfo> list() const override;
  std::string refusal_of(const void* data, Device device) const override;
  std::string refusal_of(Stream stream, Device device) const override;
  std::string refusal_of(const DeviceOpSpec& spec) const override;
  std::unique_ptr<OpImpl> make_op(const DeviceOpSpec& spec, Communicator& comm) const override;
};

// CUDA keeps the error of a failed call, and a later check would find it: it is cleared here.
std::string text_of(cudaError_t error) {
  cudaGetLastError();
  return cudaGetErrorString(error);
}

DeviceInfo describe(int index) {
  DeviceInfo info = {
      .index = index, .name = {}, .bytes = 0, .multiprocessors = 0, .major = 0, .minor = 0};
  cudaDeviceProp properties = {};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess) {
    info.refusal = text_of(error);
    return info;
  }
  info.name = properties.name;
  info.bytes = properties.totalGlobalMem;
  info.multiprocessors = properties.multiProcessorCount;
  info.major = properties.major;
  info.minor = properties.minor;
  if (info.major != 9 || info.minor != 0)
    info.refusal = "plait's kernels need the compute capability 9.0 (H100, H200)";
  return info;
}

}  // namespace

std::string CudaDevices::refusal() const {
  int driver = 0;
  if (const cudaError_t error = cudaDriverGetVersion(&driver); error != cudaSuccess)
    return text_of(error);
  if (std::string refusal = refusal_of_driver(driver, CUDART_VERSION); !refusal.empty())
    return refusal;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
    return "the driver finds no GPU here";
  return error == cudaSuccess ? std::string() : text_of(error);
}

std::vector<DeviceInfo> CudaDevices::list() const {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
  std::vector<DeviceInfo> all;
  all.reserve(static_cast<std::size_t>(count));
  for (int index = 0; index < count; ++index) all.push_back(describe(index));
  return all;
}

std::string CudaDevices::refusal_of(const void* data, Device device) const {
  cudaPointerAttributes found = {};
  if (const cudaError_t error = cudaPointerGetAttributes(&found, data); error != cudaSuccess)
    return base::sentence("is memory that CUDA does not know: ", text_of(error));
  const bool is_on_gpu = found.type == cudaMemoryTypeDevice;
  if (found.type == cudaMemoryTypeManaged) return {};  // it moves to where it is used
  if (device == kCpu)
    return is_on_gpu ? base::sentence("is memory of ", name(Device::cuda(found.device))) : "";
  if (!is_on_gpu) return "is memory of the CPU";
  if (found.device == device.index) return {};
  return base::sentence("is memory of ", name(Device::cuda(found.device)));
}

std::string CudaDevices::refusal_of(Stream stream, Device device) const {
  auto* const handle = static_cast<cudaStream_t>(stream.handle);
  // Each thread has these streams on each device.
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) return {};
  int index = 0;
  if (const cudaError_t error = cudaStreamGetDevice(handle, &index); error != cudaSuccess)
    return base::sentence("is none of CUDA's: ", text_of(error));
  if (index == device.index) return {};
  return base::sentence("belongs to ", name(Device::cuda(index)));
}

std::string CudaDevices::refusal_of(const DeviceOpSpec& spec) const {
  return cuda::refusal_of(spec);
}

std::unique_ptr<OpImpl> CudaDevices::make_op(const DeviceOpSpec& spec, Communicator& comm) const {
  return cuda::make_op(spec, comm);
}

}  // namespace plait::overlap

extern "C" PLAIT_EXPORT const plait::comm::PluginHead* plait_cuda_plugin() {
  static const plait::overlap::CudaDevices devices;
  static const plait::overlap::DevicePlugin plugin = {
      // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): it ends with a zero
      {.build = plait::comm::build_name().data()},
      &devices};
  return &plugin;
}
