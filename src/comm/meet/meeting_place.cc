#include "comm/meet/meeting_place.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "base/fingerprint.h"
#include "base/host.h"
#include "base/socket.h"
#include "comm/core/deadline.h"
#include "plait/error.h"

namespace plait::comm::shm {
namespace {

using base::Fd;
using base::Nanoseconds;
using base::sentence;

constexpr std::size_t kSecretDigits = 32;
constexpr const char* kPrefix = "plait-";

std::string hex(std::uint64_t number) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(number));
  return digits.data();
}

std::uint64_t random_number() {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != static_cast<ssize_t>(sizeof(random))) {
    base::fail_errno("cannot get random bytes");
  }
  return random;
}

// Files are named plait-HOST-NAME.RANDOM: hosts may share a folder, and a name is never used twice.
std::string prefix_of_host() { return kPrefix + hex(base::fingerprint(base::host_id())) + '-'; }
std::string prefix_of(const std::string& name) {
  return prefix_of_host() + hex(base::fingerprint(name)) + '.';
}

constexpr std::size_t kLongestFileName = sizeof("plait-") - 1 + 16 + 1 + 16 + 1 + 16;

// A file is there a moment before its process listens. After that, one behind which none does has
// been left by a process that was killed.
constexpr std::chrono::milliseconds kUntilListening{100};

bool is_abandoned(const std::string& path) {
  struct stat status = {};
  if (!base::is_abandoned(path) || ::stat(path.c_str(), &status) != 0) return false;
  const auto made = std::chrono::seconds(status.st_mtim.tv_sec) +
                    std::chrono::nanoseconds(status.st_mtim.tv_nsec);
  const auto age = std::chrono::system_clock::now().time_since_epoch() - made;
  return std::chrono::abs(age) > kUntilListening;  // of a clock that was set back too
}

std::vector<std::string> files_in(const std::string& folder, const std::string& prefix) {
  std::vector<std::string> found;
  std::error_code failure;
  for (std::filesystem::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (entry->path().filename().string().starts_with(prefix))
      found.push_back(entry->path().string());
  }
  return found;
}

// XDG_RUNTIME_DIR, where it is this user's and no other can enter it; else empty.
std::string private_folder() {
  std::string folder = base::env("XDG_RUNTIME_DIR").value_or("");
  struct stat status = {};
  const bool fits =
      folder.starts_with('/') && folder.size() + 1 + kLongestFileName <= base::kLongestSocketName;
  const bool is_ours = fits && ::stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
                       status.st_uid == ::geteuid() && (status.st_mode & 077) == 0;
  return is_ours ? folder : "";
}

std::string folder_for(const std::string& name) {
  return is_secret_name(name) ? "" : private_folder();
}

// The process that listens there for this user; removes a file behind which none does.
std::optional<Fd> call_at(const std::string& path) {
  auto host = base::connect_to(path);
  if (host && base::credentials_of(*host).uid == ::geteuid()) return host;
  if (!host && is_abandoned(path)) ::unlink(path.c_str());
  return std::nullopt;
}

void remove_abandoned(const std::string& folder) {
  for (const std::string& path : files_in(folder, prefix_of_host())) {
    if (is_abandoned(path)) ::unlink(path.c_str());
  }
}

std::string held_by(const base::Credentials& holder) {
  return sentence("the meeting place of this job is held by pid ", holder.pid, " of user ",
                  holder.uid, ", and not by one of user ", ::geteuid());
}

}  // namespace

std::string name_of_job(const std::string& job) {
  constexpr std::size_t kLongest = 80;  // of 107 that a socket's name may have
  std::string name = sentence(kPrefix, ::geteuid(), '-', job);
  if (name.size() > kLongest) {
    name = sentence(name.substr(0, kLongest - 20), '-', base::fingerprint(name));
  }
  return name;
}

std::string make_secret_name() { return kPrefix + hex(random_number()) + hex(random_number()); }

bool is_secret_name(const std::string& text) {
  const std::string prefix = kPrefix;
  return text.size() == prefix.size() + kSecretDigits && text.starts_with(prefix) &&
         std::all_of(text.begin() + static_cast<std::ptrdiff_t>(prefix.size()), text.end(),
                     [](unsigned char digit) { return std::isxdigit(digit) != 0; });
}

