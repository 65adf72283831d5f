#include "overlap/device.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "overlap/calls.h"

namespace plait::overlap {
namespace {

constexpr comm::PluginFile kPlugin = {.name = "libplait_cuda.so",
                                      .entry_point = "plait_cuda_plugin"};

// Memory ordering: acquire and release, so that a thread that sees the plugin sees what it has set
// up when it was loaded.
std::atomic<const Devices*> usable_devices{nullptr};

LoadedDevices load() {
  const comm::LoadedPlugin loaded = comm::load_plugin(kPlugin);
  if (loaded.head == nullptr) return {.refusal = loaded.refusal};
  const Devices* devices = static_cast<const DevicePlugin*>(loaded.head)->devices;
  if (std::string refusal = devices->refusal(); !refusal.empty())
    return {.refusal = std::move(refusal)};
  usable_devices.store(devices, std::memory_order_release);  // pairs with loaded_devices()
  return {.devices = devices, .list = devices->list()};
}

// Why this GPU can't be used, though others can.
std::string refusal_of(Device device, const std::vector<DeviceInfo>& list) {
  const auto found = std::find_if(
      list.begin(), list.end(), [&](const DeviceInfo& info) { return info.index == device.index; });
  if (found != list.end()) return found->refusal;
  return list.size() == 1 ? "there is one GPU, cuda:0"
                          : base::sentence("there are GPUs from cuda:0 to cuda:", list.size() - 1);
}

class OnDevice final : public OpImpl {
 public:
  OnDevice(const DeviceOpSpec& spec, Communicator& comm, std::unique_ptr<OpImpl> op)
      : problem_(spec.problem),
        state_(comm.state()),
        has_peers_(traits_of(spec.problem.op).communicates() && comm.world() > 1),
        op_(std::move(op)) {}

  void make_room(std::int64_t m, const Plan& plan) override { op_->make_room(m, plan); }

  void run(const Call& call) override {
    if (!has_peers_) return op_->run(call);
    const OperatorTraits& traits = traits_of(problem_.op);
    Call numbered = call;
    numbered.tag = tag_;
    // Either all ranks add a bias to the sum, or none does.
    if (call.operands.bias.data != nullptr && (traits.compute_first || traits.reduces))
      numbered.tag.sizes[2] += kTagBias;
    const PollHook poll(call.poll);
    run_call(state_, numbered.tag, poll, [&](const Tag& tag) {
      numbered.tag = tag;
      op_->run(numbered);
    });
  }

  std::size_t held_bytes() const override { return op_->held_bytes(); }

 private:
  void cut(std::int64_t m, const Plan& plan) override {
    problem_.m = m;
    tag_ = tag_of(problem_, plan);
    op_->fit(m, plan);
  }

  Problem problem_;
  Communicator::State& state_;
  bool has_peers_;
  Tag tag_;
  std::unique_ptr<OpImpl> op_;
};

}  // namespace

const LoadedDevices& load_devices() {
  static const LoadedDevices loaded = load();
  return loaded;
}

const Devices* loaded_devices() {
  return usable_devices.load(std::memory_order_acquire);  // pairs with load()
}

const Devices& devices_for(Device device, std::string_view caller) {
  const LoadedDevices& loaded = load_devices();
  const std::string refusal =
      loaded.devices == nullptr ? loaded.refusal : refusal_of(device, loaded.list);
  PLAIT_CHECK(refusal.empty(), caller, ": ", name(device), " cannot be used: ", refusal);
  return *loaded.devices;
}

std::unique_ptr<OpImpl> make_on_device(const DeviceOpSpec& spec, Communicator& comm) {
  const std::string_view op = name(spec.problem.op);
  const Devices& devices = devices_for(spec.problem.device, op);
  const std::string refusal = devices.refusal_of(spec);
  PLAIT_CHECK(refusal.empty(), op, ": ", refusal);
  return std::make_unique<OnDevice>(spec, comm, devices.make_op(spec, comm));
}

}  // namespace plait::overlap
