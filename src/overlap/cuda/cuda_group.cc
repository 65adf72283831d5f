#include "overlap/cuda/cuda_group.h"

#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"
#include "comm/session/gather.h"
#include "comm/session/state.h"

namespace plait::overlap::cuda {

// Memory of a GPU. Ranks that are threads of one process hold one another's, so that none is freed
// while another can still write there.
class CudaGroup::Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    status_ = cudaMalloc(&data_, std::max<std::size_t>(bytes, 16));
    if (status_ == cudaSuccess) status_ = cudaMemset(data_, 0, bytes);
    if (status_ == cudaSuccess) status_ = cudaDeviceSynchronize();
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (data_ != nullptr) cudaFree(data_);
  }

  char* data() const { return static_cast<char*>(data_); }
  std::size_t bytes() const { return bytes_; }
  cudaError_t status() const { return status_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
  cudaError_t status_;
};

// A rank's description of its part of the mailbox for the others.
struct CudaGroup::Offer {
  std::int64_t process;
  const void* address;
  cudaIpcMemHandle_t handle;
  int device;
  int status;  // a cudaError_t: whether its memory could be made
};

namespace {

// The memory of this process's ranks by its address.
template <class Memory>
struct Shared {
  std::mutex mutex;
  std::map<const void*, std::weak_ptr<Memory>> all;

  static Shared& instance() {
    static Shared shared;
    return shared;
  }
};

struct Whereabouts {
  std::int64_t process;
  int device;
};

}  // namespace

std::shared_ptr<CudaGroup> CudaGroup::of(Communicator& comm, Device device, bool alone) {
  using Groups = std::map<std::pair<int, bool>, std::shared_ptr<CudaGroup>>;
  std::shared_ptr<void>& kept = comm.state().kept(typeid(CudaGroup));
  if (kept == nullptr) kept = std::make_shared<Groups>();
  std::shared_ptr<CudaGroup>& group = (*static_cast<Groups*>(kept.get()))[{device.index, alone}];
  if (group == nullptr) group = std::make_shared<CudaGroup>(comm, device, alone);
  return group;
}

CudaGroup::CudaGroup(Communicator& comm, Device device, bool alone)
    : device_(device.index), rank_(alone ? 0 : comm.rank()), world_(alone ? 1 : comm.world()) {
  constexpr std::string_view kWhere = "making a group of ranks on GPUs";
  PLAIT_CHECK(world_ <= kMostRanks, kWhere, ": there are ", world_,
              " ranks; operators on GPUs have at most ", kMostRanks);
  PLAIT_CHECK(alone || comm.state().hosts() == 1, kWhere, ": ranks are on ", comm.state().hosts(),
              " hosts; operators on GPUs are for ranks of one host");
  const OnGpu on(device_);
  check_cuda(load_kernels(), kWhere);
  find_peers(comm);
  words_ = std::make_shared<Memory>(4096);
  check_cuda(words_->status(), kWhere);
  record_ = make_record(kWhere);
  auto* words = reinterpret_cast<unsigned int*>(words_->data());
  mailbox_.waits = {
      .record = record_.get(),
      .gave_up = words,
      .epoch = words + 1,
      .timeout = static_cast<unsigned long long>(comm.state().group().policy().timeout)};
  mailbox_.counters = reinterpret_cast<Counters*>(words + 2);
  mailbox_.zeros = words_->data() + 1024;
  side_ = make_stream(kWhere);
  for (OwnedEvent* event : {&fork_, &join_, &queued_}) *event = make_event(kWhere);
  mailbox_.side = side_.get();
  mailbox_.fork = fork_.get();
  mailbox_.join = join_.get();
  group_ = &comm.state().group();
  if (world_ > 1)
    watcher_ = std::make_unique<Watcher>(comm.state().group(), processes_, mailbox_.waits);
}

