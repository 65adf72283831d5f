// Operators on GPUs. They are in a plugin of its own, libplait_cuda.so, which is loaded when a call
// first names a GPU; the core links no driver.
//
//   const LoadedDevices loaded = load_devices();
//   if (loaded.devices == nullptr) std::puts(loaded.refusal.c_str());
//
// Refusals of memory and of streams are phrases that follow a name: "is memory of cuda:1".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/core/plugin.h"
#include "overlap/op_impl.h"
#include "plait/stream.h"

namespace plait::overlap {

struct DeviceInfo {
  int index;
  std::string name;
  std::size_t bytes;  // of its memory
  int multiprocessors;
  int major;  // its compute capability
  int minor;
  std::string refusal = {};  // why plait's kernels don't run on it; empty: they do
};

// An operator on the device that its problem names.
struct DeviceOpSpec {
  Problem problem;  // its m is not used
  WeightKind weight = {};
  std::int64_t shares = 1;   // see OpOptions
  std::string backend = {};  // of the product; empty: the best
};

// The plugin's functions. Several threads may call them at once.
class Devices {
 public:
  virtual ~Devices() = default;

  // Why no GPU can be used: no driver, a driver older than the toolkit, no device. Empty: there is
  // one. The other functions are called only then.
  virtual std::string refusal() const = 0;

  virtual std::vector<DeviceInfo> list() const = 0;

  // Why the data can't be an operand on this device, or on the CPU for kCpu: "is memory of the
  // CPU", "is memory of cuda:1". Empty: it can.
  virtual std::string refusal_of(const void* data, Device device) const = 0;

  // Why the stream can't order work on this device: "belongs to cuda:1". The null stream is the
  // device's default stream.
  virtual std::string refusal_of(Stream stream, Device device) const = 0;

  // Why there is no such operator: "there is no matmul_all_gather on a GPU". Empty: there is.
  virtual std::string refusal_of(const DeviceOpSpec& spec) const = 0;

  // Not collective. A call gives the operator the views as they are, all on its device, `stream`
  // and `tag`, and no Call::bias: the bias is among the operands. run() queues the work in the
  // stream and returns; a later run() raises what goes wrong afterwards. make_room() and cut() are
  // collective. The destructor waits for the work that is queued.
  virtual std::unique_ptr<OpImpl> make_op(const DeviceOpSpec& spec, Communicator& comm) const = 0;
};

// The result of the plugin's entry, plait_cuda_plugin().
struct DevicePlugin : comm::PluginHead {
  const Devices* devices;
};

struct LoadedDevices {
  const Devices* devices = nullptr;
  std::string refusal = {};  // why there are none
  std::vector<DeviceInfo> list = {};
};

// Loads the plugin, once in the life of the process.
const LoadedDevices& load_devices();

// The devices that load_devices() has loaded, or null if it wasn't called or found none.
const Devices* loaded_devices();

// Refuses a device that can't be used, in a sentence that begins with `caller`.
const Devices& devices_for(Device device, std::string_view caller);

// Makes the plugin's operator, and wraps it so that its calls are numbered, and that an error on
// one rank fails all ranks.
std::unique_ptr<OpImpl> make_on_device(const DeviceOpSpec& spec, Communicator& comm);

}  // namespace plait::overlap
