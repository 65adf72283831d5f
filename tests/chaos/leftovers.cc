#include "chaos/leftovers.h"

#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "comm/meet/meeting_place.h"

namespace plait::chaos {
namespace {

std::vector<std::string> folders_with_names() {
  std::vector<std::string> folders = {"/dev/shm", "/tmp"};
  if (const auto runtime = base::env("XDG_RUNTIME_DIR")) folders.push_back(*runtime);
  return folders;
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  DIR* stream = ::opendir(folder.c_str());
  if (stream == nullptr) return names;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(stream);
  return names;
}

// The last column of /proc/net/unix; names without a file begin with @.
std::vector<std::string> abstract_sockets() {
  std::vector<std::string> names;
  std::ifstream table("/proc/self/net/unix");
  for (std::string line; std::getline(table, line);) {
    const auto at = line.find(" @");
    if (at != std::string::npos) names.push_back(line.substr(at + 1));
  }
  return names;
}

std::set<std::string> look() {
  std::set<std::string> all;
  for (const std::string& folder : folders_with_names()) {
    for (const std::string& name : entries_of(folder))
      all.insert(base::sentence(folder, '/', name));
  }
  for (const std::string& name : abstract_sockets()) all.insert("the socket " + name);
  return all;
}

// Judges by the name: a name of this program's jobs, in its private folder, or a secret one, which
// may be that of another job on this host.
bool is_ours(const std::string& name) {
  if (name.find("descriptors") != std::string::npos) return true;
  const std::string job = base::sentence("-chaos-", ::getpid(), '-');
  const std::string folder = base::env("XDG_RUNTIME_DIR").value_or("") + '/';
  return name.find(job) != std::string::npos || (folder != "/" && name.starts_with(folder)) ||
         comm::shm::is_secret_name(name.substr(name.find('@') + 1));
}

// Counts the descriptor of the folder itself too.
int open_descriptors() { return static_cast<int>(entries_of("/proc/self/fd").size()); }

}  // namespace

// A user other than root gets a user namespace, in which it may do so.
bool isolate() {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWNS | CLONE_NEWNET) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET) != 0) return false;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/gid_map") << group << ' ' << group << " 1";
    std::ofstream("/proc/self/uid_map") << user << ' ' << user << " 1";
  }
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  for (const std::string& folder : folders_with_names()) {
    if (::mount("tmpfs", folder.c_str(), "tmpfs", 0, "mode=0700") != 0) return false;
  }
  return true;
}

Leftovers::Leftovers(bool isolated) : isolated_(isolated), before_(look()) {
  before_.insert(std::to_string(open_descriptors()) + " open descriptors");
}

std::vector<std::string> Leftovers::left_over() const {
  std::vector<std::string> extra;
  for (int tries = 0; tries < 100; ++tries) {
    std::set<std::string> after = look();
    after.insert(std::to_string(open_descriptors()) + " open descriptors");
    std::vector<std::string> now;
    std::set_difference(after.begin(), after.end(), before_.begin(), before_.end(),
                        std::back_inserter(now));
    if (!isolated_) std::erase_if(now, [](const std::string& name) { return !is_ours(name); });
    // Only names that stay count, because names of other jobs appear and disappear.
    if (tries > 0) {
      std::erase_if(now, [&](const std::string& name) {
        return std::find(extra.begin(), extra.end(), name) == extra.end();
      });
    }
    extra = std::move(now);
    if (extra.empty()) break;
    ::usleep(10'000);
  }
  return extra;
}

std::vector<std::string> shared_things_of(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  std::vector<std::string> things;
  for (int tries = 0; tries < 100; ++tries) {
    things.clear();
    std::ifstream maps(process + "/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd:plait") != std::string::npos) things.push_back(line);
    }
    for (const std::string& number : entries_of(process + "/fd")) {
      std::error_code gone;
      const auto link = std::filesystem::path(process) / "fd" / number;
      const std::string target = std::filesystem::read_symlink(link, gone).string();
      const bool is_standard = number.size() == 1 && number < "3";
      if (!is_standard && (target.find("memfd:plait") != std::string::npos ||
                           target.find("socket:") != std::string::npos))
        things.push_back(target);
    }
    if (things.empty()) break;
    ::usleep(10'000);
  }
  return things;
}

}  // namespace plait::chaos