CudaGroup::~CudaGroup() {
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(device_);
  cudaDeviceSynchronize();  // the watcher ends waits for lost ranks
  watcher_.reset();
  for (void* memory : imported_)
    if (memory != nullptr) cudaIpcCloseMemHandle(memory);
  for (OwnedEvent* event : {&fork_, &join_, &queued_}) event->reset();
  side_.reset();
  record_.reset();
  cudaSetDevice(before);
}

// Ranks that are threads of one process and use one GPU divide its multiprocessors, because their
// kernels must run at the same time. Processes take turns.
void CudaGroup::find_peers(Communicator& comm) {
  const Whereabouts mine = {.process = ::getpid(), .device = device_};
  const std::vector<Whereabouts> all =
      world_ == 1 ? std::vector{mine} : comm::gather_values(mine, comm);
  int sharing = 0;
  for (const Whereabouts& one : all) {
    processes_.push_back(one.process);
    sharing += one.process == mine.process && one.device == mine.device ? 1 : 0;
  }
  int multiprocessors = 0;
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device_),
             "making a group of ranks on GPUs");
  // A cluster's two blocks must be neighbours: some places stay empty when several share.
  blocks_ = sharing == 1 ? multiprocessors : std::max(2, (multiprocessors / sharing - 2) / 2 * 2);
}

std::size_t CudaGroup::held_bytes() const {
  return (own_ ? own_->bytes() : 0) + (staged_ ? staged_->bytes() : 0);
}

void CudaGroup::make_room(const MailboxNeeds& needs, Communicator& comm, std::string_view caller) {
  if (needs.flags <= room_.flags && needs.bytes <= room_.bytes && needs.staged <= room_.staged)
    return;
  const OnGpu on(device_);
  drop_mailbox(comm, caller);
  room_ = {.flags = std::max(needs.flags, room_.flags),
           .bytes = std::max(needs.bytes, room_.bytes),
           .staged = std::max(needs.staged, room_.staged)};
  staged_ = std::make_shared<Memory>(static_cast<std::size_t>(room_.staged));
  own_ = std::make_shared<Memory>(static_cast<std::size_t>(mailbox_bytes(room_)));
  Offer mine = {.process = ::getpid(),
                .address = own_->data(),
                .handle = {},
                .device = device_,
                .status = own_->status() != cudaSuccess ? own_->status() : staged_->status()};
  const bool has_processes =
      std::any_of(processes_.begin(), processes_.end(),
                  [&](std::int64_t process) { return process != ::getpid(); });
  if (mine.status == cudaSuccess && has_processes)
    mine.status = cudaIpcGetMemHandle(&mine.handle, own_->data());
  auto& shared = Shared<Memory>::instance();
  {
    const std::lock_guard lock(shared.mutex);
    shared.all[own_->data()] = own_;
  }
  cudaGetLastError();
  const std::vector<Offer> offers = comm::gather_values(mine, comm);
  for (int r = 0; r < world_; ++r) {
    const auto status = static_cast<cudaError_t>(offers[static_cast<std::size_t>(r)].status);
    if (status == cudaSuccess) continue;
    room_ = {};
    base::fail(Code::system,
               base::sentence("rank ", r, " could not make its mailbox of ", mailbox_bytes(needs),
                              " bytes: ", cudaGetErrorString(status)));
  }
  mailbox_.flags = room_.flags;
  mailbox_.bytes = room_.bytes;
  mailbox_.staged = staged_->data();
  for (int r = 0; r < world_; ++r) open(offers[static_cast<std::size_t>(r)], r, caller);
  // No rank writes before all have opened it.
  comm::gather_values(0, comm);
}

