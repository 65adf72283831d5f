#include "comm/build_name.h"
#include "comm/plugin.h"
#include "overlap/cuda/cuda_devices.h"
#include "plait/export.h"

extern "C" PLAIT_EXPORT const plait::comm::PluginHead* plait_cuda_plugin() {
  static const plait::overlap::CudaDevices devices;
  static const plait::overlap::DevicePlugin plugin = {
      // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): it ends with a zero
      {.build = plait::comm::build_name().data()},
      &devices};
  return &plugin;
}
