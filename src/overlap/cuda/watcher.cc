#include "overlap/cuda/watcher.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>

namespace plait::overlap::cuda {
namespace {

constexpr int kInterval = 20;  // milliseconds

// -1 if the process can't be seen from here, or has ended already. The group detects such losses by
// other means.
int open_process(std::int64_t process) {
  return static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0));
}

}  // namespace

Watcher::Watcher(const comm::Group& group, const std::vector<std::int64_t>& processes,
                 const comm::cuda::Waits& waits)
    : group_(group), waits_(waits) {
  cudaGetDevice(&device_);
  for (std::size_t r = 0; r < processes.size(); ++r) {
    if (processes[r] == ::getpid()) continue;
    peers_.push_back(static_cast<int>(r));
    descriptors_.push_back(open_process(processes[r]));
  }
  // The program's own threads handle its signals.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watcher::~Watcher() {
  ends_.store(true, std::memory_order_relaxed);
  thread_.join();
  for (const int descriptor : descriptors_)
    if (descriptor >= 0) ::close(descriptor);
}

void Watcher::watch() {
  std::vector<pollfd> polled;
  polled.reserve(descriptors_.size());
  for (const int descriptor : descriptors_)
    polled.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  while (!ends_.load(std::memory_order_relaxed)) {
    ::poll(polled.data(), polled.size(), kInterval);
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      polled[i].fd = -1;  // its end has been noted
      polled[i].revents = 0;
      end_waits(peers_[i]);
    }
    if (group_.failed()) end_waits(-1);
  }
}

// A record that a wait has left stays. The copy runs beside kernels that wait.
void Watcher::end_waits(int lost) {
  if (has_ended_waits_) return;
  has_ended_waits_ = true;
  volatile comm::cuda::Record& record = *waits_.record;
  if (record.trouble == static_cast<unsigned int>(comm::cuda::Trouble::none)) {
    record.peer = lost;
    record.place = -1;
    record.trouble = static_cast<unsigned int>(comm::cuda::Trouble::stopped);
  }
  // The stream is made only now, because a GPU runs few of a process's streams independently.
  static const unsigned int one = 1;
  cudaStream_t stream = nullptr;
  cudaSetDevice(device_);
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
      cudaMemcpyAsync(waits_.gave_up, &one, sizeof(one), cudaMemcpyHostToDevice, stream) !=
          cudaSuccess)
    cudaGetLastError();                              // waits still end at their deadline
  if (stream != nullptr) cudaStreamDestroy(stream);  // once it has copied
}

}  // namespace plait::overlap::cuda