// No rank frees what another may still write to.
void CudaGroup::drop_mailbox(Communicator& comm, std::string_view caller) {
  if (own_ == nullptr) return;
  check_cuda(cudaDeviceSynchronize(), caller);
  comm::gather_values(0, comm);
  for (void*& memory : imported_) {
    if (memory != nullptr) check_cuda(cudaIpcCloseMemHandle(memory), caller);
    memory = nullptr;
  }
  imported_.clear();
  of_peers_.clear();
  comm::gather_values(0, comm);
  own_.reset();
  staged_.reset();
  // The new mailbox has no flags of earlier calls.
  check_cuda(cudaMemset(words_->data(), 0, words_->bytes()), caller);
}

void CudaGroup::open(const Offer& offer, int rank, std::string_view caller) {
  if (offer.device != device_) {
    int can = 0;
    check_cuda(cudaDeviceCanAccessPeer(&can, device_, offer.device), caller);
    // An error of the system, so that it also fails the ranks that wait for this one.
    if (can == 0) {
      base::fail(Code::system, base::sentence("cuda:", device_, " can't reach the memory of cuda:",
                                              offer.device, ", where rank ", rank, " is"));
    }
    if (offer.process == ::getpid()) {
      const cudaError_t status = cudaDeviceEnablePeerAccess(offer.device, 0);
      if (status != cudaErrorPeerAccessAlreadyEnabled) check_cuda(status, caller);
      cudaGetLastError();
    }
  }
  char*& base = mailbox_.base[rank];
  if (rank == rank_) {
    base = own_->data();
  } else if (offer.process == ::getpid()) {
    auto& shared = Shared<Memory>::instance();
    const std::lock_guard lock(shared.mutex);
    of_peers_.push_back(shared.all[offer.address].lock());
    if (of_peers_.back() == nullptr)
      base::fail(Code::system, base::sentence("rank ", rank, " has left the group"));
    base = of_peers_.back()->data();
  } else {
    void* memory = nullptr;
    check_cuda(cudaIpcOpenMemHandle(&memory, offer.handle, cudaIpcMemLazyEnablePeerAccess), caller);
    imported_.push_back(memory);
    base = static_cast<char*>(memory);
  }
}

void CudaGroup::raise_if_failed(std::string_view caller) const {
  if (group_ != nullptr) group_->raise_if_failed();
  const volatile comm::cuda::Record& record = *record_;
  const auto trouble = static_cast<comm::cuda::Trouble>(record.trouble);
  if (trouble == comm::cuda::Trouble::none) return;
  const int peer = record.peer;
  const int place = record.place;
  const std::string what =
      place < 0 ? std::string("the beginning of its call") : base::sentence("chunk ", place);
  switch (trouble) {
    case comm::cuda::Trouble::mismatch:
      throw Error(Code::mismatch,
                  base::sentence(caller, ": on the GPU, rank ", peer,
                                 " was in another call than rank ", rank_),
                  peer);
    case comm::cuda::Trouble::stopped:
      if (peer < 0) break;  // the group has failed, and says why
      throw Error(Code::peer_lost,
                  base::sentence(caller, ": rank ", peer, " was lost; an earlier call on the GPU ",
                                 "may have ended without it"),
                  peer);
    default:
      throw Error(Code::timeout,
                  base::sentence(caller, ": an earlier call on the GPU waited ",
                                 mailbox_.waits.timeout / 1000000, " ms in vain for ", what,
                                 " of rank ", peer),
                  peer);
  }
}

void CudaGroup::order(cudaStream_t stream) {
  if (!has_queued_ || stream == last_) return;
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &capturing) != cudaSuccess ||
      capturing != cudaStreamCaptureStatusNone)
    return;  // the caller orders its graphs
  check_cuda(cudaStreamWaitEvent(stream, queued_.get(), 0), "an operator on a GPU");
}

void CudaGroup::note_queued(cudaStream_t stream) {
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &capturing) != cudaSuccess ||
      capturing != cudaStreamCaptureStatusNone)
    return;
  check_cuda(cudaEventRecord(queued_.get(), stream), "an operator on a GPU");
  has_queued_ = true;
  last_ = stream;
}

}  // namespace plait::overlap::cuda