std::string claimants(long first, long second, const std::string& rank) {
  if (first != second) {
    return sentence("two processes (pid ", first, " and pid ", second, ") claim ", rank);
  }
  return sentence("two threads of one process (pid ", first, ") connect at once as ", rank,
                  ": let one be done before the other begins, or give each a job of its own");
}

MeetingPlace::MeetingPlace(const std::string& name, Nanoseconds deadline, const Watch& watch) {
  const std::string folder = folder_for(name);
  listen_in_kernel(name, folder.empty(), deadline, watch);
  if (folder.empty()) return;
  try {
    listen_in(folder, name);
  } catch (const Error& error) {
    // A folder that can't have a socket in it is as good as none.
    if (error.code() != Code::system || listeners_.empty()) throw;
  }
  if (!obstacle_.empty()) {
    obstacle_ = sentence(obstacle_, ", so that they can come only to ", folder,
                         ": do all ranks have the same XDG_RUNTIME_DIR?");
  }
}

// The name is free as soon as its process has gone, or has closed it: a child that was forked
// shortly before may take a moment to let go of it.
void MeetingPlace::listen_in_kernel(const std::string& name, bool alone, Nanoseconds deadline,
                                    const Watch& watch) {
  Deadline until(deadline - base::now());
  for (;;) {
    if (auto listener = base::listen_at(name)) {
      listeners_.push_back(std::move(*listener));
      return;
    }
    if (const auto socket = base::connect_to(name)) {
      const base::Credentials holder = base::credentials_of(*socket);
      PLAIT_CHECK(holder.uid != ::geteuid(), claimants(holder.pid, ::getpid(), "rank 0"));
      if (alone) base::fail(Code::system, held_by(holder));
      obstacle_ = held_by(holder);
      return;
    }
    if (watch) watch(0);
    if (until.is_over()) {
      base::fail(Code::system,
                 "the meeting place of this job is held by a process that does not answer");
    }
    ::usleep(1000);
  }
}

void MeetingPlace::listen_in(const std::string& folder, const std::string& name) {
  const std::string prefix = prefix_of(name);
  for (const std::string& path : files_in(folder, prefix)) {
    const auto host = call_at(path);
    PLAIT_CHECK(!host, claimants(base::credentials_of(*host).pid, ::getpid(), "rank 0"));
  }
  remove_abandoned(folder);
  // A rank that took the file for abandoned may have removed it just before this one listened.
  constexpr int kTries = 10;
  for (int tries = 0; tries < kTries; ++tries) {
    path_ = sentence(folder, '/', prefix, hex(random_number()));
    auto listener = base::listen_at(path_);
    if (!listener || ::access(path_.c_str(), F_OK) != 0) continue;
    listeners_.push_back(std::move(*listener));
    return;
  }
}

// Shut down first: a child that was forked just now, and has not let go of it yet, must not take
// calls.
void MeetingPlace::close() noexcept {
  if (!path_.empty()) ::unlink(path_.c_str());
  path_.clear();
  for (const Fd& listener : listeners_) ::shutdown(listener.get(), SHUT_RDWR);
  listeners_.clear();
}

Finder::Finder(const std::string& name)
    : name_(name), folder_(folder_for(name)), prefix_(folder_.empty() ? "" : prefix_of(name)) {}

std::optional<Fd> Finder::call() {
  if (!folder_.empty()) {
    for (const std::string& path : files_in(folder_, prefix_)) {
      auto host = call_at(path);
      if (!host) continue;
      found_ = path;
      return host;
    }
  }
  auto host = base::connect_to(name_);
  if (!host) return std::nullopt;
  const base::Credentials holder = base::credentials_of(*host);
  if (holder.uid == ::geteuid()) return host;
  if (folder_.empty()) base::fail(Code::system, held_by(holder), ": not talking to it");
  obstacle_ = sentence(held_by(holder), ", so that it can come only to ", folder_,
                       ": do all ranks have the same XDG_RUNTIME_DIR?");
  return std::nullopt;
}

// Its sockets close one after another.
void Finder::clear_up() {
  constexpr int kTries = 50;
  for (int tries = 0; !found_.empty() && tries < kTries; ++tries) {
    if (base::is_abandoned(found_)) ::unlink(found_.c_str());
    if (::access(found_.c_str(), F_OK) != 0) return;
    ::usleep(1000);
  }
}

}  // namespace plait::comm::shm
